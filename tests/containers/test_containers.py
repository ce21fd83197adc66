"""What the account does at a job's start, held against AWS's own sources: its containers, its toolkit, its service model."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from sagemaker_local_account import training
from sagemaker_local_account.base_images import Base, base_of
from sagemaker_local_account.container_start import ENV_OF_FILES
from sagemaker_local_account.references import reference

RECORDED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "recorded.json").read_text())
PAGE = (Path(__file__).parents[2] / "docs" / "container.md").read_text()
ENTRYPOINT = "/opt/ml/code/common/entrypoint.py"
TRAINING_CODE = Path(__file__).parents[2] / "training_code"


def the_accounts(image: str) -> Base:
    return base_of(reference(f"public.ecr.aws/deep-learning-containers/{image}"))


def the_script(image: str) -> str:
    """What stands in for the script in front."""
    name = Path(RECORDED[image]["script"]).name
    return next(text for path, text in the_accounts(image).start.files.items() if Path(path).name == name)


@pytest.mark.parametrize("image", RECORDED)
def test_a_container_starts_with_its_own_entry_point_in_its_own_folder(image: str) -> None:
    start, recorded = the_accounts(image).start, RECORDED[image]
    assert [*start.entrypoint] == recorded["entrypoint"]
    assert ([*start.cmd], start.workdir, "root") == (recorded["cmd"], recorded["workdir"], recorded["user"])


@pytest.mark.parametrize("image", RECORDED)
def test_a_container_has_its_environment_but_for_what_names_files_of_its_own(image: str) -> None:
    recorded = {name: value for name, value in RECORDED[image]["env"].items() if name not in ENV_OF_FILES}
    assert the_accounts(image).env == recorded


@pytest.mark.parametrize("image", RECORDED)
def test_the_script_in_front_leaves_bash_as_process_1_where_awss_does(image: str) -> None:
    execs = any(re.match(r"exec\b", line.strip()) for line in the_script(image).splitlines())
    assert execs == RECORDED[image]["execs"]


@pytest.mark.parametrize("image", RECORDED)
def test_no_script_in_front_passes_a_signal_on(image: str) -> None:
    assert not RECORDED[image]["traps"]
    assert "trap" not in the_script(image)


def test_the_shim_for_host_names_needs_a_program_that_the_container_lacks() -> None:
    recorded = RECORDED["pytorch:2.13-cu133-amzn2023-sagemaker"]
    assert (recorded["needs_jq"], recorded["has_jq"]) == (True, False)
    assert recorded["preloads"] == "/libchangehostname.so"
    assert recorded["workdir"] != "/"  # where its source is


@pytest.mark.parametrize("package", ["sagemaker_training", "sagemaker_pytorch_container"])
def test_the_toolkit_has_no_handler_of_sigterm(package: str) -> None:
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.submodule_search_locations
    sources = [path.read_text() for path in Path(found.submodule_search_locations[0]).rglob("*.py")]
    assert len(sources) > 1
    assert not [text for text in sources if "SIGTERM" in text]


@pytest.mark.parametrize("operation", ["StopTrainingJob"])
def test_a_host_has_as_long_from_sigterm_to_sigkill_as_the_service_model_says(operation: str) -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    text = re.sub(r"<[^>]+>", "", model.operation_model(operation).documentation)
    said = re.search(r"SIGTERM signal, which delays job termination for (\d+) seconds", text)
    assert said is not None
    assert int(said[1]) == training.STOP_SECONDS


@pytest.mark.parametrize(
    "dockerfile", sorted(TRAINING_CODE.glob("*/**/Dockerfile*")), ids=lambda path: path.parent.name
)
def test_each_image_of_ours_has_our_entry_point_before_that_of_what_it_begins_from(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    [image] = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    [entrypoint] = re.findall(r"^ENTRYPOINT (.*)", text, re.MULTILINE)
    assert json.loads(entrypoint) == ["python", ENTRYPOINT, *base_of(reference(image)).start.entrypoint]


@pytest.mark.parametrize("image", RECORDED)
def test_the_page_has_each_fact_with_its_source(image: str) -> None:
    recorded = RECORDED[image]
    facts = [
        *(recorded["dockerfile"], recorded["script"], recorded["commit"][:10], recorded["workdir"]),
        json.dumps(recorded["entrypoint"]),
        *recorded["env"],
    ]
    assert [fact for fact in facts if f"`{fact}`" not in PAGE] == []
