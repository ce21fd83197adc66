"""Requests that break a rule of the library or of the service model, and how each message begins and ends."""

from __future__ import annotations

from typing import Any

from whole_requests import (
    BUCKET,
    EFS,
    KEY,
    NETWORK,
    ON_CPUS,
    ON_GPUS,
    ON_GROUPS,
    ON_ULTRASERVERS,
    PLAN,
    RULES_IMAGE,
    image_at,
    key_at,
    network_of,
    size_of,
)

from cdk_sagemaker_training import (
    CompiledJob,
    Debugger,
    DebuggerRule,
    EfsChannel,
    Experiment,
    InstanceGroup,
    Mlflow,
    PrivateRegistry,
    Profiler,
    S3Channel,
    S3Prefix,
    Spot,
    TrainingCompiler,
    UltraServers,
    WarmPool,
)

PLACE = S3Prefix(BUCKET, "some/")
SPOT = Spot(PLACE, max_wait=7200)
LOSS = DebuggerRule("Loss", RULES_IMAGE)
GPU = InstanceGroup("ml.g5.xlarge")


def channel(**props: Any) -> Any:
    return S3Channel(BUCKET, "images/", **props)


# Each: the job, what else is said of it, how the message begins, and how it ends.
REQUESTS: list[tuple[Any, dict[str, Any], str, str]] = [
    (
        ON_CPUS,
        {"max_runtime": 28 * 86_400 + 1},
        "max_runtime must be between 1 second and 28 days",
        "got 2419201 seconds",
    ),
    (ON_CPUS, {"channels": {"a": PLACE}}, "channels['a'] must be a channel", f"got {PLACE!r}"),
    (
        ON_CPUS,
        {"channels": {"a": EfsChannel(EFS)}},
        "network must be set for a channel on a file system",
        "got None with channels['a']",
    ),
    (
        ON_GROUPS,
        {"channels": {"a": channel(groups=["data_group"]), "b": EfsChannel(EFS)}, "network": network_of(NETWORK)},
        "channels['a'].groups must be left out with a channel on a file system",
        "got channels['b']",
    ),
    (
        ON_GROUPS,
        {"channels": {"a": channel(groups=["data"])}},
        "channels['a'].groups must be instance groups of the job",
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
        "spot.max_wait must be at least max_runtime, since it includes the time that the job runs",
        "got 3599 seconds",
    ),
    (ON_CPUS, {"volume_size": size_of(0)}, "volume_size must be at least 1 GiB", "got 0 GiB"),
    (
        ON_GPUS,
        {"volume_key": key_at(KEY)},
        "volume_key must be left out of a job on machines with local disks",
        "got a key with 'ml.g5.xlarge'",
    ),
    (ON_GROUPS, {"volume_key": key_at(KEY)}, "volume_key must be left out", "got a key with 'ml.g5.xlarge'"),
    (
        ON_GPUS,
        {"training_plan": PLAN, "spot": SPOT},
        "training_plan must be left out of a job on spot machines",
        f"got {PLAN!r} with spot",
    ),
    (
        ON_GPUS,
        {"ultra_servers": UltraServers([2])},
        "ultra_servers must be left out of a job on machines that are not in UltraServers",
        "got 'ml.g5.xlarge'",
    ),
    (
        ON_ULTRASERVERS,
        {"ultra_servers": UltraServers([18, 1])},
        "ultra_servers must place no more machines than the job has",
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
        "network must be set for an image in a private registry",
        "got None with private_registry",
    ),
    (
        ON_CPUS,
        {"debugger": Debugger(PLACE, rules=[LOSS]), "profiler": Profiler(rules=[LOSS])},
        "rules must have distinct names",
        "got 'Loss' twice",
    ),
    (
        CompiledJob(GPU, compiler=TrainingCompiler()),
        {"profiler": Profiler(interval_milliseconds=500)},
        "profiler must agree with that of the job's compiler",
        "",
    ),
    (
        ON_CPUS,
        {"tags": {"aws:team": "vision"}},
        "tags must not begin with 'aws:', which is reserved by AWS",
        "got 'aws:team'",
    ),
    (ON_CPUS, {"output_compression": "ZIP"}, "output_compression must be one of 'GZIP', 'NONE'", "got 'ZIP'"),
    (
        ON_CPUS,
        {"container_entrypoint": "python"},
        "container_entrypoint must be a list",
        "got 'python'",
    ),
    (ON_CPUS, {"container_arguments": [1]}, "container_arguments[0] must be text", "got 1"),
    (ON_CPUS, {"network_isolation": "yes"}, "network_isolation must be True or False", "got 'yes'"),
    (ON_CPUS, {"inter_container_encryption": 1}, "inter_container_encryption must be True or False", "got 1"),
    (ON_CPUS, {"infra_check": None}, "infra_check must be True or False", "got None"),
    (ON_CPUS, {"remote_debug": "no"}, "remote_debug must be True or False", "got 'no'"),
    (ON_CPUS, {"session_tag_chaining": 0}, "session_tag_chaining must be True or False", "got 0"),
    (ON_CPUS, {"metric_definitions": {"a": []}}, "metric_definitions['a'] must be a regular expression or", "got []"),
    (ON_CPUS, {"hyperparameters": {"a": float("nan")}}, "hyperparameters['a'] must be a finite number", "got nan"),
    (ON_CPUS, {"hyperparameters": {"a": [float("inf")]}}, "hyperparameters['a'][0] must be a finite number", "got inf"),
    (ON_CPUS, {"environment": {"a": "\ud800"}}, "environment must be text that UTF-8 can encode", "got '\\ud800'"),
    (ON_CPUS, {"metric_definitions": {"a": "("}}, "metric_definitions['a'] must be a regular expression", "position 0"),
    (ON_CPUS, {"hyperparameters": {"a": b"x"}}, "hyperparameters['a'] must be text, a number, a bool", "got b'x'"),
    (ON_CPUS, {"hyperparameters": {"a": {1: 2}}}, "hyperparameters['a'] must have keys of text", "got 1 in it"),
    (
        ON_CPUS,
        {"hyperparameters": {"a.$": "x"}},
        "hyperparameters (HyperParameters) must have no key that ends in '.$'",
        "got 'a.$'",
    ),
    (
        ON_CPUS,
        {"debugger": Debugger(PLACE, hook_parameters={"a.$": "x"})},
        "debugger (DebugHookConfig.HookParameters) must have no key that ends in '.$'",
        "got 'a.$'",
    ),
    (
        CompiledJob(GPU),
        {"environment": {"TRAINING_COMPILER": "xla"}},
        "environment must not contain 'TRAINING_COMPILER', which the job sets to 'inductor'",
        "got 'xla'",
    ),
    (ON_CPUS, {"hyperparameters": {"a": "x" * 2501}}, "hyperparameters['a'] must be at most 2500 characters", "'"),
    (ON_CPUS, {"hyperparameters": {f"h{n}": n for n in range(101)}}, "hyperparameters must be at most 100", "got 101"),
    (
        ON_GPUS,
        {"hyperparameters": {"sagemaker_torch_distributed_enabled": "false"}},
        "hyperparameters must not contain 'sagemaker_torch_distributed_enabled', which the job sets",
        "got 'false'",
    ),
    # From here on the service model's own rules, in the words of the props.
    (ON_CPUS, {"output_key": key_at("a b")}, "output_key (OutputDataConfig.KmsKeyId) must match", "got 'a b'"),
    (ON_CPUS, {"volume_key": key_at("a b")}, "volume_key (ResourceConfig.VolumeKmsKeyId) must match", "got 'a b'"),
    (ON_CPUS, {"training_plan": "spring"}, "training_plan (ResourceConfig.TrainingPlanArn) must be at least 50", ""),
    (ON_CPUS, {"maximum_retry_attempts": 31}, "maximum_retry_attempts (RetryStrategy.MaximumRetryAttempts) must", "31"),
    (ON_CPUS, {"max_pending": 60}, "max_pending (StoppingCondition.MaxPendingTimeInSeconds) must be", "got 60"),
    (ON_CPUS, {"environment": {"1A": "x"}}, "environment (Environment.1A) must match", "got '1A'"),
    (ON_CPUS, {"environment": {"A": 1}}, "environment['A'] must be text", "got 1"),
    (
        ON_CPUS,
        {"image": image_at("x" * 256)},
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
    (
        ON_CPUS,
        {"tags": {f"t{n}": "" for n in range(51)}},
        "tags must be at most 49, since SageMaker allows 50",
        "got 51",
    ),
    (
        ON_CPUS,
        {"network": network_of({**NETWORK, "Subnets": ["subnet-1"] * 17})},
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
