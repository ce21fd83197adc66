"""AWS CDK constructs for SageMaker training jobs: heterogeneous, compiled and model-parallel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.advice import Advice
from cdk_sagemaker_training.bucket import TrainingBucket
from cdk_sagemaker_training.capacity import PrivateRegistry, UltraServers
from cdk_sagemaker_training.compiled import CompiledJob
from cdk_sagemaker_training.compiled_practice import (
    SuggestedBatchSize,
    rescaled_learning_rate,
    suggested_batch_sizes,
)
from cdk_sagemaker_training.compilers import Neuron, TensorFlowXla, TorchCompile, TorchXla
from cdk_sagemaker_training.data import S3AccessPoint, S3Channel, S3Prefix, Spot, WarmPool
from cdk_sagemaker_training.efa import efa_environment
from cdk_sagemaker_training.file_systems import EfsChannel, FsxLustreChannel
from cdk_sagemaker_training.image import TrainingImage
from cdk_sagemaker_training.jobs import (
    Compiler,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    InstancePreference,
    JobRequest,
    TrainingJob,
)
from cdk_sagemaker_training.launchers import Mpi, MultiWorkerMirrored, ParameterServer, PyTorchDdp, SmDdp, Torchrun
from cdk_sagemaker_training.model_parallel import ModelParallelJob
from cdk_sagemaker_training.observability import (
    Debugger,
    DebuggerRule,
    Experiment,
    Mlflow,
    Profiler,
    TensorBoard,
)
from cdk_sagemaker_training.packaged import training_code_path
from cdk_sagemaker_training.parallelism import NativeParallelism
from cdk_sagemaker_training.props import TrainingProps
from cdk_sagemaker_training.role import TrainingRole
from cdk_sagemaker_training.smp import SmpV1, SmpV2
from cdk_sagemaker_training.training_compiler import PyTorchXla, TrainingCompiler
from cdk_sagemaker_training.unlisted import unlisted
from cdk_sagemaker_training.workflow import TrainingWorkflow

if TYPE_CHECKING:
    from cdk_sagemaker_training.lustre import LustreFileSystem
    from cdk_sagemaker_training.network import TrainingNetwork
    from cdk_sagemaker_training.task import TrainingTask

__all__ = [
    "Advice",
    "CompiledJob",
    "Compiler",
    "DataParallelJob",
    "Debugger",
    "DebuggerRule",
    "EfsChannel",
    "Experiment",
    "FsxLustreChannel",
    "HeterogeneousJob",
    "InstanceGroup",
    "InstancePreference",
    "JobRequest",
    "LustreFileSystem",
    "Mlflow",
    "ModelParallelJob",
    "Mpi",
    "MultiWorkerMirrored",
    "NativeParallelism",
    "Neuron",
    "ParameterServer",
    "PrivateRegistry",
    "Profiler",
    "PyTorchDdp",
    "PyTorchXla",
    "S3AccessPoint",
    "S3Channel",
    "S3Prefix",
    "SmDdp",
    "SmpV1",
    "SmpV2",
    "Spot",
    "SuggestedBatchSize",
    "TensorBoard",
    "TensorFlowXla",
    "TorchCompile",
    "TorchXla",
    "Torchrun",
    "TrainingBucket",
    "TrainingCompiler",
    "TrainingImage",
    "TrainingJob",
    "TrainingNetwork",
    "TrainingProps",
    "TrainingRole",
    "TrainingTask",
    "TrainingWorkflow",
    "UltraServers",
    "WarmPool",
    "efa_environment",
    "rescaled_learning_rate",
    "suggested_batch_sizes",
    "training_code_path",
    "unlisted",
]

# Imported when first used, as aws_cdk does with its own modules: what these stand on (aws_ec2, aws_fsx, aws_stepfunctions_tasks)
# takes as long to import as five workflows take to synthesize.
_IMPORTED_WHEN_USED = {"LustreFileSystem": "lustre", "TrainingNetwork": "network", "TrainingTask": "task"}


def __getattr__(name: str) -> Any:
    if name not in _IMPORTED_WHEN_USED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_IMPORTED_WHEN_USED[name]}"), name)
