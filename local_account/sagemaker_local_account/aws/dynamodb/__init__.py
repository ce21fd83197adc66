"""DynamoDB: tables, in CloudFormation."""
