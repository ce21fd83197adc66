"""AWS CDK constructs for SageMaker training jobs: heterogeneous, compiled and model-parallel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# For editors and type checkers.
if TYPE_CHECKING:
    from cdk_sagemaker_training.core.unlisted import unlisted
    from cdk_sagemaker_training.data.capacity import PrivateRegistry, Spot, UltraServers, WarmPool
    from cdk_sagemaker_training.data.code import TrainingCode
    from cdk_sagemaker_training.data.file_systems import EfsChannel, FsxLustreChannel
    from cdk_sagemaker_training.data.observability import (
        Debugger,
        DebuggerRule,
        Experiment,
        Mlflow,
        Profiler,
        TensorBoard,
    )
    from cdk_sagemaker_training.data.s3 import S3AccessPoint, S3Channel, S3Prefix
    from cdk_sagemaker_training.features.alternatives import Alternative
    from cdk_sagemaker_training.features.budget import Budget
    from cdk_sagemaker_training.features.input_fields import ChoiceField, NumberField, TextField
    from cdk_sagemaker_training.features.retries import Retry, default_retries
    from cdk_sagemaker_training.features.stop_when import MetricLimit, Plateau, Silence
    from cdk_sagemaker_training.jobs.advice import Advice
    from cdk_sagemaker_training.jobs.compiled_practice import (
        SuggestedBatchSize,
        rescaled_learning_rate,
        suggested_batch_sizes,
    )
    from cdk_sagemaker_training.jobs.compilers import CompiledJob, Neuron, TensorFlowXla, TorchCompile, TorchXla
    from cdk_sagemaker_training.jobs.efa import efa_environment
    from cdk_sagemaker_training.jobs.heterogeneous import HeterogeneousJob
    from cdk_sagemaker_training.jobs.kinds import (
        Compiler,
        DataParallelJob,
        InstanceGroup,
        InstancePreference,
        JobRequest,
        Launcher,
        TrainingJob,
    )
    from cdk_sagemaker_training.jobs.launchers import (
        Mpi,
        MultiWorkerMirrored,
        ParameterServer,
        PyTorchDdp,
        SmDdp,
        Torchrun,
    )
    from cdk_sagemaker_training.jobs.model_parallel import Model, ModelParallelJob, Parallelism
    from cdk_sagemaker_training.jobs.parallelism import NativeParallelism
    from cdk_sagemaker_training.jobs.ray import Ray
    from cdk_sagemaker_training.jobs.smp import SmpV1, SmpV2
    from cdk_sagemaker_training.jobs.training_compiler import PyTorchXla, TrainingCompiler
    from cdk_sagemaker_training.lifecycle.attempt import Attempt, Seam
    from cdk_sagemaker_training.lifecycle.causes import Cause
    from cdk_sagemaker_training.lifecycle.feature import Feature
    from cdk_sagemaker_training.orchestration.approval import Approval
    from cdk_sagemaker_training.orchestration.artifact import ArtifactOf
    from cdk_sagemaker_training.orchestration.gate import Gate
    from cdk_sagemaker_training.orchestration.register_model import RegisterModel
    from cdk_sagemaker_training.orchestration.sweep_values import Grid, Objective, Rows, RowsFile
    from cdk_sagemaker_training.orchestration.training_dashboard import TrainingDashboard
    from cdk_sagemaker_training.orchestration.training_pipeline import ParallelSteps, TrainingPipeline
    from cdk_sagemaker_training.orchestration.training_step import TrainingStep
    from cdk_sagemaker_training.orchestration.training_sweep import TrainingSweep
    from cdk_sagemaker_training.packaged import training_code_path
    from cdk_sagemaker_training.request.props import TrainingProps
    from cdk_sagemaker_training.resources.bucket import TrainingBucket
    from cdk_sagemaker_training.resources.image import TrainingImage
    from cdk_sagemaker_training.resources.lustre import LustreFileSystem
    from cdk_sagemaker_training.resources.network import TrainingNetwork
    from cdk_sagemaker_training.resources.queue import ITrainingQueue, QueueShare, TrainingQueue
    from cdk_sagemaker_training.resources.quota_share import QuotaShare
    from cdk_sagemaker_training.resources.role import TrainingRole
    from cdk_sagemaker_training.workflow.training_task import TrainingTask
    from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow

__all__ = [
    "Advice",
    "Alternative",
    "Approval",
    "ArtifactOf",
    "Attempt",
    "Budget",
    "Cause",
    "ChoiceField",
    "CompiledJob",
    "Compiler",
    "DataParallelJob",
    "Debugger",
    "DebuggerRule",
    "EfsChannel",
    "Experiment",
    "Feature",
    "FsxLustreChannel",
    "Gate",
    "Grid",
    "HeterogeneousJob",
    "ITrainingQueue",
    "InstanceGroup",
    "InstancePreference",
    "JobRequest",
    "Launcher",
    "LustreFileSystem",
    "MetricLimit",
    "Mlflow",
    "Model",
    "ModelParallelJob",
    "Mpi",
    "MultiWorkerMirrored",
    "NativeParallelism",
    "Neuron",
    "NumberField",
    "Objective",
    "ParallelSteps",
    "Parallelism",
    "ParameterServer",
    "Plateau",
    "PrivateRegistry",
    "Profiler",
    "PyTorchDdp",
    "PyTorchXla",
    "QueueShare",
    "QuotaShare",
    "Ray",
    "RegisterModel",
    "Retry",
    "Rows",
    "RowsFile",
    "S3AccessPoint",
    "S3Channel",
    "S3Prefix",
    "Seam",
    "Silence",
    "SmDdp",
    "SmpV1",
    "SmpV2",
    "Spot",
    "SuggestedBatchSize",
    "TensorBoard",
    "TensorFlowXla",
    "TextField",
    "TorchCompile",
    "TorchXla",
    "Torchrun",
    "TrainingBucket",
    "TrainingCode",
    "TrainingCompiler",
    "TrainingDashboard",
    "TrainingImage",
    "TrainingJob",
    "TrainingNetwork",
    "TrainingPipeline",
    "TrainingProps",
    "TrainingQueue",
    "TrainingRole",
    "TrainingStep",
    "TrainingSweep",
    "TrainingTask",
    "TrainingWorkflow",
    "UltraServers",
    "WarmPool",
    "default_retries",
    "efa_environment",
    "rescaled_learning_rate",
    "suggested_batch_sizes",
    "training_code_path",
    "unlisted",
]

# Each name is imported on first use (PEP 562), as aws_cdk does with its own modules: values do without aws_cdk, which takes a
# second to import, and a stack without a network without aws_ec2.
_MODULES = {
    "core.unlisted": ("unlisted",),
    "data.capacity": (
        "PrivateRegistry",
        "Spot",
        "UltraServers",
        "WarmPool",
    ),
    "data.code": ("TrainingCode",),
    "data.file_systems": (
        "EfsChannel",
        "FsxLustreChannel",
    ),
    "data.observability": (
        "Debugger",
        "DebuggerRule",
        "Experiment",
        "Mlflow",
        "Profiler",
        "TensorBoard",
    ),
    "data.s3": (
        "S3AccessPoint",
        "S3Channel",
        "S3Prefix",
    ),
    "jobs.advice": ("Advice",),
    "jobs.compiled_practice": (
        "SuggestedBatchSize",
        "rescaled_learning_rate",
        "suggested_batch_sizes",
    ),
    "jobs.compilers": (
        "CompiledJob",
        "Neuron",
        "TensorFlowXla",
        "TorchCompile",
        "TorchXla",
    ),
    "jobs.efa": ("efa_environment",),
    "jobs.heterogeneous": ("HeterogeneousJob",),
    "jobs.kinds": (
        "Compiler",
        "DataParallelJob",
        "InstanceGroup",
        "InstancePreference",
        "JobRequest",
        "Launcher",
        "TrainingJob",
    ),
    "jobs.launchers": (
        "Mpi",
        "MultiWorkerMirrored",
        "ParameterServer",
        "PyTorchDdp",
        "SmDdp",
        "Torchrun",
    ),
    "jobs.model_parallel": ("Model", "ModelParallelJob", "Parallelism"),
    "jobs.parallelism": ("NativeParallelism",),
    "jobs.ray": ("Ray",),
    "jobs.smp": ("SmpV1", "SmpV2"),
    "jobs.training_compiler": (
        "PyTorchXla",
        "TrainingCompiler",
    ),
    "packaged": ("training_code_path",),
    "orchestration.approval": ("Approval",),
    "orchestration.artifact": ("ArtifactOf",),
    "orchestration.gate": ("Gate",),
    "orchestration.register_model": ("RegisterModel",),
    "orchestration.training_pipeline": (
        "ParallelSteps",
        "TrainingPipeline",
    ),
    "orchestration.training_step": ("TrainingStep",),
    "request.props": ("TrainingProps",),
    "resources.bucket": ("TrainingBucket",),
    "resources.image": ("TrainingImage",),
    "resources.lustre": ("LustreFileSystem",),
    "resources.network": ("TrainingNetwork",),
    "resources.queue": ("ITrainingQueue", "QueueShare", "TrainingQueue"),
    "resources.quota_share": ("QuotaShare",),
    "resources.role": ("TrainingRole",),
    "features.alternatives": ("Alternative",),
    "features.budget": ("Budget",),
    "lifecycle.attempt": ("Attempt", "Seam"),
    "lifecycle.causes": ("Cause",),
    "lifecycle.feature": ("Feature",),
    "features.input_fields": ("ChoiceField", "NumberField", "TextField"),
    "features.retries": ("Retry", "default_retries"),
    "features.stop_when": ("MetricLimit", "Plateau", "Silence"),
    "orchestration.sweep_values": ("Grid", "Objective", "Rows", "RowsFile"),
    "orchestration.training_dashboard": ("TrainingDashboard",),
    "orchestration.training_sweep": ("TrainingSweep",),
    "workflow.training_task": ("TrainingTask",),
    "workflow.training_workflow": ("TrainingWorkflow",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
