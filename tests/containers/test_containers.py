"""What the account does at a job's start, held against AWS's own sources: its containers, its toolkit, its service model."""

from __future__ import annotations

import importlib.util
import json
import re
from importlib.metadata import Distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import virtual_environments
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sagemaker_local_account.aws.sagemaker import attempt
from sagemaker_local_account.core.image_names import reference
from sagemaker_local_account.images import container_packages
from sagemaker_local_account.images.base_images import Base, base_of, deep_learning_container
from sagemaker_local_account.images.container_start import ENV_OF_FILES
from sagemaker_local_account.images.environments import environment_for, missing
from sagemaker_local_account.images.packages import closure

RECORDED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "recorded.json").read_text())
# What AWS's pyproject.toml of a container, or its Dockerfile, names.
LISTS: dict[str, list[str]] = json.loads((Path(__file__).parent / "lists.json").read_text())
# Of that, what is not here, and why.
NOT_HERE = {
    "tensorflow": "tensorflow-cpu stands in for it",
    "vllm": "brings PyTorch for CUDA along, and starts on no CPU",
}
TABLE: dict[str, dict[str, Any]] = json.loads(
    (Path(container_packages.__file__).parent / "container_packages.json").read_text()
)
PAGE = (Path(__file__).parents[2] / "docs" / "container.md").read_text()
ENTRYPOINT = "/usr/local/bin/entrypoint.py"
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
    assert int(said[1]) == attempt.STOP_SECONDS


@pytest.mark.parametrize(
    "dockerfile",
    # The entry point of TensorFlow 2.12's container is not recorded, and stays.
    sorted(path for path in TRAINING_CODE.glob("*/**/Dockerfile*") if path.parent.name != "resnet"),
    ids=lambda path: path.parent.name,
)
def test_each_image_of_ours_has_our_entry_point_before_that_of_what_it_begins_from(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    image = re.findall(r"^FROM (\S+)", text, re.MULTILINE)[0]  # another base has a script of the same name
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


def of_container(container: str) -> Base:
    """`pytorch 2.13-gpu` as the account has it."""
    repository, version, flavour = re.fullmatch(r"(\S+) ([\d.]+)-(\w+)", container).groups()  # type: ignore[union-attr]
    found = deep_learning_container(
        reference(f"763104351884.dkr.ecr.us-east-1.amazonaws.com/{repository}:{version}-{flavour}-sagemaker")
    )
    assert found is not None
    return found


@pytest.mark.parametrize("container", LISTS)
def test_a_container_has_the_packages_that_awss_sources_list(container: str) -> None:
    base = of_container(container)
    has = {canonicalize_name(Requirement(line).name): Requirement(line) for line in [*base.requirements, *base.listed]}
    wanted = {canonicalize_name(Requirement(line).name): Requirement(line) for line in LISTS[container]}
    unneeded = {name for name in wanted if re.match(r"nvidia-|cuda-", name)}
    assert set(wanted) - set(has) - unneeded - set(NOT_HERE) == set()
    for name in set(wanted) & set(has):
        [here] = [one.version for one in has[name].specifier] or [None]
        if here is not None:  # a version of the framework's is that of the tag, `2.12.*`
            [there] = [one.version for one in wanted[name].specifier if one.operator == "=="] or [here]
            assert has[name].specifier.contains(there) or wanted[name].specifier.contains(here), name


@pytest.mark.parametrize(
    "container",
    ["pytorch 2.13-cpu", "pytorch 2.13-gpu", "tensorflow-training 2.21-gpu", "huggingface-pytorch-training 2.11-gpu"],
)
def test_a_container_has_no_package_of_the_accounts_that_awss_sources_do_not_list(
    container: str, tmp_path: Path
) -> None:
    base = of_container(container)
    lacking = missing(base.requirements)  # which would be installed
    own = [line for line in base.requirements if line not in lacking]
    python = environment_for(own, base.listed, [], tmp_path, tmp_path, print)
    there = {
        canonicalize_name(one.name) for one in Distribution.discover(path=[str(*python.glob("lib/*/site-packages"))])
    }
    assert {"numpy", "pyyaml", "scikit-learn"} < there
    listed = {canonicalize_name(name) for name in TABLE[container]["packages"]}
    # AWS's Dockerfile of Hugging Face installs these by pip, with what they require, beside the packages of the lock file.
    by_pip = [
        Requirement(name) for name in ("transformers", "tensorboard", "trl") if container.startswith("huggingface")
    ]
    required = closure(by_pip, virtual_environments.own_package)
    assert there - listed - set(required) == set()


@pytest.mark.parametrize(("first", "then"), [("pytorch 2.11-gpu", "huggingface-pytorch-training 2.11-gpu")])
def test_a_container_that_begins_with_another_has_its_packages(first: str, then: str) -> None:
    assert set(TABLE[first]["packages"]) < set(TABLE[then]["packages"])


def test_a_tag_that_is_not_recorded_has_the_packages_of_the_nearest_of_any_version() -> None:
    near = {Requirement(line).name: line for line in of_container("pytorch 2.14-cpu").listed}
    recorded = {Requirement(line).name: line for line in of_container("pytorch 2.13-cpu").listed}
    assert set(near) == set(recorded)
    assert (near["pandas"], recorded["pandas"]) == (
        "pandas",
        f"pandas=={TABLE['pytorch 2.13-cpu']['packages']['pandas']}",
    )


def test_the_versions_of_hugging_faces_libraries_are_those_of_the_constructs_and_of_the_lock_file() -> None:
    account = json.loads(files("sagemaker_local_account.images").joinpath("huggingface.json").read_text())
    constructs = json.loads(files("cdk_sagemaker_training.facts").joinpath("huggingface.json").read_text())
    assert account == constructs
    newest = dict(zip(account["columns"], account["rows"][-1], strict=True))
    packages = TABLE["huggingface-pytorch-training 2.11-gpu"]["packages"]
    assert newest == {name: packages[name] for name in newest}


def test_an_older_container_of_hugging_face_has_its_own_versions_of_the_libraries() -> None:
    registry = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
    tag = "2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04"
    base = base_of(reference(f"{registry}/huggingface-pytorch-training:{tag}"))
    assert {"accelerate==1.12.0", "peft==0.18.1", "datasets==4.5.0", "transformers==5.3.*"} <= {*base.requirements}
    assert "trl==0.28.0" in base.listed
    unknown = base_of(reference(f"{registry}/huggingface-pytorch-training:{tag.replace('5.3.0', '5.2.0')}"))
    assert {"accelerate", "peft", "datasets"} <= {*unknown.requirements}
    assert "trl" in unknown.listed


@pytest.mark.parametrize("container", TABLE)
def test_the_page_has_the_source_of_each_list_of_packages(container: str) -> None:
    missing = [path for path in TABLE[container]["source"].split(", over ") if f"`{path}`" not in PAGE]
    assert missing == []
    assert (TABLE[container]["commit"][:10], TABLE[container]["date"]) == ("e0ecedea6a", "2026-08-21")
