"""`training-jobs adopt --sdk` of scripts of SageMaker's SDKs, versions 2 and 3, which run unchanged, and the way back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import aws_cdk as cdk
import pytest
from adopted import differing, requests_of
from aws_cdk import aws_stepfunctions as sfn
from botocore.session import Session
from sdk_recordings import recorded
from stacks import RenderedWorkflow, UserStack
from two_groups import BUCKET, IMAGE, SOURCE
from whole_requests import ON_GROUPS

from cdk_sagemaker_training import S3Channel, Spot, TrainingNetwork
from training_jobs import Account, Workflow
from training_jobs.adopt import adopted_stack
from training_jobs.adopt.export import sdk_call
from training_jobs.adopt.from_sdk import Caught, request_of_script

HERE = Path(__file__).parent
ROLE = "arn:aws:iam::123456789012:role/Training"
UPLOADED = {
    "v2": "/source/sourcedir.tar.gz",
    "v3": "/input/code/train.py",
}


def caught_of(version: str, image: str, programs_of: Callable[[Path], Path], folder: Path) -> Caught:
    """What a version's script would send, by its own Python."""
    python = programs_of(HERE / f"requirements-{version}.txt") / "python"
    given = [image, ROLE, str(SOURCE), str(folder), *([BUCKET] if version == "v2" else [])]
    return request_of_script(HERE / f"sdk_{version}.py", given, python=str(python))


@pytest.mark.soak
@pytest.mark.parametrize("version", UPLOADED)
def test_the_stack_of_a_script_sends_the_scripts_request(
    version: str, programs_of: Callable[[Path], Path], tmp_path: Path
) -> None:
    caught = caught_of(version, IMAGE, programs_of, tmp_path)
    assert [uri for uri in caught.uploads if uri.endswith(UPLOADED[version])]
    adopted = adopted_stack(caught.request, region=caught.region, uploads=caught.uploads)
    requests, _ = requests_of({version: adopted})
    listed = {it.member for it in adopted.differences}
    assert differing(caught.request, requests[version]) == listed
    others = {it for it in listed if not it.startswith("HyperParameters.sagemaker_")}
    between_hosts = {"Environment.GLOO_SOCKET_IFNAME", "Environment.NCCL_SOCKET_IFNAME"}
    assert others == {"TrainingJobName", "Tags[StepFunctionsExecution]", *between_hosts}
    assert 'groups={"data_group": InstanceGroup("ml.m5.large")}' in adopted.source


@pytest.mark.soak
@pytest.mark.parametrize("version", UPLOADED)
def test_the_stack_of_a_script_uploads_its_folder_for_awss_container(
    version: str, programs_of: Callable[[Path], Path], tmp_path: Path
) -> None:
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
    caught = caught_of(version, image, programs_of, tmp_path)
    adopted = adopted_stack(caught.request, region=caught.region, source_code=caught.source)
    requests, refused = requests_of({version: adopted})
    assert refused == {}
    assert f'{SOURCE.name}", entry_point="train.py")' in adopted.source
    listed = {it.member for it in adopted.differences}
    of_members = {
        it.partition("]")[0] + "]" if "]" in it else it for it in differing(caught.request, requests[version])
    }
    channels = {f"InputDataConfig[{name}]" for name in ("code", "sm_drivers")} if version == "v3" else set()
    tagged = {it for it in listed if it.startswith("Tags[")}
    assert of_members | tagged == listed
    assert channels <= listed


@pytest.mark.soak
@pytest.mark.parametrize(
    "case",
    [
        "members_debugger",
        "members_fsx",
        "members_groups_mpi",
        "members_profiler",
        "members_script",
        "members_training_plan",
    ],
)
def test_an_exported_call_sends_the_request(case: str, programs_of: Callable[[Path], Path], tmp_path: Path) -> None:
    request = recorded(case)["request"]
    shape = Session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    (tmp_path / "exported.py").write_text(sdk_call(request, shape, "digits"))
    python = programs_of(HERE / "requirements-v3.txt") / "python"
    caught = request_of_script(tmp_path / "exported.py", python=str(python))
    assert differing(request, caught.request) == {"TrainingJobName"}


A_NOTEBOOK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from training_jobs import Account

workflow = Account().workflow("arn:aws:states:us-east-1:123456789012:stateMachine:Training")
workflow._definition = json.loads(open(sys.argv[2]).read())
workflow.model_trainer({"steps": 3}).train(wait=False)
"""


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["one group", "two groups", "network and spot"])
def test_a_workflows_model_trainer_sends_the_workflows_request(
    kind: str, programs_of: Callable[[Path], Path], tmp_path: Path
) -> None:
    stack = UserStack()
    props = {
        "one group": {"tags": {"team": "digits"}, "metric_definitions": {"loss": "loss=([0-9.]+)"}},
        "two groups": {
            "job": ON_GROUPS,
            "channels": {"images": S3Channel(stack.bucket, "images/", groups=["data_group"])},
            "environment": {"MODE": "fast"},
            "remote_debug": True,
        },
        "network and spot": {
            "network": TrainingNetwork(stack, "Network", max_azs=2) if kind == "network and spot" else None,
            "checkpoints": stack.place("checkpoints"),
            "spot": Spot(max_wait=cdk.Duration.hours(3)),
            "max_runtime": cdk.Duration.hours(2),
        },
    }[kind]
    steps = {"hyperparameters": {"epochs": 4, "steps": sfn.JsonPath.string_at("$.steps")}}
    rendered = RenderedWorkflow(stack, **steps, **props)
    # What CloudFormation resolves: the role, and the network's groups and subnets.
    definition = json.dumps(rendered.definition).replace(rendered.request["RoleArn"], ROLE)
    definition = re.sub(r"\{(\w+)(\.\w+)?\}", r"\1", definition)
    (tmp_path / "definition.json").write_text(definition)
    (tmp_path / "notebook.py").write_text(A_NOTEBOOK)
    python = programs_of(HERE / "requirements-v3.txt") / "python"
    arguments = [str(HERE.parents[1] / "training_jobs"), str(tmp_path / "definition.json")]
    caught = request_of_script(tmp_path / "notebook.py", arguments, python=str(python))
    workflow = Workflow(Account(region="us-east-1"), "arn", path="Stack/Training")
    workflow._definition = json.loads(definition)
    [planned] = workflow.planned_requests({"steps": 3}, name="first")
    # Checkpoints have a folder with the execution's name, which is a new one each time.
    named = {"CheckpointConfig.S3Uri"} if kind == "network and spot" else set()
    assert differing(planned, caught.request) == {"TrainingJobName", "Tags[StepFunctionsExecution]", *named}
