"""`training-jobs adopt`: the stack of a request sends that request, and lists the members that it cannot send."""

from __future__ import annotations

import re
from dataclasses import fields
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
    SmpV1,
    SmpV2,
    Torchrun,
    unlisted,
)
from cdk_sagemaker_training.jobs.smp import _parameters_of
from training_jobs import TrainingError
from training_jobs.adopt import Adopted, adopted_stack
from training_jobs.adopt.export import sdk_call
from training_jobs.adopt.from_sdk import request_of_script
from training_jobs.adopt.launchers import decoded, launcher_of
from training_jobs.adopt.parallelism import MPI_OPTIONS, V1, V2, Smp
from training_jobs.adopt.python_source import Call, Name, source

ALL = [path.stem for path in sorted((SDK_REQUESTS / "recorded").glob("*.json")) if "request" in recorded(path.stem)]
MEMBERS = [case for case in ALL if case.startswith("members_")]
NOTEBOOKS = [case for case in ALL if case.startswith("notebook_")]
OTHERS = [case for case in ALL if not case.startswith(("members_", "notebook_"))]
# What the service refuses too, of what the SDK sends.
REFUSED = {
    "loose_augmented_manifest": "attribute_names must ",
    "loose_channel_of_no_group": r"channels\['images'\].groups must ",
    "loose_compressed_file": "compression must ",
    "loose_file_system_without_network": "network must ",
    "loose_isolated_remote_debug": "remote_debug must ",
    "loose_long": "max_runtime must ",
    "loose_registry_not_said": "private_registry must ",
    "loose_registry_without_network": "network must ",
    "loose_spot_training_plan": "training_plan must ",
    "loose_spot_wait": "spot.max_wait must ",
    "loose_spot_warm_pool": "warm_pool must ",
    "loose_volume_key": "volume_key must ",
    # What the SDK does not check of compilers and SMP, and the classes do.
    "smp_v1_other_version": "parameters must be those of SMP v1",
    "smp_v1_product": "parallelism must have degrees whose product divides 16 processes",
    "smp_v1_zero_tensor": "tensor_parallel_degree must be a whole number of at least 1",
    "smp_v2_library_version": "image_uri must be of a version, CUDA and Python that AWS has",
    "smp_v2_negative": "hybrid_shard_degree must be a whole number of at least 0",
    "smp_v2_other_version": "parameters must be those of SMP v2",
    "smp_v2_product": "parallelism must have degrees whose product divides 32 processes",
    "smtc_tensorflow_2.12": "image must be a container with the job's compiler",
    "smtc_tensorflow_xla": "image must be a container with the job's compiler",
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


@pytest.mark.soak
def test_stacks_send_the_requests_of_jobs_with_each_member_of_the_sdks() -> None:
    assert len(MEMBERS) == 40
    assert_sends_the_request(MEMBERS)


@pytest.mark.soak
def test_stacks_send_the_requests_of_launchers_compilers_and_what_the_service_refuses() -> None:
    assert len(OTHERS) == 80
    assert_sends_the_request(OTHERS)


def test_stacks_of_awss_notebooks_send_their_requests() -> None:
    assert len(NOTEBOOKS) == 13
    assert_sends_the_request(NOTEBOOKS)


# Of a notebook's job, as the source has it without spaces.
JOBS = {
    "notebook_compiler_bert": 'CompiledJob(InstanceGroup("ml.p3.2xlarge"), compiler=TrainingCompiler())',
    "notebook_compiler_language_modeling": 'CompiledJob(InstanceGroup("ml.p4d.24xlarge", 2), launcher=PyTorchXla(), '
    "compiler=TrainingCompiler())",
    "notebook_smp_v1_tensorflow": 'ModelParallelJob(InstanceGroup("ml.p3.16xlarge"), parallelism=SmpV1({"microbatches": 2, '
    '"partitions": 2, "pipeline": "interleaved", "optimize": "memory"}, '
    'custom_mpi_options="-verbose -x orte_base_help_aggregate=0 "), processes_per_host=2)',
    "notebook_smp_v2_gpt_neox": 'ModelParallelJob(InstanceGroup("ml.p4d.24xlarge"), parallelism=SmpV2(hybrid_shard_degree=4, '
    "sm_activation_offloading=True, activation_loading_horizon=2, tensor_parallel_degree=2))",
    "notebook_smp_v2_mixtral": 'ModelParallelJob(InstanceGroup("ml.p4d.24xlarge", 8), parallelism=SmpV2(hybrid_shard_degree=32, '
    "sm_activation_offloading=False, activation_loading_horizon=2, expert_parallel_degree=2))",
    "notebook_groups_pytorch": 'HeterogeneousJob(groups={"data_group": InstanceGroup("ml.c5.9xlarge")}, '
    'train=DataParallelJob(InstanceGroup("ml.p3.2xlarge")), train_group="dnn_group")',
    "smtc_tensorflow_own_image": 'DataParallelJob(InstanceGroup("ml.p3.2xlarge"))',
    "smp_v2_unknown": 'ModelParallelJob(InstanceGroup("ml.p5.48xlarge", 4), parallelism=SmpV2(more={unlisted("foo"): 1}))',
    "smp_v1_other_type": 'ModelParallelJob(InstanceGroup(unlisted("ml.g5.48xlarge"), 2), parallelism=SmpV1('
    '{"pipeline_parallel_degree": 2, "microbatches": 2}), processes_per_host=8)',
    "trainium": 'CompiledJob(InstanceGroup("ml.trn1.32xlarge", 2), launcher=Torchrun(), '
    'compiler=Neuron(cache=S3Prefix(bucket, "neuron-cache/"), compile_ahead=False))',
    "xla": 'CompiledJob(InstanceGroup("ml.p4d.24xlarge", 2), launcher=Torchrun(), compiler=TorchXla())',
    "xla_tensorflow": 'CompiledJob(InstanceGroup("ml.p3.2xlarge"), compiler=TensorFlowXla())',
}


@pytest.mark.parametrize("case", JOBS)
def test_compilers_and_parallelism_are_values_and_no_hyperparameters(case: str) -> None:
    [(_, adopted)] = adopted_of([case]).values()
    job = re.search(r"    job=(.*?),\n    image=", adopted.source, re.DOTALL)
    assert job
    assert (
        re.sub(r"([({])\s+|,?\s+(?=[)}])|\s+", lambda space: space[1] or (" " if space[0].isspace() else ""), job[1])
        == JOBS[case]
    )
    typed = ("mp_parameters", "sagemaker_training_compiler_enabled", "TRAINING_COMPILER", "NEURON_COMPILE")
    assert case == "smtc_tensorflow_own_image" or not any(
        name in adopted.source.split("TrainingWorkflow(")[1] for name in typed
    )


def test_a_job_with_torch_compile_is_a_compiled_job() -> None:
    variables = {
        "TRAINING_COMPILER": "inductor",
        "TRAINING_COMPILER_MODE": "max-autotune",
        "TRAINING_COMPILER_DYNAMIC": "false",
        "TORCHINDUCTOR_CACHE_DIR": "/opt/ml/checkpoints/compiler-cache",
    }
    adopted = adopted_stack({**REQUEST, "Environment": {"MODE": "fast", **variables}}, region="us-east-1")
    assert 'compiler=TorchCompile(mode="max-autotune")' in adopted.source
    assert 'environment={"MODE": "fast"}' in adopted.source


@pytest.mark.parametrize(("ours", "theirs"), [(V1, SmpV1), (V2, SmpV2)])
def test_the_parameters_and_types_of_smp_are_those_of_the_classes(ours: Smp, theirs: Any) -> None:
    assert (ours.parameters, ours.types) == (_parameters_of(theirs), theirs._types)
    default = next((field.default for field in fields(theirs) if field.name == "custom_mpi_options"), MPI_OPTIONS)
    assert default == MPI_OPTIONS


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


def lustre_channel(path: str) -> dict[str, Any]:
    """A channel of FSx for Lustre; AWS's notebooks of the model-parallel library have ``...`` to be filled in."""
    source = {"FileSystemId": "fs-0123456789abcdef0", "FileSystemType": "FSxLustre", "FileSystemAccessMode": "rw"}
    files = {"FileSystemDataSource": {**source, "DirectoryPath": path}}
    return {"ChannelName": "train", "DataSource": files}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"AlgorithmSpecification": {"AlgorithmName": "arn:algorithm"}}, "algorithm of AWS Marketplace"),
        ({"ResourceConfig": {}}, "has no machines"),
        ({"RoleArn": "Training"}, "RoleArn must be a role's ARN"),
        (
            {"InputDataConfig": [lustre_channel("...")]},
            r"DirectoryPath .* must be a slash, the mount name .*, got '\.\.\.'",
        ),
        ({"InputDataConfig": [lustre_channel("fsx/data")]}, "DirectoryPath .* got 'fsx/data'"),
        ({"InputDataConfig": [lustre_channel("//data")]}, "DirectoryPath .* got '//data'"),
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
