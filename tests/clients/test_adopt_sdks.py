"""`training-jobs adopt --sdk` of scripts of SageMaker's SDKs, versions 2 and 3, which run unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from adopted import differing, requests_of
from botocore.session import Session
from sdk_recordings import recorded
from two_groups import BUCKET, IMAGE, SOURCE

from cdk_sagemaker_training.adopt import adopted_stack
from cdk_sagemaker_training.adopt.export import sdk_call
from cdk_sagemaker_training.adopt.from_sdk import request_of_script

HERE = Path(__file__).parent
ROLE = "arn:aws:iam::123456789012:role/Training"
UPLOADED = {
    "v2": "/source/sourcedir.tar.gz",
    "v3": "/input/code/train.py",
}


@pytest.mark.soak
@pytest.mark.parametrize("version", UPLOADED)
def test_the_stack_of_a_script_sends_the_scripts_request(
    version: str, programs_of: Callable[[Path], Path], tmp_path: Path
) -> None:
    python = programs_of(HERE / f"requirements-{version}.txt") / "python"
    own_bucket = [BUCKET] if version == "v2" else []
    caught = request_of_script(
        HERE / f"sdk_{version}.py", [IMAGE, ROLE, str(SOURCE), str(tmp_path), *own_bucket], python=str(python)
    )
    assert [uri for uri in caught.uploads if uri.endswith(UPLOADED[version])]
    adopted = adopted_stack(caught.request, region=caught.region, uploads=caught.uploads)
    requests, _ = requests_of({version: adopted})
    listed = {it.member for it in adopted.differences}
    assert differing(caught.request, requests[version]) == listed
    others = {it for it in listed if not it.startswith("HyperParameters.sagemaker_")}
    assert others == {"TrainingJobName", "Tags[StepFunctionsExecution]"}
    assert 'groups={"data_group": InstanceGroup("ml.m5.large")}' in adopted.source


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
