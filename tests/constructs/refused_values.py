"""Values that break a rule of the library in their constructors, and how each message begins and ends."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from aws_cdk import Duration
from whole_requests import (
    BUCKET,
    EFS,
    LUSTRE,
    ON_GROUPS,
    RULES_IMAGE,
)

from cdk_sagemaker_training import (
    DataParallelJob,
    Debugger,
    DebuggerRule,
    EfsChannel,
    Experiment,
    FsxLustreChannel,
    HeterogeneousJob,
    InstanceGroup,
    Mlflow,
    ModelParallelJob,
    Mpi,
    NativeParallelism,
    Profiler,
    Ray,
    S3AccessPoint,
    S3Channel,
    S3Prefix,
    SmDdp,
    SmpV1,
    SmpV2,
    Spot,
    TensorBoard,
    Torchrun,
    UltraServers,
    WarmPool,
)
from cdk_sagemaker_training.request.access import check_job_name_prefix

PLACE = S3Prefix(BUCKET, "some/")
IMPORTED: Any = SimpleNamespace(file_system_id="fs-0123456789abcdef0")
ACCESS_POINT = "arn:aws:s3:us-east-1:123456789012:accesspoint/images"
LOSS = DebuggerRule("Loss", RULES_IMAGE)
GPU = InstanceGroup("ml.g5.xlarge")
CPU = InstanceGroup("ml.c5.xlarge")
P4D = InstanceGroup("ml.p4d.24xlarge", 2)
QUOTED = '-x NAME="a b"'
OPTIONS = "custom_mpi_options must be options of mpirun separated by spaces, without quotes"
WEIGHT = "a number of at least 0 and at most 1"
TRAINS_ON = "instance_type must be a type that SageMaker trains on, like 'ml.m5.xlarge'"
OWN = "ray_cluster/ray_cluster.py"


def groups(names: Any, train: Any = None, train_group: Any = "dnn_group") -> HeterogeneousJob:
    return HeterogeneousJob(names, train or DataParallelJob(GPU), train_group)


def on(instance_type: str, launcher: Any) -> Callable[[], Any]:
    return lambda: DataParallelJob(InstanceGroup(instance_type), launcher)


def native(name: str, value: Any) -> Callable[[], Any]:
    return lambda: NativeParallelism(**{name: value})


def ray(script: str) -> Callable[[], Any]:
    return lambda: Ray(script)


def channel(**props: Any) -> Any:
    return S3Channel(BUCKET, "images/", **props)


def manifest(**props: Any) -> Any:
    return S3Channel(BUCKET, "train.manifest", **{"objects": PLACE, **props})


# Each: what breaks a rule, how its message begins, and how it ends.
CONSTRUCTORS: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: S3Prefix(BUCKET, "/models"), "prefix must be how keys in the bucket begin", "got '/models'"),
    (lambda: S3Prefix(BUCKET, "s3://b/models"), "prefix must be how keys in the bucket begin", "got 's3://b/models'"),
    (lambda: S3Prefix(BUCKET, "models*"), "prefix must not contain '*', '?' or '${'", "got 'models*'"),
    (
        lambda: S3Prefix(BUCKET, "${aws:username}/"),
        "prefix must not contain '*', '?' or '${'",
        "got '${aws:username}/'",
    ),
    (lambda: channel(distribution="Sharded"), "distribution must be one of 'FullyReplicated'", "got 'Sharded'"),
    (lambda: channel(input_mode="file"), "input_mode must be one of 'File', 'FastFile', 'Pipe'", "got 'file'"),
    (lambda: channel(data_type="Manifest"), "data_type must be one of 'S3Prefix', 'ManifestFile'", "got 'Manifest'"),
    (lambda: channel(compression="gzip"), "compression must be one of 'Gzip'", "got 'gzip'"),
    (lambda: channel(record_wrapper="Raw"), "record_wrapper must be one of 'RecordIO'", "got 'Raw'"),
    (lambda: channel(accept_eula="yes"), "accept_eula must be True or False", "got 'yes'"),
    (lambda: channel(content_type=""), "content_type must be text", "got ''"),
    (lambda: channel(groups="data_group"), "groups must be a list", "got 'data_group'"),
    (lambda: channel(groups=[]), "groups must list names of instance groups", "got []"),
    (
        lambda: channel(attribute_names=["a"]),
        "attribute_names must be left out of a channel that is not a",
        "got ['a']",
    ),
    (lambda: channel(objects=PLACE), "objects must be left out of a channel that is not a manifest", f"got {PLACE!r}"),
    (
        lambda: manifest(data_type="ManifestFile", objects=None),
        "objects must be the location of the objects that a manifest lists",
        "got None for 'train.manifest'",
    ),
    (
        lambda: manifest(data_type="ManifestFile", attribute_names=["a"]),
        "attribute_names must be left out of a channel whose data_type is not 'AugmentedManifestFile'",
        "got ['a']",
    ),
    (
        lambda: manifest(data_type="AugmentedManifestFile", input_mode="Pipe"),
        "attribute_names must list attributes of an augmented manifest",
        "got None",
    ),
    (
        lambda: manifest(data_type="AugmentedManifestFile", input_mode="Pipe", attribute_names="label"),
        "attribute_names must be a list",
        "got 'label'",
    ),
    (
        lambda: manifest(data_type="AugmentedManifestFile", input_mode="FastFile", attribute_names=["label"]),
        "data_type must come with input_mode='Pipe'",
        "got 'AugmentedManifestFile' with 'FastFile'",
    ),
    (lambda: channel(compression="Gzip"), "compression must come with input_mode='Pipe'", "got 'Gzip' with 'File'"),
    (
        lambda: channel(record_wrapper="RecordIO", input_mode="FastFile"),
        "record_wrapper must come with input_mode='Pipe'",
        "got 'RecordIO' with 'FastFile'",
    ),
    (lambda: channel(shuffle_seed=0.5), "shuffle_seed must be a whole number", "got 0.5"),
    (lambda: Spot(PLACE, 7200, "checkpoints"), "local_path must be an absolute path", "got 'checkpoints'"),
    (lambda: Spot(PLACE, 0), "max_wait must be a Duration or whole seconds", "got 0"),
    (lambda: Spot(PLACE, Duration.millis(1500)), "max_wait must be a Duration or whole seconds", "got 1.5 seconds"),
    (lambda: WarmPool(float("nan")), "keep_alive must be a Duration or a whole number", "got nan"),
    (lambda: WarmPool(7 * 3600), "keep_alive must be at most 6 hours", "got 25200 seconds"),
    (lambda: WarmPool(0.5), "keep_alive must be a Duration or a whole number", "got 0.5"),
    (lambda: FsxLustreChannel(IMPORTED), "mount_name must be set for a file system that was imported", "got None"),
    (lambda: FsxLustreChannel(LUSTRE, "images"), "directory must be an absolute path", "got 'images'"),
    (lambda: EfsChannel(EFS, ""), "directory must be an absolute path", "got ''"),
    (lambda: EfsChannel(EFS, read_only=0), "read_only must be True or False", "got 0"),  # type: ignore[arg-type]
    (lambda: DebuggerRule("", RULES_IMAGE), "name must be text", "got ''"),
    (lambda: DebuggerRule("Loss", ""), "evaluator_image must be text", "got ''"),
    (lambda: DebuggerRule("L", RULES_IMAGE, local_path="a"), "local_path must be an absolute path", "got 'a'"),
    (lambda: Debugger(PLACE, local_path="tensors"), "local_path must be an absolute path", "got 'tensors'"),
    (lambda: Profiler(interval_milliseconds=250), "interval_milliseconds must be one of 100, 200, 500", "got 250"),
    (lambda: Profiler(disable=True, rules=[LOSS]), "disable must be left out with any other argument", ""),
    (lambda: Profiler(disable="yes"), "disable must be True or False", "got 'yes'"),  # type: ignore[arg-type]
    (lambda: TensorBoard(PLACE, "runs"), "local_path must be an absolute path", "got 'runs'"),
    (lambda: Experiment(), "experiment_name or another name must be set", "got none"),
    (lambda: Mlflow("digits"), "resource_arn must be of a tracking server or app of MLflow", "got 'digits'"),
    (lambda: UltraServers([]), "counts must be machines on each UltraServer, at least 1", "got []"),
    (lambda: UltraServers({"us-1": 0}), "counts must be machines on each UltraServer", "got {'us-1': 0}"),
    (lambda: UltraServers([1], multiple_jobs=1), "multiple_jobs must be True or False", "got 1"),  # type: ignore[arg-type]
    (
        lambda: InstanceGroup("g5.xlarge"),
        "instance_type must be a SageMaker training type, like 'ml.g5.xlarge'",
        "'g5.xlarge'",
    ),
    (lambda: InstanceGroup("ml.m5.xlarg"), TRAINS_ON, "got 'ml.m5.xlarg'"),
    (lambda: InstanceGroup("ml.g5.xlarge", -1), "instance_count must be a whole number of at least 1", "got -1"),
    (lambda: InstanceGroup("ml.g5.xlarge", 0), "instance_count must be a whole number of at least 1", "got 0"),
    (lambda: Torchrun(0), "processes_per_host must be a whole number of at least 1", "got 0"),
    (
        lambda: HeterogeneousJob({"a": CPU}, DataParallelJob(GPU), "dnn", order=["dnn"]),
        "order must list each group of the job once",
        "got ['dnn']",
    ),
    (lambda: Spot(PLACE), "max_wait must be set for spot machines", "got None"),
    (lambda: Spot(None, 7200, "/opt/ml/a"), "local_path must be left out of spot without check", "got '/opt/ml/a'"),
    (lambda: S3AccessPoint("images"), "arn must be that of an access point of S3", "got 'images'"),
    (
        lambda: S3AccessPoint(ACCESS_POINT, alias=""),
        "alias must be text",
        "got ''",
    ),
    (lambda: groups({"": CPU}), "groups must have names of 1 to 64 characters", "got ''"),
    (lambda: groups({"a": CPU}, train_group="a\n"), "train_group must have names of 1 to 64 characters", "got 'a\\n'"),
    (lambda: groups({"a": CPU}, train_group="a"), "train_group must not be one of groups", "got 'a'"),
    (
        lambda: groups(dict.fromkeys("abcde", CPU)),
        "groups must be at most 4 beside train_group, 5 in all",
        "'dnn_group']",
    ),
    (lambda: groups({"a": CPU}, ON_GROUPS), "train must be a job on one group", "got HeterogeneousJob"),
    (lambda: check_job_name_prefix("a_b"), "job_name_prefix must be 1 to 26 letters, digits and hyphens", "got 'a_b'"),
    (lambda: InstanceGroup("ml.inf1.xlarge"), "instance_type must be a type that SageMaker trains on", ""),
    (lambda: Mpi(0), "processes_per_host must be a whole number of at least 1", "got 0"),
    (on("ml.g5.12xlarge", Mpi(8)), "processes_per_host must be at most the 4 accelerators of ml.g5.12xlarge", "got 8"),
    (lambda: Mpi(custom_mpi_options=QUOTED), OPTIONS, f"got {QUOTED!r}"),
    (lambda: SmDdp(custom_mpi_options=QUOTED), OPTIONS, f"got {QUOTED!r}"),
    (
        lambda: SmDdp("torchrun", "-x A=1"),
        "custom_mpi_options must be left out with launch_by='torchrun'",
        "got '-x A=1'",
    ),
    (lambda: SmDdp("slurm"), "launch_by must be one of 'mpi', 'torchrun'", "got 'slurm'"),  # type: ignore[arg-type]
    (
        on("ml.g5.48xlarge", SmDdp()),
        "launcher must be one that ml.g5.48xlarge supports",
        "got SmDdp(launch_by='mpi'), which supports ml.p3.16xlarge, ml.p3dn.24xlarge, ml.p4d.24xlarge, ml.p4de.24xlarge",
    ),
    *(
        (native(name, degree), f"{name} must be a whole number of at least 1", f"got {degree}")
        for name in ("data_shard", "data_replicate", "tensor", "pipeline", "microbatches")
        for degree in (0, -2)
    ),
    *(
        (native(name, "full"), f"{name} must be True or False", "got 'full'")
        for name in ("activation_checkpointing", "activation_offloading", "cpu_offload")
    ),
    (native("schedule", "zero-bubble"), "schedule must be one of 'gpipe', '1f1b', 'interleaved'", "got 'zero-bubble'"),
    (native("precision", "fp8"), "precision must be one of 'fp32', 'bf16', 'fp16'", "got 'fp8'"),
    (
        lambda: NativeParallelism(pipeline=2, microbatches=5, schedule="interleaved"),
        "microbatches must divide into microbatches // pipeline rounds",
        "",
    ),
    (lambda: SmpV1({"partitions": 2, "memory_weight": 1.5}), f"memory_weight must be {WEIGHT}", "got 1.5"),
    (lambda: SmpV1({"microbatch": 1}), "parameters must be those of SMP v1", ""),
    (lambda: SmpV2.from_parameters({"foo": 1}), "parameters must be those of SMP v2", ""),
    (
        lambda: ModelParallelJob(P4D, SmpV1({"partitions": 3, "tensor_parallel_degree": 2, "ddp": True})),
        "parallelism must have degrees whose product divides 16 processes",
        "got pipeline_parallel_degree 3 x tensor_parallel_degree 2 = 6",
    ),
    (
        lambda: ModelParallelJob(P4D, SmpV1({"partitions": 2, "ddp": True}), processes_per_host=16),
        "processes_per_host must be at most the 8 accelerators of ml.p4d.24xlarge",
        "got 16",
    ),
    (lambda: SmpV2.image("eu-south-1"), "region must be one that AWS has a container with SMP for", "got 'eu-south-1'"),
    (
        lambda: SmpV2.image("us-east-1", pytorch_version="2.8.0"),
        "pytorch_version must be one that AWS has",
        "got '2.8.0'",
    ),
    *(
        (ray(script), "script must be a Python file below /opt/ml/code", f"got {script!r}")
        for script in ("", "train", "train.sh", "/train.py", "../train.py", "-c.py", "a/../b.py", "my train.py")
    ),
    (ray(OWN), "script must be the one that trains", f"got the launcher's own {OWN!r}"),
]
