"""AWS CDK constructs for SageMaker training jobs: heterogeneous, compiled and model-parallel."""

from cdk_sagemaker_training.data import S3Channel, S3Prefix, Spot, WarmPool
from cdk_sagemaker_training.image import TrainingImage
from cdk_sagemaker_training.jobs import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    JobRequest,
    Torchrun,
    TrainingJob,
)
from cdk_sagemaker_training.network import TrainingNetwork
from cdk_sagemaker_training.packaged import training_code_path
from cdk_sagemaker_training.role import TrainingRole

__all__ = [
    "DataParallelJob",
    "HeterogeneousJob",
    "InstanceGroup",
    "JobRequest",
    "S3Channel",
    "S3Prefix",
    "Spot",
    "Torchrun",
    "TrainingImage",
    "TrainingJob",
    "TrainingNetwork",
    "TrainingRole",
    "WarmPool",
    "training_code_path",
]
