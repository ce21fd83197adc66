"""`training-jobs adopt`: the stack of a request sends that request, and lists the members that it cannot send."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from adopted import differing, requests_of
from botocore.session import Session
from sdk_recordings import SDK_REQUESTS, recorded

import cdk_sagemaker_training
from cdk_sagemaker_training import (
    InstanceGroup,
    Mpi,
    MultiWorkerMirrored,
    ParameterServer,
    PyTorchDdp,
    SmDdp,
    Torchrun,
    unlisted,
)
from training_jobs import TrainingError
from training_jobs.adopt import Adopted, adopted_stack
from training_jobs.adopt.export import sdk_call
from training_jobs.adopt.from_sdk import request_of_script
from training_jobs.adopt.launchers import decoded, launcher_of
from training_jobs.adopt.python_source import Call, Name, source

ALL = [path.stem for path in sorted((SDK_REQUESTS / "recorded").glob("*.json")) if "request" in recorded(path.stem)]
MEMBERS = [case for case in ALL if case.startswith("members_")]
OTHERS = [case for case in ALL if not case.startswith("members_")]
# What the service refuses too, of what the SDK sends.
REFUSED = {
    "loose_augmented_manifest": "attribute_names must ",
    "loose_channel_of_no_group": r"channels\['images'\].groups must ",
    "loose_compressed_file": "compression must ",
    "loose_file_system_without_network": "network must ",
    "loose_isolated_remote_debug": "remote_debug must ",
    "loose_long": "max_runtime must ",
    "loose_metric_without_value": r"metric_definitions\['loss'\] must ",
    "loose_registry_not_said": "private_registry must ",
    "loose_registry_without_network": "network must ",
    "loose_spot_training_plan": "training_plan must ",
    "loose_spot_wait": "spot.max_wait must ",
    "loose_spot_warm_pool": "warm_pool must ",
    "loose_volume_key": "volume_key must ",
}
ALWAYS = {"TrainingJobName", "Tags[StepFunctionsExecution]"}
# Which the constructs add where a job has several hosts.
BETWEEN_HOSTS = {"Environment.GLOO_SOCKET_IFNAME", "Environment.NCCL_SOCKET_IFNAME"}
# Hyperparameters whose text is another, from which SageMaker's toolkit reads the same.
TEXTS = re.compile(r"HyperParameters\.\w+")
# Besides these, what a stack cannot say of a recording.
UNSAID = {
    "members_checkpoint_path": {"CheckpointConfig.S3Uri"},
    "members_checkpoints": {"CheckpointConfig.S3Uri"},
    "members_spot": {"CheckpointConfig.S3Uri"},
    "members_groups_some_channels": {"InputDataConfig[labels].DataSource.S3DataSource.InstanceGroupNames"},
    "loose_spot_without_wait": {"StoppingCondition.MaxWaitTimeInSeconds"},
    "loose_wait_without_spot": {"StoppingCondition.MaxWaitTimeInSeconds"},
    "loose_tag": {"Tags[aws:team]"},
    "torchrun_groups": {"HyperParameters.sagemaker_distribution_instance_groups"},
}
REQUEST: dict[str, Any] = recorded("members_plain")["request"]


def adopted_of(cases: list[str]) -> dict[str, tuple[dict[str, Any], Adopted]]:
    found = {}
    for number, case in enumerate(cases):
        request = {**recorded(case)["request"], "TrainingJobName": f"case-{number}"}
        found[case] = (request, adopted_stack(request, region="us-east-1"))
    return found


def assert_sends_the_request(cases: list[str]) -> None:
    """Each stack's request is the recorded one but for the differences that it lists, which are ``UNSAID``."""
    adopted = adopted_of(cases)
    requests, refused = requests_of({case: one for case, (_, one) in adopted.items()})
    assert sorted(refused) == sorted(REFUSED.keys() & adopted.keys())
    assert [case for case, error in refused.items() if not re.match(REFUSED[case], error)] == []
    listed = {case: {it.member for it in adopted[case][1].differences} for case in requests}
    assert {case: differing(adopted[case][0], request) for case, request in requests.items()} == listed
    unsaid = {
        case: {it for it in of - ALWAYS - BETWEEN_HOSTS if not TEXTS.fullmatch(it)} for case, of in listed.items()
    }
    of_text = {case: members for case, members in UNSAID.items() if not any(map(TEXTS.fullmatch, members))}
    assert {case: members for case, members in unsaid.items() if members} == {
        case: of_text[case] for case in of_text if case in requests
    }


def test_stacks_send_the_requests_of_jobs_with_each_member_of_the_sdks() -> None:
    assert len(MEMBERS) == 40
    assert_sends_the_request(MEMBERS)


@pytest.mark.soak
def test_stacks_send_the_requests_of_launchers_compilers_and_what_the_service_refuses() -> None:
    assert len(OTHERS) == 80
    assert_sends_the_request(OTHERS)


def test_a_launcher_in_several_groups_is_listed() -> None:
    [adopted] = [one for _, one in adopted_of(["torchrun_groups"]).values()]
    [difference] = [it for it in adopted.differences if it.member.endswith("instance_groups")]
    assert difference.value is None
    assert difference.why == "HeterogeneousJob adds it with train_group, here the last group, 'dnn_group'"


# Launchers with the arguments of which their hyperparameters tell.
LAUNCHERS = [
    Torchrun(),
    Torchrun(processes_per_host=4),
    Mpi(),
    Mpi(processes_per_host=8, custom_mpi_options="-x NCCL_DEBUG=WARN"),
    SmDdp(),
    SmDdp(custom_mpi_options="-x NCCL_DEBUG=WARN"),
    SmDdp(launch_by="torchrun"),
    PyTorchDdp(),
    PyTorchDdp(processes_per_host=8),
    MultiWorkerMirrored(),
    ParameterServer(),
]


@pytest.mark.parametrize(
    "instance_type", ["ml.m5.xlarge", "ml.g5.xlarge", "ml.p4d.24xlarge", "ml.p5.48xlarge", "ml.trn1.32xlarge"]
)
@pytest.mark.parametrize("launcher", LAUNCHERS, ids=repr)
@pytest.mark.parametrize("alone", [True, False])
def test_a_launcher_is_found_by_the_hyperparameters_that_its_class_sets(
    launcher: Any, instance_type: str, alone: bool
) -> None:
    group = InstanceGroup(instance_type)
    try:
        sets = dict(launcher.hyperparameters(group))
    except ValueError:
        sets = launcher.hyperparameters(
            InstanceGroup(unlisted(instance_type))
        )  # as a request may have them all the same
        found = launcher_of(instance_type, sets, alone=alone)
        assert found is None or found[0].function != type(launcher).__name__
        return
    found = launcher_of(instance_type, {"epochs": "3", **sets}, alone=alone)
    if launcher.alone_because and not alone:
        assert found is None
        return
    assert found is not None
    call, members = found
    assert getattr(cdk_sagemaker_training, call.function)(*call.arguments, **call.keywords) == launcher
    assert members == {name: decoded(text) for name, text in sets.items()}


@pytest.mark.parametrize(
    "hyperparameters",
    [
        {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": "\"-x A='b'\""},
        {"sagemaker_torch_distributed_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "0"},
        {"sagemaker_torch_distributed_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": '"two"'},
        {"sagemaker_pytorch_ddp_enabled": "true"},
    ],
)
def test_hyperparameters_that_no_launcher_sets_have_none(hyperparameters: dict[str, str]) -> None:
    assert launcher_of("ml.g5.xlarge", hyperparameters, alone=True) is None


def test_each_difference_is_a_comment_above_the_workflow() -> None:
    [adopted] = [one for _, one in adopted_of(["members_spot"]).values()]
    assert "# - CheckpointConfig.S3Uri 's3://bucket/checkpoints/': each execution has a folder" in adopted.source


def test_what_no_prop_sets_is_listed_with_its_value() -> None:
    adopted = adopted_stack({**REQUEST, "ServerlessJobConfig": {"BaseModelArn": "arn"}}, region="us-east-1")
    [difference] = [it for it in adopted.differences if it.member.startswith("Serverless")]
    assert (difference.member, difference.value) == ("ServerlessJobConfig.BaseModelArn", "arn")


def test_a_type_that_this_library_does_not_know_is_unlisted() -> None:
    machines = {**REQUEST["ResourceConfig"], "InstanceType": "ml.c5.xlrage"}
    adopted = adopted_stack({**REQUEST, "ResourceConfig": machines}, region="us-east-1")
    assert 'InstanceGroup(unlisted("ml.c5.xlrage"), 2)' in adopted.source


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"AlgorithmSpecification": {"AlgorithmName": "arn:algorithm"}}, "algorithm of AWS Marketplace"),
        ({"ResourceConfig": {}}, "has no machines"),
        ({"RoleArn": "Training"}, "RoleArn must be a role's ARN"),
        ({"OutputDataConfig": {"S3OutputPath": "models"}}, "an S3 URI must be like"),
    ],
)
def test_a_job_that_no_workflow_can_run_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        adopted_stack({**REQUEST, **changed}, region="us-east-1")


def test_source_is_on_several_lines_where_one_is_too_long() -> None:
    assert source(Call("f", (Name("a"), "b\\d"), {"c": [1, float("nan")], "d": None})) == (
        'f(a, r"b\\d", c=[1, float("nan")])'
    )
    assert source({"name": "x" * 100}) == '{\n    "name": "' + "x" * 100 + '",\n}'


# A script that does what SageMaker's SDK does, by boto3 as it does, and hides errors as scripts do.
SCRIPT = """
import sys

import boto3

try:
    bucket = "sagemaker-us-west-2-" + boto3.client("sts").get_caller_identity()["Account"]
    role = boto3.client("iam").get_role(RoleName="Training")["Role"]["Arn"]
    boto3.client("s3").put_object(Bucket=bucket, Key="source/sourcedir.tar.gz", Body=b"")
    boto3.client("sagemaker").create_training_job(
        TrainingJobName=sys.argv[1],
        RoleArn=role,
        OutputDataConfig={"S3OutputPath": f"s3://{bucket}/models/"},
    )
except Exception:
    print("the script goes on")
"""


def script_of(folder: Path, text: str) -> Path:
    script = folder / "script.py"
    script.write_text(text)
    return script


def test_a_scripts_request_is_caught_with_what_it_would_upload(tmp_path: Path) -> None:
    caught = request_of_script(script_of(tmp_path, SCRIPT), ["digits"], account="210987654321", region="us-west-2")
    assert caught.request == {
        "TrainingJobName": "digits",
        "RoleArn": "arn:aws:iam::210987654321:role/Training",
        "OutputDataConfig": {"S3OutputPath": "s3://sagemaker-us-west-2-210987654321/models/"},
    }
    assert caught.region == "us-west-2"
    assert caught.uploads == ("s3://sagemaker-us-west-2-210987654321/source/sourcedir.tar.gz",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import urllib.request as r; r.urlopen('http://localhost:9')", "the script has no network"),
        ("import boto3; boto3.client('s3').get_object(Bucket='b', Key='k')", "s3:GetObject has no answer without"),
        ("import sagemaker_of_nobody", "needs SageMaker's SDK: `pip install 'training-jobs[sagemaker]'"),
        ("print('done')", "starts no training job"),
    ],
)
def test_a_script_that_starts_no_job_says_why(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=re.escape(words)):
        request_of_script(script_of(tmp_path, text))


def test_an_exported_request_is_the_sdks_own_call() -> None:
    shape = Session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    request = {
        **REQUEST,
        "Tags": [{"Key": "team", "Value": "vision"}, {"Key": "StepFunctionsExecution", "Value": "arn"}],
    }
    exported = sdk_call(request, shape, "training")
    assert "from sagemaker.core.resources import Tag, TrainingJob\n" in exported
    assert '    tags=[Tag(key="team", value="vision")],\n' in exported
    assert "volume_size_in_gb=30" in exported
    assert "training_job_name=f\"training-{time.strftime('%Y-%m-%d-%H-%M-%S')}\"" in exported
    compile(exported, "exported", "exec")
