"""Mistakes that no call of AWS refuses, and that nothing tells: secrets in plain text, notices that nobody may publish."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import sagemaker_training.environment
from aws_cdk import SecretValue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from botocore.loaders import Loader
from rendered import resolved
from stacks import GUARD, ON_ONE_GPU, UserStack, message_of

from cdk_sagemaker_training import (
    Budget,
    DataParallelJob,
    Gate,
    HeterogeneousJob,
    InstanceGroup,
    NumberField,
    Plateau,
    S3Channel,
    S3Prefix,
    Spot,
    Torchrun,
    TrainingImage,
)

TOKEN = "hf_" + "a" * 30


def warned(**props: Any) -> list[str]:
    stack = UserStack()
    stack.workflow(**props)
    return stack.warned()


def test_the_service_model_says_that_secrets_are_in_neither_of_them() -> None:
    shapes = Loader().load_service_model("sagemaker", "service-2")["shapes"]
    for member in ("Environment", "HyperParameters"):
        text = shapes["CreateTrainingJobRequest"]["members"][member]["documentation"]
        assert "Do not include any security-sensitive information" in text


@pytest.mark.parametrize(
    ("props", "ids"),
    [
        ({"environment": {"HF_TOKEN": "anything"}}, ["plain-secret"]),
        ({"environment": {"WANDB_API_KEY": "0123"}}, ["plain-secret"]),
        ({"environment": {"db_password": "0123"}}, ["plain-secret"]),
        ({"environment": {"NAME": TOKEN}}, ["plain-secret"]),
        ({"hyperparameters": {"hub": TOKEN}}, ["plain-secret"]),
        ({"hyperparameters": {"key": "AKIA" + "A" * 16}}, ["plain-secret"]),
        ({"environment": {"HF_TOKEN_NAME": "hugging-face", "TOKENIZERS_PARALLELISM": "false", "EMPTY_TOKEN": ""}}, []),
        ({"hyperparameters": {"pad_token": "<pad>", "eos_token": 2, "tokens": "10"}}, []),
        ({"environment": {"HF_TOKEN": sfn.JsonPath.string_at("$.token")}}, []),
    ],
)
def test_a_secret_in_plain_text_is_warned_of_and_what_is_none_is_not(props: dict[str, Any], ids: list[str]) -> None:
    assert warned(**props) == ids


def test_a_secret_that_is_unwrapped_into_the_definition_is_warned_of_with_what_to_do_in_its_place() -> None:
    stack = UserStack()
    secret = secretsmanager.Secret(stack, "Secret")
    workflow = stack.workflow(
        environment={
            "HF": secret.secret_value.unsafe_unwrap(),
            "OTHER": SecretValue.secrets_manager("x").unsafe_unwrap(),
        }
    )
    secret.grant_read(workflow)
    assert stack.warned() == ["secret-in-definition"] * 2
    assert "secret.grant_read(workflow)" in stack.warnings()[0]
    reads = [one for one in stack.statements() if "secretsmanager:GetSecretValue" in one["Action"]]
    assert len(reads) == 1


TORCHRUN_ON_TWO = DataParallelJob(InstanceGroup("ml.p4d.24xlarge", 2), launcher=Torchrun())
ON_SOME = DataParallelJob(InstanceGroup("ml.p4d.24xlarge", sfn.JsonPath.number_at("$.hosts")))
ON_TWO, ON_FOUR_GPUS = (
    DataParallelJob(InstanceGroup("ml.p4d.24xlarge", 2)),
    DataParallelJob(InstanceGroup("ml.g5.12xlarge"), launcher=Torchrun()),
)


@pytest.mark.parametrize(
    ("job", "name", "value", "said"),
    [
        (TORCHRUN_ON_TWO, "RANK", "0", "has no effect, since torchrun sets it in each process"),
        (TORCHRUN_ON_TWO, "MASTER_ADDR", "algo-1", "has no effect, since torchrun sets it in each process"),
        (ON_TWO, "NODE_RANK", "0", "is '0' on each host, so that they wait for each other for ever"),
        (ON_TWO, "MASTER_ADDR", "algo-1", ""),
        (ON_ONE_GPU, "RANK", "0", ""),
        (ON_FOUR_GPUS, "CUDA_VISIBLE_DEVICES", "0,1", "shows 2 of the 4 accelerators of ml.g5.12xlarge"),
        (ON_FOUR_GPUS, "CUDA_VISIBLE_DEVICES", "", "shows 0 of the 4 accelerators of ml.g5.12xlarge"),
        (ON_FOUR_GPUS, "CUDA_VISIBLE_DEVICES", "-1", "shows 0 of the 4 accelerators of ml.g5.12xlarge"),
        (ON_FOUR_GPUS, "CUDA_VISIBLE_DEVICES", "3,2,1,0", ""),
        (ON_ONE_GPU, "CUDA_VISIBLE_DEVICES", "0", ""),
        (TORCHRUN_ON_TWO, "FI_PROVIDER", "tcp", "over TCP, where ml.p4d.24xlarge has an Elastic Fabric Adapter"),
        (TORCHRUN_ON_TWO, "FI_PROVIDER", "^efa", "over TCP, where ml.p4d.24xlarge has an Elastic Fabric Adapter"),
        (TORCHRUN_ON_TWO, "NCCL_NET", "Socket", "over TCP, where ml.p4d.24xlarge has an Elastic Fabric Adapter"),
        (TORCHRUN_ON_TWO, "FI_PROVIDER", "efa", ""),
        (TORCHRUN_ON_TWO, "FI_PROVIDER", "^tcp", ""),
        (ON_SOME, "NODE_RANK", "0", ""),
        (ON_SOME, "FI_PROVIDER", "tcp", ""),
        (TORCHRUN_ON_TWO, "NCCL_NET", "AWS Libfabric", ""),
        (ON_FOUR_GPUS, "NCCL_NET", "Socket", ""),
        (ON_ONE_GPU, "SM_CHANNEL_TRAIN", "/data", ""),  # in an image of one's own, in which there need not be a toolkit
    ],
)
def test_a_variable_that_hosts_or_launchers_set_or_that_turns_hardware_off_is_warned_of(
    job: Any, name: str, value: str, said: str
) -> None:
    stack = UserStack()
    stack.task(job=job, environment={name: value})
    about = [text for text in stack.warnings() if text.startswith(f"environment[{name!r}]")]
    assert len(about) == bool(said)
    assert said in "".join(about)


def test_a_variable_that_the_toolkit_of_awss_containers_writes_over_is_warned_of() -> None:
    source = inspect.getsource(sagemaker_training.environment.Environment.to_env_vars)
    names = {
        f"SM_{name.upper()}"
        for name in re.findall(r'^ {12}"(\w+)":|env\["(\w+)"\]', source, re.MULTILINE)
        for name in name
        if name
    }
    assert len(names) > 25
    written = {*names, "SM_CHANNEL_TRAIN", "SM_HP_EPOCHS"}
    stack = UserStack()
    container = TrainingImage.from_dlc(stack, "Container", "pytorch-training", "2.6.0-gpu-py312")
    stack.task(image=container, environment=dict.fromkeys([*written, "SM_OWN"], "x"))
    assert set(re.findall(r"environment\['(\w+)'\] has no effect", " ".join(stack.warnings()))) == written


@pytest.mark.parametrize(
    ("train", "validation", "warns"),
    [
        ("data/", "data/validation/", True),
        ("data/train", "data/train-validation/", True),
        ("data/", "data/", True),
        ("data/validation/more/", "data/validation/", True),
        ("data/train/", "data/validation/", False),
    ],
)
def test_a_channel_that_contains_another_is_warned_of(train: str, validation: str, warns: bool) -> None:
    stack = UserStack()
    channels = {"train": S3Channel(stack.bucket, train), "validation": S3Channel(stack.bucket, validation)}
    stack.task(channels=channels)
    assert stack.warned() == ["channel-holds-channel"] * warns


@pytest.mark.parametrize(
    ("prefix", "warns"),
    [
        ("images", True),
        ("data/2026", True),
        ("data.v2/images", True),
        ("images/", False),
        ("data/train.csv", False),  # an object
        ("data/part-", False),  # how the names of several begin
        ("", False),  # the bucket
    ],
)
def test_a_channel_of_a_folders_name_without_its_slash_is_warned_of(prefix: str, warns: bool) -> None:
    """ "SageMaker uses all objects that match the specified key name prefix" (API, S3DataSource): `images2/` too."""
    stack = UserStack()
    stack.task(channels={"images": S3Channel(stack.bucket, prefix)})
    assert [name for name in stack.warned() if name != "channel-holds-output"] == ["channel-without-slash"] * warns


@pytest.mark.parametrize("others", [{"subfolder": "cats/"}, {"data_type": "ManifestFile"}])
def test_a_slash_is_left_out_where_something_follows_or_an_object_is_named(others: dict[str, Any]) -> None:
    stack = UserStack()
    if "data_type" in others:
        channel = S3Channel(stack.bucket, "list", objects=S3Prefix(stack.bucket, "images/"), **others)
    else:
        channel = S3Channel(stack.bucket, "images/", **others)
    stack.task(channels={"images": channel})
    assert "channel-without-slash" not in stack.warned()


def test_channels_of_two_groups_of_machines_may_have_the_same_data() -> None:
    stack = UserStack()
    train = DataParallelJob(InstanceGroup("ml.g5.xlarge"))
    job = HeterogeneousJob(groups={"data": InstanceGroup("ml.c5.xlarge")}, train=train, train_group="train")
    channels = {name: S3Channel(stack.bucket, "data/", groups=[name]) for name in ("data", "train")}
    stack.workflow(job=job, channels=channels)
    assert "channel-holds-channel" not in stack.warned()


@pytest.mark.parametrize(
    ("assumed_by", "refused"),
    [
        (iam.ServicePrincipal("ec2.amazonaws.com"), True),
        (iam.AccountRootPrincipal(), True),
        (iam.CompositePrincipal(*map(iam.ServicePrincipal, ("ec2.amazonaws.com", "sagemaker.amazonaws.com"))), False),
        (
            iam.ServicePrincipal("sagemaker.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": "1"}}),
            False,
        ),
        (iam.AnyPrincipal(), False),
    ],
)
def test_a_role_that_sagemaker_may_not_assume_is_refused(assumed_by: iam.IPrincipal, refused: bool) -> None:
    stack = UserStack()
    stack.task(role=iam.Role(stack, "Own", assumed_by=assumed_by))
    if not refused:
        stack.template()
        return
    with pytest.raises(
        RuntimeError, match=r"role must be one that SageMaker may assume, like .* got Stack/Own, which trusts"
    ):
        stack.template()


@pytest.mark.parametrize(("effect", "refused"), [(iam.Effect.DENY, True), (iam.Effect.ALLOW, False)])
def test_each_statement_of_a_trust_policy_counts(effect: iam.Effect, refused: bool) -> None:
    stack = UserStack()
    role = iam.Role(stack, "Own", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    services = [iam.ServicePrincipal(f"{name}.amazonaws.com") for name in ("batch", "sagemaker")]
    assert role.assume_role_policy
    role.assume_role_policy.add_statements(
        iam.PolicyStatement(effect=effect, actions=["sts:AssumeRole"], principals=services)
    )
    stack.task(role=role)
    if refused:
        with pytest.raises(RuntimeError, match="role must be one that SageMaker may assume"):
            stack.template()
    else:
        stack.template()


def test_accelerators_beside_a_training_group_without_any_are_warned_of() -> None:
    cpu, gpu = InstanceGroup("ml.c5.xlarge"), InstanceGroup("ml.g5.xlarge")
    warned_of = ["accelerators-beside-training"]
    for data, train, ids in ((gpu, cpu, warned_of), (cpu, gpu, []), (cpu, cpu, []), (gpu, gpu, [])):
        stack = UserStack()
        stack.workflow(job=HeterogeneousJob(groups={"data": data}, train=DataParallelJob(train), train_group="train"))
        assert stack.warned() == ids


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize(
    ("prop", "make"),
    [
        ("at_least", lambda number: Gate((s := UserStack()), "Gate", s.workflow(), metric="a", at_least=number)),
        ("hours", lambda number: Budget(hours=number)),
        ("min_delta", lambda number: Plateau("loss", min_delta=number)),
        ("maximum", lambda number: NumberField(0, number)),
        ("metric_definitions", lambda number: UserStack().workflow(metric_definitions={"loss": number})),
    ],
)
def test_a_number_that_is_not_finite_is_refused_by_its_name(prop: str, make: Any, number: float) -> None:
    assert message_of(lambda: make(number)).startswith(f"{prop}")


def test_a_metric_without_a_group_is_warned_of_and_sent() -> None:
    stack = UserStack()
    stack.workflow(metric_definitions={"loss": ["loss=[0-9.]+", "loss: ([0-9.]+)"]})
    assert stack.warned() == ["metric-without-group"]
    regexes = [one["Regex"] for one in stack.request()["AlgorithmSpecification"]["MetricDefinitions"]]
    assert regexes == ["loss=[0-9.]+", "loss: ([0-9.]+)"]


@pytest.mark.parametrize(
    ("given", "is_warned"),
    [
        ({"spot": Spot(max_wait=100_000)}, True),
        ({}, False),
        ({"spot": Spot(max_wait=100_000), "container_entrypoint": ["python", "entrypoint.py"]}, False),
    ],
    ids=["spot", "on demand", "an entry point of its own"],
)
def test_a_spot_job_in_awss_container_is_warned_that_no_signal_reaches_its_script(
    given: dict[str, Any], is_warned: bool
) -> None:
    stack = UserStack()
    image = TrainingImage.from_dlc(stack, "Container", "pytorch", "2.13-cu133-amzn2023-sagemaker")
    more = {"checkpoints": stack.place("checkpoints/")} if "spot" in given else {}
    stack.workflow(image=image, **given, **more)
    assert ("spot-without-signal" in stack.warned()) == is_warned


def test_a_spot_job_in_an_image_of_ones_own_is_not() -> None:
    stack = UserStack()
    stack.task(spot=Spot(max_wait=100_000), checkpoints=stack.place("checkpoints/"))
    assert "spot-without-signal" not in stack.warned()


def test_a_number_of_the_executions_input_inside_a_value_is_refused_by_the_props_name() -> None:
    with pytest.raises(ValueError, match=r"^hyperparameters\['a'\] must be known at synthesis, except as a whole text"):
        warned(hyperparameters={"a": {"b": sfn.JsonPath.number_at("$.x")}})


def test_a_role_of_another_account_is_refused() -> None:
    stack = UserStack()
    foreign, own = (
        iam.Role.from_role_arn(stack, f"Role{account}", f"arn:aws:iam::{account}:role/training")
        for account in ("999999999999", "123456789012")
    )
    with pytest.raises(
        ValueError, match=r"^role must be one of the stack's account, 123456789012, .*got one of 999999999999"
    ):
        stack.task("Foreign", role=foreign)
    stack.task("Own", role=own)


def test_prefixes_of_jobs_names_that_begin_alike_are_warned_of() -> None:
    stack = UserStack()
    for id, prefix in {"One": "train", "Two": "train-big", "Three": "training"}.items():
        stack.task(id, job_name_prefix=prefix)
    assert stack.warned() == ["job-name-prefix-overlap"]


def notices(*topics: sns.ITopic, stack: UserStack) -> dict[str, Any]:
    stack.workflow(notify=list(topics))
    return stack.template()


@pytest.mark.parametrize("first", range(3))
def test_a_topic_and_a_key_of_another_app_are_warned_of_since_their_policies_must_allow_the_notice(first: int) -> None:
    stack = UserStack()
    imported = sns.Topic.from_topic_arn(stack, "Imported", "arn:aws:sns:us-east-1:123456789012:imported")
    key = kms.Key.from_key_arn(
        stack, "Key", "arn:aws:kms:us-east-1:123456789012:key/12345678-1234-1234-1234-123456789012"
    )
    topics = [imported, sns.Topic(stack, "Encrypted", master_key=key), sns.Topic(stack, "Own")]
    notices(*topics[first:], *topics[:first], stack=stack)
    assert sorted(stack.warned()) == ["notify-imported-key", "notify-imported-topic"]


def test_a_notice_that_is_not_delivered_is_in_the_guards_queue_whose_policy_does_not_grow_with_the_rules() -> None:
    stack = UserStack()
    topics = [sns.Topic(stack, f"Topic{number}") for number in range(2)]
    for number in range(5):
        stack.workflow(f"Workflow{number}", notify=topics)
    resources = stack.template()["Resources"].values()
    targets = [
        one for rule in resources if rule["Type"] == "AWS::Events::Rule" for one in rule["Properties"]["Targets"]
    ]
    assert len(targets) == 5 * 3 * 2 + 2
    assert all("DeadLetterConfig" in one for one in targets)
    [policy] = [one for one in resources if one["Type"] == "AWS::SQS::QueuePolicy"]
    statements = resolved(policy["Properties"]["PolicyDocument"]["Statement"])
    sources = [
        one["Condition"]["ArnLike"]["aws:SourceArn"] for one in statements if "ArnLike" in one.get("Condition", {})
    ]
    assert sources == ["arn:aws:events:us-east-1:123456789012:rule/Stack-*"]
    # The guard's own two rules, TLS, and this one: SQS takes 20 statements ("Quotas related to policies").
    assert len(statements) == 4
    assert GUARD
