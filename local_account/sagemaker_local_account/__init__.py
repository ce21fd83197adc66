"""An AWS account on this machine, in which SageMaker training jobs run."""
