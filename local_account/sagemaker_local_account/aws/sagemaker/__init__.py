"""SageMaker's training jobs: the API, the job store, the scheduler, a job's life cycle and its attempts."""
