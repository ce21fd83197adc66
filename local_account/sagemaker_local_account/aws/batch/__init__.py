"""AWS Batch: queues of SageMaker training jobs ("service jobs")."""
