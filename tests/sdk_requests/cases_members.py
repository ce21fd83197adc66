"""Jobs with one member of CreateTrainingJob more than a plain one has, or a few, as AWS's SDK makes them.

What begins with ``loose_`` is what the SDK sends though the service refuses it, or does not do what it says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROLE = "arn:aws:iam::123456789012:role/Training"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1"
REGISTRY_IMAGE = "registry.example.com/team/training:1"
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:credentials"
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
OTHER_KEY = "arn:aws:kms:us-east-1:123456789012:key/abcd1234-12ab-34cd-56ef-1234567890ab"
ACCESS_POINT = "arn:aws:s3:us-east-1:123456789012:accesspoint/images"
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
LUSTRE, EFS = "fs-0123456789abcdef0", "fs-0123456789abcdef1"
RULES_IMAGE = "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest"
NETWORK = {"subnets": ["subnet-1", "subnet-2"], "security_group_ids": ["sg-1"]}
SPOT = {"use_spot_instances": True, "max_run": 3600, "max_wait": 7200, "checkpoint_s3_uri": "s3://bucket/checkpoints/"}
Case = Callable[[Any], Any]


def job(
    inputs: Callable[[], dict[str, Any]] | None = None,
    experiment_config: dict[str, str] | None = None,
    watched: Callable[[], dict[str, Any]] | None = None,
    **props: Any,
) -> Case:
    """A script of one's own on one processor; ``inputs`` and ``watched`` are functions, since they need the SDK."""

    def make(session: Any) -> Any:
        from sagemaker.estimator import Estimator

        plain = {
            "image_uri": IMAGE,
            "role": ROLE,
            "instance_type": "ml.c5.xlarge",
            "instance_count": 2,
            "output_path": "s3://bucket/models/",
            "sagemaker_session": session,
            "disable_profiler": True,
            "debugger_hook_config": False,
        }
        estimator = Estimator(**{**plain, **(watched() if watched else {}), **props})
        return estimator, {"inputs": inputs() if inputs else None, "experiment_config": experiment_config}

    return make


def on_groups(
    distribution: dict[str, Any], *, trains_first: bool = False, alone: bool = False, **channels: Any
) -> Case:
    """On three groups, of which the last trains, or the first, or on one alone; ``channels`` are groups by channels' names."""

    def make(session: Any) -> Any:
        from sagemaker.inputs import TrainingInput
        from sagemaker.instance_group import InstanceGroup
        from sagemaker.pytorch import PyTorch

        data = InstanceGroup("data_group", "ml.c5.18xlarge", 2)
        label = InstanceGroup("label_group", "ml.m5.xlarge", 1)
        train = InstanceGroup("dnn_group", "ml.p4d.24xlarge", 2)
        groups = [train] if alone else [train, data, label] if trains_first else [data, label, train]
        estimator = PyTorch(
            role=ROLE,
            entry_point="train.py",
            source_dir="s3://bucket/job/source/sourcedir.tar.gz",
            image_uri=IMAGE,
            instance_groups=groups,
            hyperparameters={"epochs": 3},
            output_path="s3://bucket/models/",
            sagemaker_session=session,
            disable_profiler=True,
            debugger_hook_config=False,
            # With one group the SDK fills it in by itself.
            distribution=distribution if alone else {**distribution, "instance_groups": [train]},
        )
        inputs = {name: TrainingInput(f"s3://bucket/{name}/", instance_groups=of) for name, of in channels.items()}
        return estimator, {"inputs": inputs or None}

    return make


def s3(name: str = "training/", bucket: str = "bucket", **props: Any) -> Callable[[], dict[str, Any]]:
    def channels() -> dict[str, Any]:
        from sagemaker.inputs import ShuffleConfig, TrainingInput

        seed = props.get("shuffle_seed")
        known = {key: value for key, value in props.items() if key != "shuffle_seed"}
        shuffle = None if seed is None else ShuffleConfig(seed)
        return {"training": TrainingInput(f"s3://{bucket}/{name}", shuffle_config=shuffle, **known)}

    return channels


def file_system(kind: str, id: str, path: str, mode: str = "ro", **props: Any) -> Callable[[], dict[str, Any]]:
    def channels() -> dict[str, Any]:
        from sagemaker.inputs import FileSystemInput

        return {"training": FileSystemInput(id, kind, path, mode, **props)}

    return channels


def debugger() -> dict[str, Any]:
    from sagemaker.debugger import CollectionConfig, DebuggerHookConfig, Rule

    rule = Rule.custom(
        name="Loss",
        image_uri=RULES_IMAGE,
        instance_type="ml.t3.medium",
        volume_size_in_gb=10,
        s3_output_path="s3://bucket/rules/",
        container_local_output_path="/opt/ml/processing/output/rule",
        rule_parameters={"rule_to_invoke": "LossNotDecreasing"},
    )
    hook = DebuggerHookConfig(
        s3_output_path="s3://bucket/tensors/",
        container_local_output_path="/opt/ml/output/tensors",
        hook_parameters={"save_interval": "500"},
        collection_configs=[CollectionConfig("losses", {"save_interval": "100"})],
    )
    return {"rules": [rule], "debugger_hook_config": hook}


def profiler(off: bool = False) -> dict[str, Any]:
    from sagemaker import Profiler
    from sagemaker.debugger import ProfilerConfig, ProfilerRule, rule_configs

    report = ProfilerRule.sagemaker(rule_configs.ProfilerReport(), name="Report", s3_output_path="s3://bucket/rules/")
    own = ProfilerRule.custom(
        name="Own",
        image_uri=RULES_IMAGE,
        instance_type="ml.t3.medium",
        volume_size_in_gb=10,
        container_local_output_path="/opt/ml/processing/output/own",
        rule_parameters={"rule_to_invoke": "LowGPUUtilization"},
    )
    config = ProfilerConfig("s3://bucket/profile/", 500, profile_params=Profiler(cpu_profiling_duration=3600))
    return {"rules": [report, own], "profiler_config": None if off else config, "disable_profiler": off}


def tensorboard() -> dict[str, Any]:
    from sagemaker.debugger import TensorBoardOutputConfig

    place = TensorBoardOutputConfig("s3://bucket/tensorboard/", "/opt/ml/output/tensorboard")
    return {"tensorboard_output_config": place}


MPI: dict[str, Any] = {"mpi": {"enabled": True, "processes_per_host": 8}}
CASES: dict[str, Case] = {
    "members_plain": job(),
    "members_said_nothing": job(disable_profiler=None, debugger_hook_config=None),
    # What is read
    "members_fast_file_sharded": job(
        s3(input_mode="FastFile", distribution="ShardedByS3Key", content_type="application/x-parquet")
    ),
    "members_pipe": job(s3(input_mode="Pipe", compression="Gzip", record_wrapping="RecordIO", shuffle_seed=7)),
    "members_manifest": job(s3("train.manifest", s3_data_type="ManifestFile")),
    "members_augmented_manifest": job(
        s3(
            "labels.manifest",
            s3_data_type="AugmentedManifestFile",
            attribute_names=["source-ref", "label"],
            record_wrapping="RecordIO",
            input_mode="Pipe",
        )
    ),
    "members_gated_model": job(s3("llama/", model_access_config={"AcceptEula": True})),
    "members_access_point": job(s3("images/", bucket=ACCESS_POINT)),
    "members_fsx": job(
        file_system("FSxLustre", LUSTRE, "/x7jq3bmv/images", content_type="application/x-image"), **NETWORK
    ),
    "members_fsx_written": job(file_system("FSxLustre", LUSTRE, "/x7jq3bmv", "rw"), **NETWORK),
    "members_efs": job(file_system("EFS", EFS, "/images"), **NETWORK),
    # On what it runs
    "members_spot": job(**SPOT, checkpoint_local_path="/opt/ml/checkpoints"),
    "members_checkpoints": job(checkpoint_s3_uri="s3://bucket/checkpoints/"),
    "members_checkpoint_path": job(
        checkpoint_s3_uri="s3://bucket/checkpoints/", checkpoint_local_path="/opt/ml/input/kept"
    ),
    "members_spot_without_checkpoints": job(use_spot_instances=True, max_run=3600, max_wait=7200),
    "members_warm_pool": job(keep_alive_period_in_seconds=1800),
    "members_volume": job(volume_size=200, volume_kms_key=KEY),
    "members_training_plan": job(
        instance_type="ml.p6e-gb200.36xlarge",
        instance_count=18,
        training_plan=PLAN,
        instance_placement_config={
            "EnableMultipleJobs": True,
            "PlacementSpecifications": [{"UltraServerId": "us-1", "InstanceCount": 18}],
        },
    ),
    "members_retry": job(max_retry_attempts=3, max_run=172_800),
    "members_infra_check": job(enable_infra_check=True),
    # Who may do and see what
    "members_network_and_keys": job(
        **NETWORK, output_kms_key=KEY, volume_kms_key=OTHER_KEY, encrypt_inter_container_traffic=True
    ),
    "members_security_groups": job(subnets=NETWORK["subnets"], security_group_ids=["sg-1", "sg-2"]),
    "members_session_chaining": job(enable_session_tag_chaining=True),
    "members_network_isolation": job(enable_network_isolation=True),
    "members_remote_debug": job(enable_remote_debug=True),
    "members_private_registry": job(
        **NETWORK,
        image_uri=REGISTRY_IMAGE,
        training_repository_access_mode="Vpc",
        training_repository_credentials_provider_arn=FUNCTION,
    ),
    # What runs, and what it tells
    "members_entry_point": job(container_entry_point=["python", "train.py"], container_arguments=["--fast"]),
    "members_script": job(
        hyperparameters={"epochs": 3, "learning_rate": 0.001, "model": "gpt2", "shuffle": "true"},
        environment={"NCCL_DEBUG": "INFO"},
        tags=[{"Key": "team", "Value": "vision"}],
    ),
    "members_generic_values": job(hyperparameters={"shuffle": True, "sizes": [1, 2], "note": None, "digits": "5"}),
    "members_metrics": job(
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}], enable_sagemaker_metrics=True
    ),
    "members_two_expressions": job(
        metric_definitions=[
            {"Name": "loss", "Regex": "loss=([0-9.]+)"},
            {"Name": "loss", "Regex": "loss: ([0-9.]+)"},
        ]
    ),
    "members_output": job(disable_output_compression=True, output_kms_key=KEY),
    "members_debugger": job(watched=debugger),
    "members_profiler": job(watched=profiler),
    "members_tensorboard": job(watched=tensorboard),
    "members_experiment": job(
        experiment_config={
            "ExperimentName": "digits",
            "TrialName": "one",
            "TrialComponentDisplayName": "first",
            "RunName": "run",
        }
    ),
    # Groups
    "members_groups_mpi": on_groups(MPI, images=["data_group"], labels=["label_group", "data_group"]),
    "members_groups_some_channels": on_groups(MPI, images=["data_group"], labels=None),
    "members_groups_order": on_groups(MPI, trains_first=True),
    "members_one_group": on_groups(MPI, alone=True),
    # Refused
    "members_refused_profiler_rules": job(watched=lambda: profiler(off=True)),
    "members_refused_groups_without_launcher": on_groups({}, images=["data_group"]),
    # Sent, and refused or not done by the service
    "loose_spot_wait": job(**{**SPOT, "max_wait": 1800}),
    "loose_wait_without_spot": job(max_wait=172_800),
    "loose_spot_without_wait": job(use_spot_instances=True),
    "loose_spot_warm_pool": job(**SPOT, keep_alive_period_in_seconds=1800),
    "loose_spot_training_plan": job(**SPOT, instance_type="ml.p4d.24xlarge", training_plan=PLAN),
    "loose_long": job(max_run=30 * 86_400),
    "loose_volume_key": job(instance_type="ml.g5.xlarge", volume_kms_key=KEY),
    "loose_file_system_without_network": job(file_system("EFS", EFS, "/images")),
    "loose_registry_without_network": job(image_uri=REGISTRY_IMAGE, training_repository_access_mode="Vpc"),
    "loose_registry_not_said": job(image_uri=REGISTRY_IMAGE, **NETWORK),
    "loose_isolated_remote_debug": job(enable_network_isolation=True, enable_remote_debug=True),
    "loose_compressed_file": job(s3(compression="Gzip")),
    "loose_augmented_manifest": job(s3("labels.manifest", s3_data_type="AugmentedManifestFile")),
    "loose_channel_of_no_group": on_groups(MPI, images=["data-group"]),
    "loose_metric_without_value": job(metric_definitions=[{"Name": "loss", "Regex": "loss="}]),
    "loose_tag": job(tags=[{"Key": "aws:team", "Value": "vision"}]),
    "loose_misspelt_type": job(instance_type="ml.c5.xlrage"),
}
