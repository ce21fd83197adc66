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
    Profiler,
    S3AccessPoint,
    S3Channel,
    S3Prefix,
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


def groups(names: Any, train: Any = None, train_group: Any = "dnn_group") -> HeterogeneousJob:
    return HeterogeneousJob(names, train or DataParallelJob(GPU), train_group)


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
        "instance_type must be a SageMaker training type",
        "'g5.xlarge'",
    ),
    (lambda: InstanceGroup("ml.g5.xlrge"), "instance_type must be a type that SageMaker trains on", ""),
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
]
