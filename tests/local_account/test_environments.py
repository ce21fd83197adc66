from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import six

from sagemaker_local_account.images import environments
from sagemaker_local_account.images.container_packages import imported
from sagemaker_local_account.images.image_store import Image

if TYPE_CHECKING:
    from conftest import Builds, Wheels

DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker"


def installs(image: Image) -> list[str]:
    """The notes on what was installed: what the account's own environment has is only linked."""
    return [note for note in image.notes if note.startswith("installing")]


def test_any_run_but_pip_install_is_skipped_with_a_note(builds: Builds):
    notes = builds.build("RUN apt-get update && apt-get install -y git").notes
    assert "Dockerfile:2: skipped: RUN apt-get update && apt-get install -y git" in notes


def test_what_the_accounts_own_environment_satisfies_is_not_installed(builds: Builds):
    builds.file(
        "requirements.txt", "packaging>=24  # read\nbotocore ; python_version >= '3.11'\nnothing ; python_version < '3'"
    )
    image = builds.build(
        "COPY requirements.txt /opt/", "WORKDIR /opt", "RUN pip install --no-cache-dir -r requirements.txt"
    )
    assert not installs(image)


@pytest.mark.parametrize(
    "command",
    [
        "pip3 install -U packaging",
        "python3.11 -m pip install packaging",
        "/usr/bin/pip --no-cache-dir install packaging 2>&1",
        "uv pip install --system packaging",
        "uv pip install --python /usr/bin/python3 --torch-backend cpu packaging",
        "PIP_NO_INPUT=1 pip install --upgrade pip wheel && sudo pip install packaging > /dev/null",
        '["pip", "install", "packaging"]',
        "cd /opt && pip install packaging",
    ],
)
def test_pip_is_known_in_its_forms(builds: Builds, command: str):
    image = builds.build(f"RUN {command}")
    assert not any("skipped" in note for note in image.notes)
    assert not installs(image)
    assert run(image, "python", "-c", "import packaging; print(packaging.__name__)") == "packaging"


def test_lines_of_a_here_document_are_commands(builds: Builds):
    image = builds.build("RUN <<EOF", "pip install packaging", "echo done", "EOF")
    assert [note for note in image.notes if "skipped" in note] == ["Dockerfile:2: skipped: RUN echo done"]


def test_a_requirements_file_that_was_not_copied_is_refused_by_its_line(builds: Builds):
    message = builds.refused("RUN pip install -r /opt/requirements.txt")
    assert message == (
        "Dockerfile:2: pip install: no file '/opt/requirements.txt' is in the image at this line; copy it first, like "
        "'COPY requirements.txt /opt/'"
    )


def test_a_requirements_file_is_looked_for_where_cd_leads(builds: Builds):
    builds.file("requirements.txt", "packaging")
    image = builds.build(
        "COPY requirements.txt /opt/jobs/", "WORKDIR /opt", "RUN cd jobs && pip install -r requirements.txt"
    )
    assert not installs(image)


def test_a_requirements_file_can_be_mounted(builds: Builds):
    builds.file("requirements.txt", "packaging")
    mount = "--mount=type=bind,source=requirements.txt,target=/tmp/requirements.txt"
    assert not installs(builds.build(f"RUN {mount} pip install -r /tmp/requirements.txt"))


def test_a_word_that_is_no_requirement_is_refused(builds: Builds):
    message = "Dockerfile:2: pip install: 'pandas=2' is not a requirement like 'pandas==2.3.3'"
    assert builds.refused("RUN pip install pandas=2") == message


def test_installing_into_another_folder_is_refused(builds: Builds):
    message = "Dockerfile:2: pip install --target is not supported by the local account"
    assert builds.refused("RUN pip install --target /opt packaging") == message


def test_a_pip_install_within_another_command_is_refused_rather_than_skipped(builds: Builds):
    assert "'pip install' must be a command of its own" in builds.refused("RUN if true; then pip install x; fi")


def test_a_requirement_that_cannot_be_had_is_named_with_its_line(builds: Builds, wheels: Wheels):
    message = builds.refused("ENV A=1", "RUN pip install packaging jobtools==3.0")
    assert message.startswith(
        "Dockerfile:3: cannot install jobtools==3.0: Because there is no version of jobtools==3.0"
    )


def test_a_base_that_cannot_be_had_is_named(builds: Builds, wheels: Wheels):
    message = builds.refused(base=f"FROM {DLC.replace('2.13', '1.4')}")
    assert message.startswith("FROM: cannot install torch==1.4.*")


def run(image: Image, *command: str) -> str:
    path = f"{image.python}/bin:{os.environ['PATH']}"
    return subprocess.run(command, env={"PATH": path}, text=True, check=True, stdout=subprocess.PIPE).stdout.strip()


def version(image: Image, package: str = "jobtools") -> str:
    return run(image, "python", "-c", f"import {package}; print({package}.version)")


def fails(image: Image, program: str) -> str:
    """The last line that a Python program says, which the image's environment does not let run."""
    environment = {"PATH": f"{image.python}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["python", "-c", program], env=environment, text=True, capture_output=True)
    assert done.returncode == 1, done.stdout
    return done.stderr.splitlines()[-1]


@pytest.mark.soak  # makes one environment more
def test_what_is_lacking_is_installed_beside_what_the_account_has_of_it(builds: Builds, wheels: Wheels):
    image = builds.build("RUN pip install jobtools==1.0 packaging")
    assert image.python.parent == builds.state / "venvs"
    assert run(image, "python", "-c", "import jobtools, packaging; print(jobtools.version)") == "1.0"


def test_an_image_has_no_package_that_it_does_not_install(builds: Builds):
    assert fails(builds.build(), "import yaml, moto") == "ModuleNotFoundError: No module named 'yaml'"


@pytest.mark.soak  # makes one environment more
def test_a_virtual_environment_of_its_own_has_no_package_of_the_accounts(builds: Builds, wheels: Wheels):
    image = builds.build("RUN pip install jobtools==1.0")
    assert fails(image, "import jobtools, yaml") == "ModuleNotFoundError: No module named 'yaml'"


def test_an_image_has_what_its_packages_need_in_turn_and_what_shares_a_folder_with_it(builds: Builds):
    image = builds.build("RUN pip install gevent")
    assert run(image, "python", "-c", "import gevent, greenlet, zope.event, zope.interface; print(zope.event.__name__)")
    assert fails(image, "import requests") == "ModuleNotFoundError: No module named 'requests'"


def test_no_dependencies_come_with_no_deps(builds: Builds):
    image = builds.build("RUN pip install --no-deps botocore")
    assert fails(image, "import botocore.session") == "ModuleNotFoundError: No module named 'jmespath'"


@pytest.mark.soak  # makes two environments more
def test_a_newer_package_takes_the_place_of_the_accounts_own_which_stays_as_it_is(builds: Builds, wheels: Wheels):
    wheels.add("six", "99.0")
    builds.file("requirements.txt", "# A file without requirements, for which pip has nothing to install.")
    nothing = ["COPY requirements.txt /opt/", "RUN pip install -r /opt/requirements.txt"]
    image = builds.build(*nothing, "RUN pip install python-dateutil six==99.0")
    assert version(image, "six") == "99.0"
    assert six.__version__ != "99.0"
    assert "99" not in Path(six.__file__).read_text()


@pytest.mark.soak  # makes one environment more
def test_the_commands_of_its_packages_run_with_the_images_own_environment(builds: Builds, wheels: Wheels):
    image = builds.build("RUN pip install jobtools==1.0 pytest")
    test = builds.file("test_it.py", "import jobtools\n\ndef test_it(): pass\n")
    assert "1 passed" in run(image, "pytest", "-p", "no:cacheprovider", str(test))


def test_an_image_has_no_command_of_a_package_that_it_does_not_install(builds: Builds):
    commands = {path.name for path in (builds.build("RUN pip install sagemaker-training").python / "bin").iterdir()}
    assert "train" in commands
    assert not commands & {"torchrun", "moto_server", "pytest"}


def test_an_environment_is_made_once(builds: Builds, wheels: Wheels):
    first = builds.build("RUN pip install jobtools==1.0")
    second = builds.build("ENV A=1", "RUN pip install jobtools==1.0")
    assert first.python == second.python
    assert not any("virtual environment" in note for note in second.notes)


@pytest.mark.soak  # makes one environment more
def test_accounts_share_the_environments_in_a_folder_that_is_named_for_it(
    builds: Builds, wheels: Wheels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SAGEMAKER_LOCAL_ACCOUNT_VENVS", str(tmp_path / "shared"))
    image = builds.build("RUN pip install jobtools==1.0")
    assert image.python.parent == tmp_path / "shared"
    assert not (builds.state / "venvs").exists()


@pytest.mark.soak  # makes two environments more
def test_images_that_ask_for_different_versions_have_different_environments(builds: Builds, wheels: Wheels):
    one, two = (builds.build(f"RUN pip install jobtools=={version}") for version in ("1.0", "2.0"))
    assert [version(image) for image in (one, two)] == ["1.0", "2.0"]


@pytest.mark.soak  # makes two environments more
def test_an_environment_that_failed_is_not_kept(builds: Builds, wheels: Wheels):
    builds.refused("RUN pip install jobtools==3.0")
    wheels.add("jobtools", "3.0")
    image = builds.build("RUN pip install jobtools==3.0")
    assert version(image) == "3.0"


@pytest.mark.soak  # makes one environment more
def test_constraints_and_nested_requirements_count(builds: Builds, wheels: Wheels):
    builds.file("r/all.txt", "-r more.txt\n-c versions.txt")
    builds.file("r/more.txt", "jobtools")
    builds.file("r/versions.txt", "jobtools<2")
    image = builds.build("COPY r /r", "RUN pip install -r /r/all.txt")
    assert version(image) == "1.0"


def test_a_package_that_the_image_brings_is_installed(builds: Builds, wheels: Wheels):
    wheels.add("own", "0.1", builds.context)
    image = builds.build("COPY own-0.1-py3-none-any.whl /opt/", "RUN pip install /opt/own-0.1-py3-none-any.whl")
    assert run(image, "python", "-c", "import own; print(own.version)") == "0.1"


@pytest.mark.soak  # makes two environments more
def test_an_image_has_what_its_base_installed_even_from_a_file_that_it_replaces(builds: Builds, wheels: Wheels):
    builds.file("requirements.txt", "jobtools==1.0")
    lines = ("COPY requirements.txt /opt/", "RUN pip install -r /opt/requirements.txt")
    builds.build(*lines, tags=("base:1",))
    builds.file("requirements.txt", "packaging")
    image = builds.build(*lines, base="FROM base:1")
    assert version(image) == "1.0"


@pytest.mark.soak  # builds at once in several processes
def test_processes_that_build_the_same_at_once_make_one_environment(builds: Builds, wheels: Wheels):
    (builds.context / "Dockerfile").write_text("FROM python:3.11\nRUN pip install jobtools==1.0\n")
    started = [start_build(builds) for _ in range(3)]
    printed = {process.communicate()[0] for process in started}
    assert len(printed) == 1
    assert len([path for path in (builds.state / "venvs").iterdir() if path.is_dir()]) == 1


@pytest.mark.soak  # makes one environment more
def test_an_environment_that_another_process_makes_is_waited_for(builds: Builds, wheels: Wheels):
    made = builds.build("RUN pip install jobtools==1.0").python
    (made / "complete").unlink()
    (builds.context / "Dockerfile").write_text("FROM python:3.11\nRUN pip install jobtools==1.0\n")
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start_build(builds)
        while process.poll() is None and not waits_for_a_lock(process.pid):
            time.sleep(0.01)
        waited = process.poll() is None
        fcntl.flock(lock, fcntl.LOCK_UN)
    process.communicate()
    assert (waited, process.returncode) == (True, 0)


def start_build(builds: Builds) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SAGEMAKER_LOCAL_ACCOUNT_STATE": str(builds.state),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "sagemaker_local_account.images.docker", "build", "--quiet", "."]
    return subprocess.Popen(command, cwd=builds.context, env=environment, stdout=subprocess.PIPE)


def waits_for_a_lock(pid: int) -> bool:
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("->" in words and str(pid) in words for words in locks)


@pytest.mark.soak  # makes one environment twice
def test_an_environment_that_is_gone_is_made_again_when_a_job_starts(builds: Builds, wheels: Wheels):
    name = "123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1"
    shutil.rmtree(builds.build("RUN pip install jobtools==1.0", tags=(name,)).python)
    builds.store.push(name)
    assert version(builds.store.resolve(name)) == "1.0"


@pytest.mark.soak  # makes one environment more
def test_tensorflow_for_cpus_and_the_toolkit_stand_for_awss_container_for_tensorflow(builds: Builds, wheels: Wheels):
    for name, number in (
        ("tensorflow_cpu", "2.20.0"),
        ("tensorflow_cpu", "2.21.0"),
        ("sagemaker_tensorflow_training", "20.4.1"),
        ("sagemaker_tensorflow_training", "20.5.0"),
    ):
        wheels.add(name, number)
    container = "tensorflow-training:2.21-gpu-py312-cu129-amzn2023-sagemaker"
    image = builds.build(base=f"FROM public.ecr.aws/deep-learning-containers/{container}")
    found = [version(image, name) for name in ("tensorflow_cpu", "sagemaker_tensorflow_training")]
    assert found == ["2.21.0", "20.4.1"]
    assert image.env["SAGEMAKER_TRAINING_MODULE"] == "sagemaker_tensorflow_container.training:main"


CODE = ("ENV SAGEMAKER_PROGRAM=train.py", "COPY requirements.txt /opt/ml/code/")


def test_a_requirements_file_that_the_toolkit_would_install_at_start_is_installed_with_the_image(
    builds: Builds, wheels: Wheels
):
    builds.file("requirements.txt", "jobtools==1.0\n")
    image = builds.build(*CODE)
    assert version(image) == "1.0"
    assert (
        "Dockerfile: /opt/ml/code/requirements.txt is installed with the image; on AWS the training toolkit installs it "
        "whenever a host starts"
    ) in image.notes


def test_a_requirements_file_for_the_toolkit_that_cannot_be_had_fails_the_build(builds: Builds, wheels: Wheels):
    builds.file("requirements.txt", "jobtools==3.0\n")
    assert builds.refused(*CODE).startswith("Dockerfile: /opt/ml/code/requirements.txt: cannot install jobtools==3.0")


@pytest.mark.parametrize("line", ["git+https://example.com/tools.git", "tools @ https://example.com/tools.whl"])
def test_a_requirements_file_for_the_toolkit_that_needs_a_network_at_start_is_refused(builds: Builds, line: str):
    builds.file("requirements.txt", line)
    assert f"{line} must be installed by the Dockerfile" in builds.refused(*CODE)


def test_a_requirements_file_of_an_image_without_the_toolkits_script_is_no_requirement(builds: Builds, wheels: Wheels):
    builds.file("requirements.txt", "jobtools==3.0\n")
    assert not installs(builds.build(CODE[1]))


LISTED = f"FROM {DLC}"


def test_what_awss_container_has_and_the_account_has_not_is_installed_where_a_file_imports_it(
    builds: Builds, wheels: Wheels
):
    wheels.add("einops", "0.8.2")
    builds.file("train.py", "import os, einops.layers as layers\n")
    with_import, without = builds.build("COPY train.py /opt/", base=LISTED), builds.build(base=LISTED)
    assert version(with_import, "einops") == "0.8.2"
    assert fails(without, "import einops") == "ModuleNotFoundError: No module named 'einops'"


@pytest.mark.parametrize(
    ("name", "text", "runs"),
    [
        ("run.sh", "aws s3 sync s3://data/ /tmp\n", True),
        ("train.py", 'subprocess.run(["aws","--region", "us-east-1", "s3", "ls"])\n', True),
        ("train.py", "os.system('aws sts get-caller-identity')\n", True),
        ("train.py", "import aws_cdk\nfrom aws import s3\n", False),
        ("notes.txt", "aws s3 sync s3://data/ /tmp\n", False),
    ],
)
def test_a_file_that_runs_the_aws_cli_needs_it_as_one_that_imports_a_package_does(
    tmp_path: Path, name: str, text: str, runs: bool
) -> None:
    (tmp_path / name).write_text(text)
    assert ("awscli" in imported(tmp_path)) == runs


@pytest.mark.soak  # makes one environment more
def test_what_awss_container_has_and_cannot_be_had_here_is_noted(builds: Builds, wheels: Wheels):
    wheels.add("einops", "0.8.2")
    builds.file("train.py", "from deepspeed import zero\nimport einops\n")
    image = builds.build("COPY train.py /opt/", base=LISTED)
    assert version(image, "einops") == "0.8.2"
    assert any(
        note.startswith("FROM: cannot install deepspeed==0.19.2") and note.endswith("a job that imports it fails")
        for note in image.notes
    )


def test_a_package_that_awss_container_lacks_is_not_installed_by_an_import(builds: Builds, wheels: Wheels):
    builds.file("train.py", "import jobtools\n")
    image = builds.build("COPY train.py /opt/", base=LISTED)
    assert fails(image, "import jobtools") == "ModuleNotFoundError: No module named 'jobtools'"


@pytest.mark.soak  # makes one environment more
def test_the_hugging_face_container_has_what_awss_dockerfile_installs(builds: Builds, wheels: Wheels):
    container = "huggingface-pytorch-training:2.11.0-transformers5.13.1-gpu-py312-cu130-amzn2023"
    own = {
        "torch": "2.11.0",
        "transformers": "5.13.1",
        "accelerate": "1.14.0",
        "datasets": "5.0.0",
        "evaluate": "0.4.6",
    }
    own |= {"huggingface_hub": "1.23.0", "peft": "0.19.1"}
    for name, number in own.items():
        wheels.add(name, number)
    image = builds.build(base=f"FROM {DLC.partition('/')[0]}/{container}")
    program = f"print([__import__(name).version for name in {[*own]}])"
    assert run(image, "python", "-c", program) == str([*own.values()])


@pytest.mark.parametrize(
    ("script", "version", "linked"), [("trl", "0.28.0", False), ("trl", None, True), ("json", "0.28.0", True)]
)
def test_a_script_has_the_containers_version_of_trl_though_the_account_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, version: str | None, linked: bool
):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "train.py").write_text(f"import {script}\n")
    made = []
    monkeypatch.setattr(environments, "_make", lambda folder, parts, *_: (folder.mkdir(), made.append(parts)))
    line = f"trl=={version}" if version else "trl"
    environments.environment_for([], [line, "pandas"], [], tmp_path / "root", tmp_path, print)
    [parts] = made
    assert parts.there == (["trl", "pandas"] if linked else ["pandas"])
    assert parts.also == ([] if linked else ["trl==0.28.0"])
