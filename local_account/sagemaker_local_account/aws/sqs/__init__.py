"""SQS: queues, in CloudFormation."""
