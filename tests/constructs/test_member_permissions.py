"""What members of a request bring with them in a stack: permissions, ways through the network, warnings, a way to wait."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from rendered import lint, resolved
from stacks import UserStack, reads
from whole_requests import ON_CPUS, ON_GPUS, ON_GROUPS, PLAN, RULES_IMAGE, TRACKING_SERVER

from cdk_sagemaker_training import (
    DataParallelJob,
    Debugger,
    DebuggerRule,
    EfsChannel,
    Experiment,
    FsxLustreChannel,
    InstanceGroup,
    InstancePreference,
    Mlflow,
    Neuron,
    PrivateRegistry,
    Profiler,
    S3AccessPoint,
    S3Channel,
    S3Prefix,
    Spot,
    TensorBoard,
    Torchrun,
    TrainingNetwork,
    TrainingTask,
    TrainingWorkflow,
    WarmPool,
)


def statement_of(stack: UserStack, action: str) -> dict[str, Any]:
    [statement] = [one for one in stack.statements() if action in one["Action"]]
    return statement


def of_the_machine(stack: UserStack) -> list[dict[str, Any]]:
    return stack.statements("TrainingStateMachineRole")


@pytest.fixture
def stack() -> UserStack:
    return UserStack()


def test_a_manifest_lets_the_job_read_what_it_lists(stack: UserStack) -> None:
    channel = S3Channel(stack.bucket, "train.manifest", data_type="ManifestFile", objects=stack.place("images/"))
    stack.workflow(job=ON_CPUS, channels={"images": channel})
    read = [one["Resource"] for one in stack.statements() if "s3:GetObject" in one["Action"]]
    assert read == ["arn:aws:s3:::bucket/train.manifest*", "arn:aws:s3:::bucket/images/*"]


def test_debugger_profiler_and_tensorboard_may_write_where_they_are_told_to(stack: UserStack) -> None:
    rule = DebuggerRule("Loss", RULES_IMAGE, output=stack.place("rules/"))
    stack.workflow(
        job=ON_CPUS,
        debugger=Debugger(stack.place("tensors/"), rules=[rule]),
        profiler=Profiler(stack.place("profile/")),
        tensorboard=TensorBoard(stack.place("runs/")),
    )
    written = [one["Resource"] for one in stack.statements() if "s3:PutObject" in one["Action"]]
    places = {place for one in written for place in ([one] if isinstance(one, str) else one)}
    assert places == {f"arn:aws:s3:::bucket/{prefix}/*" for prefix in ("models", "rules", "tensors", "profile", "runs")}


def test_the_outputs_key_encrypts_and_decrypts_since_large_objects_are_read_back(stack: UserStack) -> None:
    stack.workflow(job=ON_CPUS, output_key=kms.Key(stack, "Key"))
    assert {"kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey*"} <= set(statement_of(stack, "kms:Encrypt")["Action"])


def test_the_volumes_key_may_be_granted_to_ec2_and_to_nobody_else(stack: UserStack) -> None:
    key = kms.Key(stack, "Key")
    stack.workflow(job=ON_CPUS, volume_key=key)
    statement = statement_of(stack, "kms:CreateGrant")
    assert statement["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    assert statement["Resource"].startswith("{Key")


def test_remote_debugging_opens_channels_of_systems_manager(stack: UserStack) -> None:
    stack.workflow(job=ON_CPUS, remote_debug=True)
    assert statement_of(stack, "ssmmessages:OpenDataChannel")["Action"] == [
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
    ]


def test_mlflow_is_logged_to_and_nothing_there_deleted(stack: UserStack) -> None:
    stack.workflow(job=ON_CPUS, mlflow=Mlflow(TRACKING_SERVER))
    statement = statement_of(stack, "sagemaker-mlflow:LogMetric")
    assert statement["Resource"] == TRACKING_SERVER
    assert not [action for action in statement["Action"] if "Delete" in action or "*" in action]


def test_a_private_registrys_credentials_are_asked_for(stack: UserStack) -> None:
    function = lambda_.Function.from_function_arn(
        stack, "Function", "arn:aws:lambda:us-east-1:123456789012:function:credentials"
    )
    stack.workflow(job=ON_CPUS, private_registry=PrivateRegistry(function), network=TrainingNetwork(stack, "Network"))
    assert statement_of(stack, "lambda:InvokeFunction")["Resource"][0].endswith(":function:credentials")


def test_session_tags_reach_the_jobs_role_which_trusts_sagemaker_of_this_account_only(stack: UserStack) -> None:
    stack.workflow(job=ON_CPUS, session_tag_chaining=True)
    trusted = [
        statement
        for resource in Template.from_stack(stack).find_resources("AWS::IAM::Role").values()
        for statement in resource["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        if statement["Action"] == "sts:TagSession"
    ]
    assert trusted == [
        {
            "Action": "sts:TagSession",
            "Effect": "Allow",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
            "Condition": {"StringEquals": {"aws:SourceAccount": "123456789012"}},
        }
    ]


CAPACITY = "arn:aws:sagemaker:us-east-1:123456789012:reserved-capacity/*"


@pytest.mark.parametrize(
    ("plan", "resources"),
    [
        (PLAN, [PLAN, CAPACITY]),
        (cdk.Fn.import_value("Plan"), [{"Fn::ImportValue": "Plan"}, CAPACITY]),
        (
            sfn.JsonPath.string_at("$.plan"),
            ["arn:aws:sagemaker:us-east-1:123456789012:training-plan/*", CAPACITY],
        ),
    ],
    ids=["arn", "token", "input"],
)
def test_a_job_on_a_training_plan_is_created_on_the_plan_and_its_capacity_too(
    stack: UserStack, plan: str, resources: list[Any]
) -> None:
    stack.workflow(job=ON_GPUS, training_plan=plan)
    creating = [one for one in of_the_machine(stack) if "sagemaker:CreateTrainingJob" in one["Action"]]
    assert [one["Resource"] for one in creating if one["Action"] == "sagemaker:CreateTrainingJob"] == [resources]


def test_a_job_is_created_on_the_plan_of_each_type_that_it_may_run_on(stack: UserStack) -> None:
    types = InstanceGroup([InstancePreference("ml.p5.48xlarge", 1, PLAN), InstancePreference("ml.g5.12xlarge", 2)])
    stack.workflow(job=DataParallelJob(types))
    creating = [one["Resource"] for one in of_the_machine(stack) if one["Action"] == "sagemaker:CreateTrainingJob"]
    assert creating == [[PLAN, CAPACITY]]


def test_jobs_without_a_training_plan_are_created_on_none(stack: UserStack) -> None:
    stack.workflow(job=ON_GPUS)
    assert "reserved-capacity" not in str(of_the_machine(stack))


def test_capacity_of_a_plan_of_another_account_is_reserved_there(stack: UserStack) -> None:
    stack.workflow(job=ON_GPUS, training_plan="arn:aws:sagemaker:us-east-1:210987654321:training-plan/spring")
    assert "arn:aws:sagemaker:us-east-1:210987654321:reserved-capacity/*" in str(of_the_machine(stack))


def test_hosts_reach_the_lustre_file_system_that_is_their_channel(stack: UserStack) -> None:
    network = TrainingNetwork(stack, "Network")
    file_system = fsx.LustreFileSystem(
        stack,
        "Lustre",
        vpc=network.vpc,
        vpc_subnet=network.vpc.isolated_subnets[0],
        storage_capacity_gib=1200,
        lustre_configuration=fsx.LustreConfiguration(deployment_type=fsx.LustreDeploymentType.SCRATCH_2),
    )
    stack.workflow(job=ON_CPUS, channels={"images": FsxLustreChannel(file_system, "/images")}, network=network)
    template = stack.template()
    request = stack.request()
    source = request["InputDataConfig"][0]["DataSource"]["FileSystemDataSource"]
    assert source["DirectoryPath"].endswith(".LustreMountName}/images")
    # FSx has no resource for what describes file systems.
    assert statement_of(stack, "fsx:DescribeFileSystems")["Resource"] == "*"
    ports = {
        (resource["Type"].rsplit("::", 1)[1], resource["Properties"].get("FromPort"))
        for resource in template["Resources"].values()
        if resource["Type"].startswith("AWS::EC2::SecurityGroup") and "FromPort" in resource["Properties"]
    }
    assert {("SecurityGroupIngress", 988), ("SecurityGroupEgress", 988)} <= ports
    assert lint(stack.machines()) == []


def test_hosts_reach_the_efs_file_system_that_is_their_channel(stack: UserStack) -> None:
    network = TrainingNetwork(stack, "Network")
    file_system = efs.FileSystem(
        stack,
        "Efs",
        vpc=network.vpc,
        vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
        encrypted=True,
    )
    stack.workflow(job=ON_CPUS, channels={"images": EfsChannel(file_system)}, network=network)
    statement = statement_of(stack, "elasticfilesystem:DescribeMountTargets")
    assert statement["Resource"].startswith("{Efs")
    Template.from_stack(stack).has_resource_properties("AWS::EC2::SecurityGroupEgress", {"FromPort": 2049})


@pytest.mark.parametrize(
    ("props", "integration"),
    [
        ({"network_isolation": True, "maximum_retry_attempts": 2, "metrics_time_series": True}, "sync"),
        ({"container_entrypoint": ["python", "train.py"]}, "poll"),
        ({"output_compression": "NONE"}, "poll"),
        ({"inter_container_encryption": True}, "poll"),
        ({"infra_check": True}, "poll"),
        ({"remote_debug": True}, "poll"),
        ({"session_tag_chaining": True}, "poll"),
        ({"training_plan": PLAN}, "poll"),
        ({"profiler": Profiler(disable=True)}, "poll"),
        ({"experiment": Experiment("digits")}, "poll"),
        ({"mlflow": Mlflow(TRACKING_SERVER)}, "poll"),
        ({"job": ON_GROUPS}, "poll"),
    ],
)
def test_a_workflow_polls_where_sync_is_not_known_to_take_the_request(
    stack: UserStack, props: dict[str, Any], integration: str
) -> None:
    assert stack.workflow(**{"job": ON_CPUS, **props}).integration == integration


@pytest.mark.parametrize(
    ("props", "prop", "member"),
    [
        ({"container_arguments": ["a"]}, "container_arguments", "ContainerArguments"),
        ({"output_compression": "NONE"}, "output_compression", "CompressionType"),
        ({"inter_container_encryption": True}, "inter_container_encryption", "EnableInterContainerTrafficEncryption"),
        ({"infra_check": True}, "infra_check", "InfraCheckConfig"),
        ({"remote_debug": True}, "remote_debug", "RemoteDebugConfig"),
        ({"session_tag_chaining": True}, "session_tag_chaining", "SessionChainingConfig"),
        ({"training_plan": PLAN}, "training_plan", "TrainingPlanArn"),
        ({"profiler": Profiler(disable=True)}, "profiler", "ProfilerConfig"),
        ({"experiment": Experiment("digits")}, "experiment", "ExperimentConfig"),
        ({"mlflow": Mlflow(TRACKING_SERVER)}, "mlflow", "MlflowConfig"),
    ],
)
def test_a_task_state_refuses_what_sync_is_not_known_to_take_and_names_as_task(
    stack: UserStack, props: dict[str, Any], prop: str, member: str
) -> None:
    with pytest.raises(ValueError) as raised:
        stack.task(job=ON_CPUS, **props)
    assert reads(
        str(raised.value),
        f"{prop} must be what `sagemaker:createTrainingJob.sync` is known to take ... got {member}: use "
        "TrainingWorkflow(...).as_task(...), or TrainingWorkflow(..., integration=unlisted('sync')) where AWS differs by now",
    )


@pytest.mark.parametrize("taker", [TrainingTask, TrainingWorkflow])
def test_a_misspelt_prop_is_refused_as_python_refuses_it(stack: UserStack, taker: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'volume_sise'"):
        taker(stack, "Train", job=ON_CPUS, image=stack.image, output=stack.place("a/"), volume_sise=1)


def test_a_missing_prop_is_refused_as_python_refuses_it(stack: UserStack) -> None:
    with pytest.raises(TypeError, match="missing required keyword argument 'output'"):
        TrainingWorkflow(stack, "Train", job=ON_CPUS, image=stack.image)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("props", "ids"),
    [
        ({}, []),
        ({"job": DataParallelJob(InstanceGroup("ml.p7.48xlarge"))}, ["newer-instance-type"]),
        ({"job": ON_GROUPS, "volume_size": cdk.Size.gibibytes(50)}, []),
        ({"max_pending": cdk.Duration.hours(1)}, ["max-pending-without-accelerators"]),
        (
            {"job": DataParallelJob(InstanceGroup("ml.c5.xlarge")), "inter_container_encryption": True},
            ["encryption-without-peers"],
        ),
        ({"network_isolation": True, "mlflow": Mlflow(TRACKING_SERVER)}, ["isolated-script-calls-aws"]),
        ({"network_isolation": True, "experiment": Experiment("digits")}, ["isolated-script-calls-aws"]),
        ({"warm_pool": WarmPool(600)}, []),
    ],
)
def test_what_is_legal_and_does_nothing_is_warned_of(stack: UserStack, props: dict[str, Any], ids: list[str]) -> None:
    stack.workflow(**{"job": ON_CPUS, **props})
    assert stack.warned() == ids


def test_a_volumes_size_is_warned_of_where_machines_have_disks_of_their_own(stack: UserStack) -> None:
    stack.workflow(job=ON_GPUS, volume_size=cdk.Size.gibibytes(50))
    assert "volume-size-without-volume" in stack.warned()


def test_an_entrypoint_that_leaves_out_the_launcher_is_warned_of(stack: UserStack) -> None:
    stack.workflow(job=ON_GPUS, container_entrypoint=["python", "train.py"])
    assert "entrypoint-instead-of-toolkit" in stack.warned()


def test_a_script_whose_compiler_reads_s3_is_warned_of_isolation(stack: UserStack) -> None:
    job = DataParallelJob(InstanceGroup("ml.trn1.2xlarge"), Torchrun(), Neuron(cache=stack.place("cache/")))
    stack.workflow(job=job, network_isolation=True)
    assert "isolated-script-calls-aws" in stack.warned()


def test_a_warm_pool_whose_machines_each_execution_decides_is_warned_of(stack: UserStack) -> None:
    count: Any = sfn.JsonPath.number_at("$.machines")
    stack.workflow(job=DataParallelJob(InstanceGroup("ml.c5.xlarge", count)), warm_pool=WarmPool(600))
    [warning] = stack.warnings()
    assert "each execution" in warning
    assert "ResourceConfig.InstanceCount" in warning


ACCESS_POINT = "arn:aws:s3:us-east-1:123456789012:accesspoint/images"


def test_a_channel_of_an_access_point_may_be_read_through_it_and_of_its_bucket_through_it_only() -> None:
    stack = UserStack()
    place = S3AccessPoint(ACCESS_POINT, bucket=stack.bucket)
    stack.workflow(job=ON_CPUS, channels={"images": S3Channel(place, "images/")})
    reads = {one["Resource"]: one.get("Condition") for one in stack.statements() if one["Action"] == "s3:GetObject"}
    through = {"StringEquals": {"s3:DataAccessPointArn": ACCESS_POINT}}
    assert reads == {f"{ACCESS_POINT}/object/images/*": None, "arn:aws:s3:::bucket/images/*": through}
    lists = {one["Resource"]: one["Condition"] for one in stack.statements() if one["Action"] == "s3:ListBucket"}
    below = {"StringLike": {"s3:prefix": ["images/*"]}}
    assert lists == {ACCESS_POINT: below, "arn:aws:s3:::bucket": {**below, **through}}


def test_an_access_point_with_an_alias_is_named_by_it_in_requests_and_by_its_arn_in_permissions() -> None:
    stack = UserStack()
    stack.workflow(job=ON_CPUS, output=S3Prefix(S3AccessPoint(ACCESS_POINT, "images-abc-s3alias"), "models/"))
    request = stack.request()
    assert request["OutputDataConfig"]["S3OutputPath"] == "s3://images-abc-s3alias/models/"
    assert statement_of(stack, "s3:PutObject")["Resource"] == f"{ACCESS_POINT}/object/models/*"


def test_below_a_model_dir_the_job_reads_and_writes() -> None:
    stack = UserStack()
    stack.workflow(job=ON_CPUS, hyperparameters={"model_dir": stack.place("tf/")})
    for action in ("s3:GetObject", "s3:PutObject"):
        assert any(
            action in one["Action"] and "arn:aws:s3:::bucket/tf/*" in one["Resource"] for one in stack.statements()
        )


def test_each_of_several_security_groups_is_in_the_request_in_the_permissions_and_among_a_file_systems_rules() -> None:
    stack = UserStack()
    vpc = ec2.Vpc(stack, "Vpc")
    groups = [ec2.SecurityGroup(stack, name, vpc=vpc) for name in ("One", "Two")]
    network = TrainingNetwork(stack, "Network", vpc=vpc, security_groups=groups)
    file_system = efs.FileSystem(stack, "Efs", vpc=vpc)
    stack.workflow(job=ON_CPUS, network=network, channels={"images": EfsChannel(file_system)})
    resources = stack.template()["Resources"]
    ids = [resolved(stack.resolve(group.security_group_id)) for group in groups]
    request = stack.request()
    assert resolved(request["VpcConfig"]["SecurityGroupIds"]) == ids
    [created] = [one["Resource"] for one in stack.statements() if one["Action"] == "ec2:CreateNetworkInterface"]
    assert sum("security-group/" in str(resource) for resource in created) == 2
    rules = [one["Properties"] for one in resources.values() if one["Type"] == "AWS::EC2::SecurityGroupIngress"]
    among = [resolved(rule["SourceSecurityGroupId"]) for rule in rules if rule["IpProtocol"] == "-1"]
    of_efs = [resolved(rule["SourceSecurityGroupId"]) for rule in rules if rule.get("FromPort") == 2049]
    assert among == of_efs == ids


@pytest.mark.parametrize("kept", [False, True])
def test_spot_machines_without_checkpoints_are_warned_of(stack: UserStack, kept: bool) -> None:
    stack.workflow(spot=Spot(max_wait=100_000), checkpoints=stack.place("kept/") if kept else None)
    assert ("spot-without-checkpoints" in stack.warned()) is not kept
