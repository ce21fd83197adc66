"""ECR: repositories, in CloudFormation."""
