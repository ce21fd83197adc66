"""Requests that between them have every member, for the tests of members."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import aws_cdk as cdk

from cdk_sagemaker_training import (
    DataParallelJob,
    Debugger,
    DebuggerRule,
    EfsChannel,
    Experiment,
    FsxLustreChannel,
    HeterogeneousJob,
    InstanceGroup,
    InstancePreference,
    Mlflow,
    PrivateRegistry,
    Profiler,
    S3Channel,
    S3Prefix,
    Spot,
    TensorBoard,
    Torchrun,
    UltraServers,
    WarmPool,
)
from cdk_sagemaker_training.request.context import RequestContext
from cdk_sagemaker_training.request.create_training_job import create_training_job
from cdk_sagemaker_training.request.data import checkpoints_of
from cdk_sagemaker_training.request.props import check_props

BUCKET: Any = SimpleNamespace(bucket_name="bucket")
LUSTRE: Any = SimpleNamespace(file_system_id="fs-0123456789abcdef0", mount_name="x7jq3bmv")
EFS: Any = SimpleNamespace(file_system_id="fs-0123456789abcdef1")
FUNCTION: Any = SimpleNamespace(function_arn="arn:aws:lambda:us-east-1:123456789012:function:credentials")
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
TRACKING_SERVER = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/digits"
RULES_IMAGE = "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest"
NETWORK = {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
ON_CPUS = DataParallelJob(InstanceGroup("ml.c5.xlarge", 2))
ON_GPUS = DataParallelJob(InstanceGroup("ml.g5.xlarge", 2), launcher=Torchrun())
ON_ULTRASERVERS = DataParallelJob(InstanceGroup("ml.p6e-gb200.36xlarge", 18))
ON_GROUPS = HeterogeneousJob(
    groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
    train=DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Torchrun()),
    train_group="dnn_group",
)


def image_at(uri: str) -> Any:
    """An image in ECR, of which only a deployment knows what it was built from."""
    base = cdk.Token.as_string({"Ref": "Base"})
    return SimpleNamespace(
        image_uri=uri,
        grant_pull=None,
        repository="repository",
        base=base,
        check_files=lambda files: None,
        dockerfile=None,
        contents=lambda: None,
        platform=None,
        check_xla_has_cuda=lambda: None,
    )


def key_at(arn: str) -> Any:
    return SimpleNamespace(key_arn=arn)


def network_of(config: dict[str, Any]) -> Any:
    return SimpleNamespace(vpc_config=lambda: config)


def size_of(gibibytes: int) -> Any:
    """A `Size` without a call into Node, which drawing hundreds of them would wait for."""
    return SimpleNamespace(to_gibibytes=lambda rounding: gibibytes)


def request_of(
    job: Any = ON_CPUS, role_arn: str = "arn:aws:iam::123456789012:role/Training", **more: Any
) -> dict[str, Any]:
    """The first request of a job; its checkpoints are not in a folder of an execution."""
    props: Any = {
        "job": job,
        "image": image_at("123456789012.dkr.ecr.us-east-1.amazonaws.com/digits:1"),
        "output": S3Prefix(BUCKET, "models/"),
        "max_runtime": 3600,
        **more,
    }
    check_props("request_of", props)
    place = checkpoints_of(props)
    return create_training_job(
        RequestContext(
            props=props,
            job_request=job.requests()[0],
            job_name="digits-1",
            role_arn=role_arn,
            checkpoint_uri=None if place is None else place.uri,
        )
    )


def whole_requests() -> list[dict[str, Any]]:
    """Five requests, since some members exclude others."""
    rule = DebuggerRule(
        "Loss",
        RULES_IMAGE,
        parameters={"rule_to_invoke": "LossNotDecreasing"},
        instance_type="ml.t3.medium",
        volume_size_gb=10,
        output=S3Prefix(BUCKET, "rules/"),
        local_path="/opt/ml/processing/output/rule",
    )
    of_everything = request_of(
        channels={
            "labels": S3Channel(
                BUCKET,
                "train.manifest",
                data_type="AugmentedManifestFile",
                attribute_names=["source-ref", "label"],
                objects=S3Prefix(BUCKET, "images/"),
                input_mode="Pipe",
                distribution="ShardedByS3Key",
                content_type="application/x-recordio",
                compression="Gzip",
                record_wrapper="RecordIO",
                shuffle_seed=7,
            ),
            "model": S3Channel(BUCKET, "llama/", accept_eula=True),
            "lustre": FsxLustreChannel(LUSTRE, "/images", read_only=False),
            "efs": EfsChannel(EFS, "/images", content_type="image/png"),
        },
        hyperparameters={"epochs": 3},
        environment={"A": "1"},
        warm_pool=WarmPool(600),
        checkpoints=S3Prefix(BUCKET, "checkpoints/"),
        volume_size=size_of(100),
        volume_key=key_at(KEY),
        max_pending=3600,
        network=network_of(NETWORK),
        metric_definitions={"loss": "loss=([0-9.]+)"},
        metrics_time_series=True,
        container_entrypoint=["python", "train.py"],
        container_arguments=["--fast"],
        private_registry=PrivateRegistry(FUNCTION),
        output_key=key_at(KEY),
        output_compression="NONE",
        maximum_retry_attempts=3,
        network_isolation=True,
        inter_container_encryption=True,
        infra_check=True,
        session_tag_chaining=True,
        debugger=Debugger(
            S3Prefix(BUCKET, "tensors/"),
            collections={"losses": {"save_interval": "100"}},
            hook_parameters={"save_interval": "500"},
            rules=[rule],
            local_path="/opt/ml/output/tensors",
        ),
        profiler=Profiler(
            interval_milliseconds=500,
            parameters={"DataLoaderProfilingConfig": "{}"},
            rules=[DebuggerRule("Report", RULES_IMAGE, output=S3Prefix(BUCKET, "rules/"))],
        ),
        tensorboard=TensorBoard(S3Prefix(BUCKET, "tensorboard/"), "/opt/ml/output/tensorboard"),
        experiment=Experiment("digits", "one", "first", "run"),
        mlflow=Mlflow(TRACKING_SERVER, "digits", "run"),
        tags={"team": "vision"},
    )
    on_spot = request_of(
        ON_GPUS,
        spot=Spot(S3Prefix(BUCKET, "checkpoints/"), max_wait=7200),
        profiler=Profiler(rules=[rule]),
        remote_debug=True,
    )
    in_groups = request_of(ON_GROUPS, channels={"digits": S3Channel(BUCKET, "digits/", groups=["data_group"])})
    placed = request_of(
        ON_ULTRASERVERS, training_plan=PLAN, ultra_servers=UltraServers({"us-1": 18}, multiple_jobs=True)
    )
    preferred = request_of(
        DataParallelJob(
            InstanceGroup([InstancePreference("ml.p5.48xlarge", 1, PLAN), InstancePreference("ml.p4d.24xlarge", 2)])
        )
    )
    return [of_everything, on_spot, in_groups, placed, preferred]
