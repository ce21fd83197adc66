"""The library's rules, each with what it says to whom breaks it: the prop, the rule, an example, and what it got."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from whole_requests import (
    BUCKET,
    EFS,
    KEY,
    LUSTRE,
    NETWORK,
    ON_CPUS,
    ON_GPUS,
    ON_GROUPS,
    ON_ULTRASERVERS,
    PLAN,
    RULES_IMAGE,
    request_of,
)

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    Debugger,
    DebuggerRule,
    EfsChannel,
    Experiment,
    FsxLustreChannel,
    HeterogeneousJob,
    InstanceGroup,
    Mlflow,
    PrivateRegistry,
    Profiler,
    S3AccessPoint,
    S3Channel,
    S3Prefix,
    Spot,
    TensorBoard,
    Torchrun,
    TrainingCompiler,
    UltraServers,
    WarmPool,
)
from cdk_sagemaker_training.request import check_job_name_prefix

PLACE = S3Prefix(BUCKET, "some/")
SPOT = Spot(PLACE, max_wait=7200)
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
    (lambda: S3Prefix(BUCKET, "models*"), "prefix must be without '*', '?' and '${'", "got 'models*'"),
    (
        lambda: S3Prefix(BUCKET, "${aws:username}/"),
        "prefix must be without '*', '?' and '${'",
        "got '${aws:username}/'",
    ),
    (lambda: channel(distribution="Sharded"), "distribution must be one of 'FullyReplicated'", "got 'Sharded'"),
    (lambda: channel(input_mode="file"), "input_mode must be one of 'File', 'FastFile', 'Pipe'", "got 'file'"),
    (lambda: channel(data_type="Manifest"), "data_type must be one of 'S3Prefix', 'ManifestFile'", "got 'Manifest'"),
    (lambda: channel(compression="gzip"), "compression must be one of 'Gzip'", "got 'gzip'"),
    (lambda: channel(record_wrapper="Raw"), "record_wrapper must be one of 'RecordIO'", "got 'Raw'"),
    (lambda: channel(accept_eula="yes"), "accept_eula must be True or False", "got 'yes'"),
    (lambda: channel(content_type=""), "content_type must be text, like 'application/x-parquet'", "got ''"),
    (lambda: channel(groups="data_group"), "groups must be a list, like ['data_group']", "got 'data_group'"),
    (lambda: channel(groups=[]), "groups must list names of instance groups", "got []"),
    (lambda: channel(attribute_names=["a"]), "attribute_names must be left out of a channel that is no", "got ['a']"),
    (lambda: channel(objects=PLACE), "objects must be left out of a channel that is no manifest", f"got {PLACE!r}"),
    (
        lambda: manifest(data_type="ManifestFile", objects=None),
        "objects must say where the objects of a manifest lie",
        "got None for 'train.manifest'",
    ),
    (
        lambda: manifest(data_type="ManifestFile", attribute_names=["a"]),
        "attribute_names must be left out of a channel whose data_type is not 'AugmentedManifestFile'",
        "got ['a']",
    ),
    (
        lambda: manifest(data_type="AugmentedManifestFile", input_mode="Pipe"),
        "attribute_names must name what is read of an augmented manifest, like ['source-ref', 'label']",
        "got None",
    ),
    (
        lambda: manifest(data_type="AugmentedManifestFile", input_mode="Pipe", attribute_names="label"),
        "attribute_names must be a list, like ['source-ref', 'label']",
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
    (lambda: channel(shuffle_seed=0.5), "shuffle_seed must be a whole number, like 2", "got 0.5"),
    (lambda: Spot(PLACE, 7200, "checkpoints"), "local_path must be an absolute path", "got 'checkpoints'"),
    (lambda: Spot(PLACE, 0), "max_wait must be a Duration or whole seconds", "got 0"),
    (lambda: WarmPool(7 * 3600), "keep_alive must be at most 6 hours", "got 25200 seconds"),
    (lambda: WarmPool(0.5), "keep_alive must be a Duration or a whole number", "got 0.5"),
    (lambda: FsxLustreChannel(IMPORTED), "mount_name must be given of a file system that was imported", "got None"),
    (lambda: FsxLustreChannel(LUSTRE, "images"), "directory must be an absolute path, like '/images'", "got 'images'"),
    (lambda: EfsChannel(EFS, ""), "directory must be an absolute path, like '/images'", "got ''"),
    (lambda: EfsChannel(EFS, read_only=0), "read_only must be True or False", "got 0"),  # type: ignore[arg-type]
    (lambda: DebuggerRule("", RULES_IMAGE), "name must be text, like 'LossNotDecreasing'", "got ''"),
    (lambda: DebuggerRule("Loss", ""), "evaluator_image must be text, like '503895931360.dkr", "got ''"),
    (lambda: DebuggerRule("L", RULES_IMAGE, local_path="a"), "local_path must be an absolute path", "got 'a'"),
    (lambda: Debugger(PLACE, local_path="tensors"), "local_path must be an absolute path", "got 'tensors'"),
    (lambda: Profiler(interval_milliseconds=250), "interval_milliseconds must be one of 100, 200, 500", "got 250"),
    (lambda: Profiler(disable=True, rules=[LOSS]), "disable must be left out of a profiler that is to do", ""),
    (lambda: Profiler(disable="yes"), "disable must be True or False", "got 'yes'"),  # type: ignore[arg-type]
    (lambda: TensorBoard(PLACE, "runs"), "local_path must be an absolute path", "got 'runs'"),
    (lambda: Experiment(), "experiment_name must be given, or another name, like 'digits'", "got none"),
    (lambda: Mlflow("digits"), "resource_arn must be of a tracking server or app of MLflow", "got 'digits'"),
    (lambda: UltraServers([]), "counts must be machines on each UltraServer, at least 1", "got []"),
    (lambda: UltraServers({"us-1": 0}), "counts must be machines on each UltraServer", "got {'us-1': 0}"),
    (lambda: UltraServers([1], multiple_jobs=1), "multiple_jobs must be True or False", "got 1"),  # type: ignore[arg-type]
    (
        lambda: InstanceGroup("g5.xlarge"),
        "instance_type must be a SageMaker training type like 'ml.g5.x",
        "'g5.xlarge'",
    ),
    (lambda: InstanceGroup("ml.g5.xlrge"), "instance_type must be a type that SageMaker trains on, like 'ml.g5.x", ""),
    (lambda: InstanceGroup("ml.g5.xlarge", 0), "instance_count must be a whole number of at least 1", "got 0"),
    (lambda: Torchrun(0), "processes_per_host must be a whole number of at least 1", "got 0"),
    (
        lambda: HeterogeneousJob({"a": CPU}, DataParallelJob(GPU), "dnn", order=["dnn"]),
        "order must list each group of the job once, like ['dnn', 'a']",
        "got ['dnn']",
    ),
    (lambda: Spot(PLACE), "max_wait must be given of spot machines, like Duration.hours(12)", "got None"),
    (lambda: Spot(None, 7200, "/opt/ml/a"), "local_path must be left out where spot says no check", "got '/opt/ml/a'"),
    (lambda: S3AccessPoint("images"), "arn must be that of an access point of S3, like 'arn:aws:s3:us", "got 'images'"),
    (
        lambda: S3AccessPoint(ACCESS_POINT, alias=""),
        "alias must be text, like 'images-hrzrlukc5m36ft7okagglf",
        "got ''",
    ),
    (lambda: groups({"": CPU}), "groups must name groups in 1 to 64 characters", "got ''"),
    (lambda: groups({"a": CPU}, train_group="a\n"), "train_group must name groups in 1 to 64 characters", "got 'a\\n'"),
    (lambda: groups({"a": CPU}, train_group="a"), "train_group must not be one of groups", "got 'a'"),
    (
        lambda: groups(dict.fromkeys("abcde", CPU)),
        "groups must be at most 4 beside train_group, 5 in all",
        "'dnn_group']",
    ),
    (lambda: groups({"a": CPU}, ON_GROUPS), "train must be a job on one group", "got HeterogeneousJob"),
    (lambda: check_job_name_prefix("a_b"), "job_name_prefix must be 1 to 26 letters, digits and hyphens", "got 'a_b'"),
]
# Each: the job, what else is said of it, how the message begins, and how it ends.
REQUESTS: list[tuple[Any, dict[str, Any], str, str]] = [
    (ON_CPUS, {"max_runtime_seconds": 0}, "max_runtime must be between 1 second and 28 days", "got 0 seconds"),
    (ON_CPUS, {"channels": {"a": PLACE}}, "channels['a'] must be a channel, like S3Channel(bucket", f"got {PLACE!r}"),
    (
        ON_CPUS,
        {"channels": {"a": EfsChannel(EFS)}},
        "network must be given for a channel on a file system",
        "got None with channels['a']",
    ),
    (
        ON_GROUPS,
        {"channels": {"a": channel(groups=["data_group"]), "b": EfsChannel(EFS)}, "vpc_config": NETWORK},
        "channels['a'].groups must be left out beside a channel on a file system",
        "got channels['b']",
    ),
    (
        ON_GROUPS,
        {"channels": {"a": channel(groups=["data"])}},
        "channels['a'].groups must be instance groups of the job, like 'data_group'",
        "got 'data'",
    ),
    (
        ON_CPUS,
        {"channels": {"a": channel(groups=["data"])}},
        "channels['a'].groups must be left out of a job without instance groups",
        "got 'data'",
    ),
    (ON_CPUS, {"channels": {f"c{n}": channel() for n in range(21)}}, "channels must be at most 20", "got 21"),
    (ON_CPUS, {"channels": {"a b": channel()}}, "channels (InputDataConfig.0.ChannelName) must match", "got 'a b'"),
    (
        ON_GROUPS,
        {"warm_pool": WarmPool(60)},
        "warm_pool must be left out of a job with instance groups",
        "'dnn_group']",
    ),
    (ON_CPUS, {"warm_pool": WarmPool(60), "spot": SPOT}, "warm_pool must be left out of a job on spot", "with spot"),
    (
        ON_CPUS,
        {"spot": Spot(PLACE, 3599)},
        "spot.max_wait must be at least max_runtime, since it counts the running too, like Duration.seconds(3600)",
        "got 3599 seconds",
    ),
    (ON_CPUS, {"volume_size_gb": 0}, "volume_size must be at least 1 GiB, like Size.gibibytes(30)", "got 0 GiB"),
    (
        ON_GPUS,
        {"volume_kms_key": KEY},
        "volume_key must be left out of a job on machines with disks of their own",
        "got a key with 'ml.g5.xlarge'",
    ),
    (ON_GROUPS, {"volume_kms_key": KEY}, "volume_key must be left out", "got a key with 'ml.g5.xlarge'"),
    (
        ON_GPUS,
        {"training_plan": PLAN, "spot": SPOT},
        "training_plan must be left out of a job on spot machines",
        f"got {PLAN!r} with spot",
    ),
    (
        ON_GPUS,
        {"ultra_servers": UltraServers([2])},
        "ultra_servers must be left out of a job on other machines than those of UltraServers",
        "got 'ml.g5.xlarge'",
    ),
    (
        ON_ULTRASERVERS,
        {"ultra_servers": UltraServers([18, 1])},
        "ultra_servers must place no more machines than the job has, like UltraServers([18])",
        "got 19",
    ),
    (
        ON_CPUS,
        {"remote_debug": True, "network_isolation": True},
        "remote_debug must be left out of a job with network isolation",
        "got True with network_isolation=True",
    ),
    (
        ON_CPUS,
        {"private_registry": PrivateRegistry()},
        "network must be given for an image in a private registry",
        "got None with private_registry",
    ),
    (
        ON_CPUS,
        {"debugger": Debugger(PLACE, rules=[LOSS]), "profiler": Profiler(rules=[LOSS])},
        "rules must each have a name of their own",
        "got 'Loss' twice",
    ),
    (
        CompiledJob(GPU, compiler=TrainingCompiler()),
        {"profiler": Profiler(interval_milliseconds=500)},
        "profiler must be left to a job that decides it",
        "",
    ),
    (
        ON_CPUS,
        {"tags": {"aws:team": "vision"}},
        "tags must not begin with 'aws:', which is AWS's own",
        "got 'aws:team'",
    ),
    (ON_CPUS, {"output_compression": "ZIP"}, "output_compression must be one of 'GZIP', 'NONE'", "got 'ZIP'"),
    (
        ON_CPUS,
        {"container_entrypoint": "python"},
        "container_entrypoint must be a list, like ['python', 'train.py']",
        "got 'python'",
    ),
    (ON_CPUS, {"container_arguments": [1]}, "container_arguments[0] must be text", "got 1"),
    (ON_CPUS, {"network_isolation": "yes"}, "network_isolation must be True or False", "got 'yes'"),
    (ON_CPUS, {"inter_container_encryption": 1}, "inter_container_encryption must be True or False", "got 1"),
    (ON_CPUS, {"infra_check": None}, "infra_check must be True or False", "got None"),
    (ON_CPUS, {"remote_debug": "no"}, "remote_debug must be True or False", "got 'no'"),
    (ON_CPUS, {"session_tag_chaining": 0}, "session_tag_chaining must be True or False", "got 0"),
    (
        ON_CPUS,
        {"metric_definitions": {"a": "a [0-9]"}},
        "metric_definitions['a'] must have a group around",
        "'a [0-9]'",
    ),
    (ON_CPUS, {"metric_definitions": {"a": []}}, "metric_definitions['a'] must be a regular expression or", "got []"),
    (ON_CPUS, {"metric_definitions": {"a": ["(a)", "a"]}}, "metric_definitions['a'] must have a group", "got 'a'"),
    (ON_CPUS, {"metric_definitions": {"a": "("}}, "metric_definitions['a'] must be a regular expression", "position 0"),
    (ON_CPUS, {"hyperparameters": {"a": b"x"}}, "hyperparameters['a'] must be text, a number, a bool", "got b'x'"),
    (ON_CPUS, {"hyperparameters": {"a": {1: 2}}}, "hyperparameters['a'] must have keys of text", "got 1 in it"),
    (
        ON_CPUS,
        {"hyperparameters": {"a.$": "x"}},
        "hyperparameters (HyperParameters) must have no name that ends in '.$'",
        "got 'a.$'",
    ),
    (
        ON_CPUS,
        {"debugger": Debugger(PLACE, hook_parameters={"a.$": "x"})},
        "debugger (DebugHookConfig.HookParameters) must have no name that ends in '.$'",
        "got 'a.$'",
    ),
    (
        CompiledJob(GPU),
        {"environment": {"TRAINING_COMPILER": "xla"}},
        "environment must leave 'TRAINING_COMPILER' to the job, which sets it to 'inductor'",
        "got 'xla'",
    ),
    (ON_CPUS, {"hyperparameters": {"a": "x" * 2501}}, "hyperparameters['a'] must be at most 2500 characters", "'"),
    (ON_CPUS, {"hyperparameters": {f"h{n}": n for n in range(101)}}, "hyperparameters must be at most 100", "got 101"),
    (
        ON_GPUS,
        {"hyperparameters": {"sagemaker_torch_distributed_enabled": "false"}},
        "hyperparameters must leave 'sagemaker_torch_distributed_enabled' to the job",
        "like launcher=Torchrun()",
    ),
    # From here on the service model's own rules, in the words of the props.
    (ON_CPUS, {"output_kms_key": "a b"}, "output_key (OutputDataConfig.KmsKeyId) must match", "got 'a b'"),
    (ON_CPUS, {"volume_kms_key": "a b"}, "volume_key (ResourceConfig.VolumeKmsKeyId) must match", "got 'a b'"),
    (ON_CPUS, {"training_plan": "spring"}, "training_plan (ResourceConfig.TrainingPlanArn) must be at least 50", ""),
    (ON_CPUS, {"maximum_retry_attempts": 31}, "maximum_retry_attempts (RetryStrategy.MaximumRetryAttempts) must", "31"),
    (ON_CPUS, {"max_pending_seconds": 60}, "max_pending (StoppingCondition.MaxPendingTimeInSeconds) must be", "got 60"),
    (ON_CPUS, {"environment": {"1A": "x"}}, "environment (Environment.1A) must match", "got '1A'"),
    (ON_CPUS, {"environment": {"A": 1}}, "environment['A'] must be text", "got 1"),
    (
        ON_CPUS,
        {"image_uri": "x" * 256},
        "image (AlgorithmSpecification.TrainingImage) must be at most 255",
        "256 characters",
    ),
    (ON_CPUS, {"role_arn": "x" * 20}, "role (RoleArn) must match", f"got '{'x' * 20}'"),
    (
        ON_CPUS,
        {"experiment": Experiment("a b")},
        "experiment (ExperimentConfig.ExperimentName) must match",
        "got 'a b'",
    ),
    (
        ON_CPUS,
        {"debugger": Debugger(PLACE, collections={f"c{n}": {} for n in range(21)})},
        "debugger (DebugHookConfig.CollectionConfigurations) must be at most 20",
        "got 21 members",
    ),
    (
        ON_CPUS,
        {"debugger": Debugger(PLACE, rules=[DebuggerRule("L", RULES_IMAGE, instance_type="ml.x")])},
        "debugger.rules (DebugRuleConfigurations.0.InstanceType) must be one of",
        "got 'ml.x'",
    ),
    (ON_CPUS, {"tags": {"a": "?"}}, "tags (Tags.0.Value) must match", "got '?'"),
    (ON_CPUS, {"tags": {f"t{n}": "" for n in range(51)}}, "tags (Tags) must be at most 50 members", "got 51 members"),
    (
        ON_CPUS,
        {"vpc_config": {**NETWORK, "Subnets": ["subnet-1"] * 17}},
        "network (VpcConfig.Subnets) must be at most 16 members",
        "got 17 members",
    ),
    (
        ON_CPUS,
        {"metric_definitions": {f"m{n}": "(a)" for n in range(41)}},
        "metric_definitions (AlgorithmSpecification.MetricDefinitions) must be at most 40",
        "got 41 members",
    ),
    (
        ON_CPUS,
        {"mlflow": Mlflow("arn:aws:sagemaker:us-east-1:1:mlflow-app/a")},
        "mlflow (MlflowConfig.MlflowResourceArn) must match",
        "mlflow-app/a'",
    ),
]


def message_of(breaks_a_rule: Callable[[], Any]) -> str:
    with pytest.raises(ValueError) as raised:
        breaks_a_rule()
    return str(raised.value)


@pytest.mark.parametrize(("breaks", "begins", "ends"), CONSTRUCTORS, ids=[row[1] for row in CONSTRUCTORS])
def test_a_value_that_breaks_a_rule_is_refused(breaks: Callable[[], Any], begins: str, ends: str) -> None:
    message = message_of(breaks)
    assert message.startswith(begins)
    assert message.endswith(ends)
    assert ", like " in message or "one of " in message or " like '" in message
    assert ", got " in message


@pytest.mark.parametrize(("job", "props", "begins", "ends"), REQUESTS, ids=[row[2] for row in REQUESTS])
def test_a_request_that_breaks_a_rule_is_refused(job: Any, props: dict[str, Any], begins: str, ends: str) -> None:
    message = message_of(lambda: request_of(job, **props))
    assert message.startswith(begins)
    assert message.endswith(ends)


def test_each_row_is_about_a_rule_of_its_own_and_there_are_more_than_60() -> None:
    rules = {begins for _, begins, _ in CONSTRUCTORS} | {begins for _, _, begins, _ in REQUESTS}
    assert len(rules) >= 60
