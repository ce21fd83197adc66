"""AWS CDK constructs for SageMaker training jobs."""
