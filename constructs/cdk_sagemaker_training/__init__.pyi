"""The public names, each with its module: `__init__.py` reads them here, as type checkers and editors do."""

from cdk_sagemaker_training.core.unlisted import unlisted as unlisted
from cdk_sagemaker_training.data.capacity import (
    PrivateRegistry as PrivateRegistry,
)
from cdk_sagemaker_training.data.capacity import (
    Spot as Spot,
)
from cdk_sagemaker_training.data.capacity import (
    UltraServers as UltraServers,
)
from cdk_sagemaker_training.data.capacity import (
    WarmPool as WarmPool,
)
from cdk_sagemaker_training.data.code import TrainingCode as TrainingCode
from cdk_sagemaker_training.data.file_systems import (
    EfsChannel as EfsChannel,
)
from cdk_sagemaker_training.data.file_systems import (
    FsxLustreChannel as FsxLustreChannel,
)
from cdk_sagemaker_training.data.observability import (
    Debugger as Debugger,
)
from cdk_sagemaker_training.data.observability import (
    DebuggerRule as DebuggerRule,
)
from cdk_sagemaker_training.data.observability import (
    Experiment as Experiment,
)
from cdk_sagemaker_training.data.observability import (
    Mlflow as Mlflow,
)
from cdk_sagemaker_training.data.observability import (
    Profiler as Profiler,
)
from cdk_sagemaker_training.data.observability import (
    TensorBoard as TensorBoard,
)
from cdk_sagemaker_training.data.s3 import (
    S3AccessPoint as S3AccessPoint,
)
from cdk_sagemaker_training.data.s3 import (
    S3Channel as S3Channel,
)
from cdk_sagemaker_training.data.s3 import (
    S3Prefix as S3Prefix,
)
from cdk_sagemaker_training.features.alternatives import Alternative as Alternative
from cdk_sagemaker_training.features.budget import Budget as Budget
from cdk_sagemaker_training.features.input_fields import (
    ChoiceField as ChoiceField,
)
from cdk_sagemaker_training.features.input_fields import (
    NumberField as NumberField,
)
from cdk_sagemaker_training.features.input_fields import (
    TextField as TextField,
)
from cdk_sagemaker_training.features.retries import (
    Retry as Retry,
)
from cdk_sagemaker_training.features.retries import (
    default_retries as default_retries,
)
from cdk_sagemaker_training.features.stop_when import (
    MetricLimit as MetricLimit,
)
from cdk_sagemaker_training.features.stop_when import (
    Plateau as Plateau,
)
from cdk_sagemaker_training.features.stop_when import (
    Silence as Silence,
)
from cdk_sagemaker_training.jobs.advice import Advice as Advice
from cdk_sagemaker_training.jobs.compiled_practice import (
    SuggestedBatchSize as SuggestedBatchSize,
)
from cdk_sagemaker_training.jobs.compiled_practice import (
    rescaled_learning_rate as rescaled_learning_rate,
)
from cdk_sagemaker_training.jobs.compiled_practice import (
    suggested_batch_sizes as suggested_batch_sizes,
)
from cdk_sagemaker_training.jobs.compilers import (
    CompiledJob as CompiledJob,
)
from cdk_sagemaker_training.jobs.compilers import (
    Neuron as Neuron,
)
from cdk_sagemaker_training.jobs.compilers import (
    TensorFlowXla as TensorFlowXla,
)
from cdk_sagemaker_training.jobs.compilers import (
    TorchCompile as TorchCompile,
)
from cdk_sagemaker_training.jobs.compilers import (
    TorchXla as TorchXla,
)
from cdk_sagemaker_training.jobs.efa import efa_environment as efa_environment
from cdk_sagemaker_training.jobs.heterogeneous import HeterogeneousJob as HeterogeneousJob
from cdk_sagemaker_training.jobs.kinds import (
    Compiler as Compiler,
)
from cdk_sagemaker_training.jobs.kinds import (
    DataParallelJob as DataParallelJob,
)
from cdk_sagemaker_training.jobs.kinds import (
    InstanceGroup as InstanceGroup,
)
from cdk_sagemaker_training.jobs.kinds import (
    InstancePreference as InstancePreference,
)
from cdk_sagemaker_training.jobs.kinds import (
    JobRequest as JobRequest,
)
from cdk_sagemaker_training.jobs.kinds import (
    Launcher as Launcher,
)
from cdk_sagemaker_training.jobs.kinds import (
    TrainingJob as TrainingJob,
)
from cdk_sagemaker_training.jobs.launchers import (
    Mpi as Mpi,
)
from cdk_sagemaker_training.jobs.launchers import (
    MultiWorkerMirrored as MultiWorkerMirrored,
)
from cdk_sagemaker_training.jobs.launchers import (
    ParameterServer as ParameterServer,
)
from cdk_sagemaker_training.jobs.launchers import (
    PyTorchDdp as PyTorchDdp,
)
from cdk_sagemaker_training.jobs.launchers import (
    SmDdp as SmDdp,
)
from cdk_sagemaker_training.jobs.launchers import (
    Torchrun as Torchrun,
)
from cdk_sagemaker_training.jobs.model_parallel import (
    Model as Model,
)
from cdk_sagemaker_training.jobs.model_parallel import (
    ModelParallelJob as ModelParallelJob,
)
from cdk_sagemaker_training.jobs.model_parallel import (
    Parallelism as Parallelism,
)
from cdk_sagemaker_training.jobs.parallelism import NativeParallelism as NativeParallelism
from cdk_sagemaker_training.jobs.ray import Ray as Ray
from cdk_sagemaker_training.jobs.smp import (
    SmpV1 as SmpV1,
)
from cdk_sagemaker_training.jobs.smp import (
    SmpV2 as SmpV2,
)
from cdk_sagemaker_training.jobs.training_compiler import (
    PyTorchXla as PyTorchXla,
)
from cdk_sagemaker_training.jobs.training_compiler import (
    TrainingCompiler as TrainingCompiler,
)
from cdk_sagemaker_training.lifecycle.attempt import (
    Attempt as Attempt,
)
from cdk_sagemaker_training.lifecycle.attempt import (
    Seam as Seam,
)
from cdk_sagemaker_training.lifecycle.causes import Cause as Cause
from cdk_sagemaker_training.lifecycle.feature import Feature as Feature
from cdk_sagemaker_training.orchestration.approval import Approval as Approval
from cdk_sagemaker_training.orchestration.artifact import ArtifactOf as ArtifactOf
from cdk_sagemaker_training.orchestration.gate import Gate as Gate
from cdk_sagemaker_training.orchestration.register_model import RegisterModel as RegisterModel
from cdk_sagemaker_training.orchestration.sweep_values import (
    Grid as Grid,
)
from cdk_sagemaker_training.orchestration.sweep_values import (
    Objective as Objective,
)
from cdk_sagemaker_training.orchestration.sweep_values import (
    Rows as Rows,
)
from cdk_sagemaker_training.orchestration.sweep_values import (
    RowsFile as RowsFile,
)
from cdk_sagemaker_training.orchestration.training_dashboard import TrainingDashboard as TrainingDashboard
from cdk_sagemaker_training.orchestration.training_pipeline import (
    ParallelSteps as ParallelSteps,
)
from cdk_sagemaker_training.orchestration.training_pipeline import (
    TrainingPipeline as TrainingPipeline,
)
from cdk_sagemaker_training.orchestration.training_sweep import TrainingSweep as TrainingSweep
from cdk_sagemaker_training.packaged import training_code_path as training_code_path
from cdk_sagemaker_training.request.props import TrainingProps as TrainingProps
from cdk_sagemaker_training.resources.bucket import TrainingBucket as TrainingBucket
from cdk_sagemaker_training.resources.functions import TrainingFunctions as TrainingFunctions
from cdk_sagemaker_training.resources.image import TrainingImage as TrainingImage
from cdk_sagemaker_training.resources.lustre import LustreFileSystem as LustreFileSystem
from cdk_sagemaker_training.resources.networking.network import TrainingNetwork as TrainingNetwork
from cdk_sagemaker_training.resources.queue import (
    ITrainingQueue as ITrainingQueue,
)
from cdk_sagemaker_training.resources.queue import (
    QueueShare as QueueShare,
)
from cdk_sagemaker_training.resources.queue import (
    TrainingQueue as TrainingQueue,
)
from cdk_sagemaker_training.resources.quota_share import QuotaShare as QuotaShare
from cdk_sagemaker_training.resources.role import TrainingRole as TrainingRole
from cdk_sagemaker_training.workflow.imported_workflow import ITrainingWorkflow as ITrainingWorkflow
from cdk_sagemaker_training.workflow.training_task import TrainingTask as TrainingTask
from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow as TrainingWorkflow

__all__: list[str]
