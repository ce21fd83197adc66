"""What TrainingTask and TrainingWorkflow take of a job, in the words of CreateTrainingJob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from cdk_sagemaker_training.jobs import TrainingJob
from cdk_sagemaker_training.prop_types import check_props_of

if TYPE_CHECKING:
    from aws_cdk import Duration, Size
    from aws_cdk import aws_iam as iam
    from aws_cdk import aws_kms as kms

    from cdk_sagemaker_training.capacity import PrivateRegistry, UltraServers
    from cdk_sagemaker_training.data import S3Prefix, Spot, WarmPool
    from cdk_sagemaker_training.image import TrainingImage
    from cdk_sagemaker_training.network import TrainingNetwork
    from cdk_sagemaker_training.observability import Debugger, Experiment, Mlflow, Profiler, TensorBoard
    from cdk_sagemaker_training.request import Channel
    from cdk_sagemaker_training.role import TrainingRole


class RequiredProps(TypedDict):
    """What every job needs: its kind, its image, and where in S3 its model goes."""

    job: TrainingJob
    image: TrainingImage
    output: S3Prefix


class TrainingProps(RequiredProps, total=False):
    """What a job may be given besides; what is left out is as SageMaker has it, unless something else is said here.

    Where the job reads and writes:

    - ``channels`` by their names, at most 20; ``checkpoints``, where what the script writes to ``checkpoint_local_path``
      (``/opt/ml/checkpoints``) is kept, with or without ``spot``, which may say both itself.
    - ``output_key`` encrypts the model; ``output_compression`` ``"NONE"`` leaves it unpacked, ``"GZIP"`` is the default.

    What runs:

    - ``hyperparameters`` and ``environment`` reach the script. A hyperparameter that is an ``S3Prefix``, such as TensorFlow's
      ``model_dir``, is its URI, below which the job may read and write. ``container_entrypoint`` and ``container_arguments``
      replace the image's own ``train`` and its arguments.
    - ``private_registry`` is where the image comes from instead of ECR.

    On what it runs, and for how long:

    - ``volume_size`` is 30 GiB; machines with disks of their own use those. ``volume_key`` encrypts the volume.
    - ``spot`` machines, a ``warm_pool`` or a ``training_plan`` (its ARN); ``ultra_servers`` says how machines lie on these.
    - ``max_runtime`` is one day, up to 28; ``max_pending`` how long it waits for machines. ``maximum_retry_attempts``, 1 to 30,
      is how often SageMaker starts a job again that failed by its own fault; the times hold for all attempts together.
    - ``infra_check`` tests the machines before they train.

    Who may do and see what:

    - ``role`` is a new one; ``network`` SageMaker's own. ``network_isolation`` cuts the script off from every network but its
      peers, ``inter_container_encryption`` encrypts what these say to each other, which makes them slower.
    - ``session_tag_chaining`` hands the caller's session tags to the role; ``remote_debug`` lets you enter a host by Systems
      Manager.

    What it tells: ``metric_definitions`` (by a metric's name a regular expression, or a list of several),
    ``metrics_time_series``, ``debugger``, ``profiler``, ``tensorboard``, ``experiment``, ``mlflow``, and ``tags``. Jobs' names
    begin with ``job_name_prefix``, by default the construct's path in lower case, with a hash where that is too long, not all
    in ASCII, or would meet an earlier construct's.
    """

    channels: Mapping[str, Channel] | None
    checkpoints: S3Prefix | None
    checkpoint_local_path: str | None
    hyperparameters: Mapping[str, Any] | None
    environment: Mapping[str, str] | None
    container_entrypoint: Sequence[str] | None
    container_arguments: Sequence[str] | None
    private_registry: PrivateRegistry | None
    output_key: kms.IKey | None
    output_compression: Literal["GZIP", "NONE"] | None
    role: TrainingRole | iam.IRole | None
    network: TrainingNetwork | None
    network_isolation: bool
    inter_container_encryption: bool
    session_tag_chaining: bool
    remote_debug: bool
    spot: Spot | None
    warm_pool: WarmPool | None
    training_plan: str | None
    ultra_servers: UltraServers | None
    max_runtime: Duration | int | None
    max_pending: Duration | int | None
    maximum_retry_attempts: int | None
    infra_check: bool
    volume_size: Size | None
    volume_key: kms.IKey | None
    metric_definitions: Mapping[str, str | Sequence[str]] | None
    metrics_time_series: bool | None
    debugger: Debugger | None
    profiler: Profiler | None
    tensorboard: TensorBoard | None
    experiment: Experiment | None
    mlflow: Mlflow | None
    job_name_prefix: str | None
    tags: Mapping[str, str] | None


PROPS = frozenset(TrainingProps.__annotations__)


def check_props(taker: str, props: Mapping[str, Any]) -> None:
    """Raise ``TypeError``, as for any function's arguments, for a prop that is not there and for one that is missing.

    Raises ``ValueError`` for one that is another thing than it has to be, such as an ARN in place of a key.
    """
    for name in props:
        if name not in PROPS:
            raise TypeError(f"{taker} got an unexpected keyword argument {name!r}")
    for name in RequiredProps.__annotations__:
        if name not in props:
            raise TypeError(f"{taker} missing required keyword argument {name!r}")
    check_props_of("TrainingProps", TrainingProps, props)
