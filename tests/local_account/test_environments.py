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

from sagemaker_local_account.images import Image

if TYPE_CHECKING:
    from conftest import Builds, Wheels

DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker"


def test_any_run_but_pip_install_is_skipped_with_a_note(builds: Builds):
    notes = builds.build("RUN apt-get update && apt-get install -y git").notes
    assert "Dockerfile:2: skipped: RUN apt-get update && apt-get install -y git" in notes


def test_what_the_accounts_own_environment_satisfies_needs_no_other(builds: Builds):
    builds.file(
        "requirements.txt", "packaging>=24  # read\nbotocore ; python_version >= '3.11'\nnothing ; python_version < '3'"
    )
    image = builds.build(
        "COPY requirements.txt /opt/", "WORKDIR /opt", "RUN pip install --no-cache-dir -r requirements.txt"
    )
    assert image.python == Path(sys.prefix)


@pytest.mark.parametrize(
    "command",
    [
        "pip3 install -U packaging",
        "python3.11 -m pip install packaging",
        "/usr/bin/pip --no-cache-dir install packaging 2>&1",
        "uv pip install --system packaging",
        "PIP_NO_INPUT=1 pip install --upgrade pip wheel && sudo pip install packaging > /dev/null",
        '["pip", "install", "packaging"]',
        "cd /opt && pip install packaging",
    ],
)
def test_pip_is_known_in_its_forms(builds: Builds, command: str):
    image = builds.build(f"RUN {command}")
    assert not any("skipped" in note for note in image.notes)
    assert image.python == Path(sys.prefix)


def test_lines_of_a_here_document_are_commands(builds: Builds):
    image = builds.build("RUN <<EOF", "pip install packaging", "echo done", "EOF")
    assert [note for note in image.notes if "skipped" in note] == ["Dockerfile:2: skipped: RUN echo done"]


def test_a_requirements_file_that_was_not_copied_is_refused_by_its_line(builds: Builds):
    message = builds.refused("RUN pip install -r /opt/requirements.txt")
    assert message == (
        "Dockerfile:2: pip install: no file '/opt/requirements.txt' is in the image at this line; copy it before, like "
        "'COPY requirements.txt /opt/'"
    )


def test_a_requirements_file_is_looked_for_where_cd_leads(builds: Builds):
    builds.file("requirements.txt", "packaging")
    image = builds.build(
        "COPY requirements.txt /opt/jobs/", "WORKDIR /opt", "RUN cd jobs && pip install -r requirements.txt"
    )
    assert image.python == Path(sys.prefix)


def test_a_requirements_file_can_be_mounted(builds: Builds):
    builds.file("requirements.txt", "packaging")
    mount = "--mount=type=bind,source=requirements.txt,target=/tmp/requirements.txt"
    assert builds.build(f"RUN {mount} pip install -r /tmp/requirements.txt").python == Path(sys.prefix)


def test_a_word_that_is_no_requirement_is_refused(builds: Builds):
    message = "Dockerfile:2: pip install: 'pandas=2' is not a requirement like 'pandas==2.3.3'"
    assert builds.refused("RUN pip install pandas=2") == message


def test_installing_into_another_folder_is_refused(builds: Builds):
    message = "Dockerfile:2: pip install --target is not known to the local account"
    assert builds.refused("RUN pip install --target /opt packaging") == message


def test_a_pip_install_within_another_command_is_refused_rather_than_skipped(builds: Builds):
    assert "'pip install' must be a command of its own" in builds.refused("RUN if true; then pip install x; fi")


def test_a_requirement_that_cannot_be_had_is_named_with_its_line(builds: Builds, wheels: Wheels):
    message = builds.refused("ENV A=1", "RUN pip install packaging jobtools==3.0")
    assert message.startswith("Dockerfile:3: jobtools==3.0 cannot be had: ERROR: Could not find a version")


def test_a_base_that_cannot_be_had_is_named(builds: Builds, wheels: Wheels):
    message = builds.refused(base=f"FROM {DLC.replace('2.13', '1.4')}")
    assert message.startswith("FROM: torch==1.4.* cannot be had")


def run(image: Image, *command: str) -> str:
    path = f"{image.python}/bin:{os.environ['PATH']}"
    return subprocess.run(command, env={"PATH": path}, text=True, check=True, stdout=subprocess.PIPE).stdout.strip()


def version(image: Image, package: str = "jobtools") -> str:
    return run(image, "python", "-c", f"import {package}; print({package}.version)")


def test_what_is_lacking_is_installed_over_the_accounts_own_environment(builds: Builds, wheels: Wheels):
    image = builds.build("RUN pip install jobtools==1.0")
    assert image.python.parent == builds.state / "venvs"
    assert run(image, "python", "-c", "import jobtools, packaging; print(jobtools.version)") == "1.0"


def test_the_accounts_commands_run_with_the_images_own_environment(builds: Builds, wheels: Wheels):
    image = builds.build("RUN pip install jobtools==1.0")
    test = builds.file("test_it.py", "import jobtools\n\ndef test_it(): pass\n")
    assert "1 passed" in run(image, "pytest", "-p", "no:cacheprovider", str(test))


def test_an_environment_is_made_once(builds: Builds, wheels: Wheels):
    first = builds.build("RUN pip install jobtools==1.0")
    second = builds.build("ENV A=1", "RUN pip install jobtools==1.0")
    assert first.python == second.python
    assert not any("virtual environment" in note for note in second.notes)


def test_accounts_share_the_environments_in_a_folder_that_is_named_for_it(
    builds: Builds, wheels: Wheels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SAGEMAKER_LOCAL_ACCOUNT_VENVS", str(tmp_path / "shared"))
    image = builds.build("RUN pip install jobtools==1.0")
    assert image.python.parent == tmp_path / "shared"
    assert not (builds.state / "venvs").exists()


def test_images_that_ask_for_different_versions_have_different_environments(builds: Builds, wheels: Wheels):
    one, two = (builds.build(f"RUN pip install jobtools=={version}") for version in ("1.0", "2.0"))
    assert [version(image) for image in (one, two)] == ["1.0", "2.0"]


def test_an_environment_that_failed_is_not_kept(builds: Builds, wheels: Wheels):
    builds.refused("RUN pip install jobtools==3.0")
    wheels.add("jobtools", "3.0")
    image = builds.build("RUN pip install jobtools==3.0")
    assert version(image) == "3.0"


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


def test_an_image_has_what_its_base_installed_even_from_a_file_that_it_replaces(builds: Builds, wheels: Wheels):
    builds.file("requirements.txt", "jobtools==1.0")
    lines = ("COPY requirements.txt /opt/", "RUN pip install -r /opt/requirements.txt")
    builds.build(*lines, tags=("base:1",))
    builds.file("requirements.txt", "packaging")
    image = builds.build(*lines, base="FROM base:1")
    assert version(image) == "1.0"


def test_processes_that_build_the_same_at_once_make_one_environment(builds: Builds, wheels: Wheels):
    (builds.context / "Dockerfile").write_text("FROM python:3.11\nRUN pip install jobtools==1.0\n")
    started = [start_build(builds) for _ in range(3)]
    printed = {process.communicate()[0] for process in started}
    assert len(printed) == 1
    assert len([path for path in (builds.state / "venvs").iterdir() if path.is_dir()]) == 1


def test_an_environment_that_another_process_makes_is_waited_for(builds: Builds, wheels: Wheels):
    made = builds.build("RUN pip install jobtools==1.0").python
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
    command = [sys.executable, "-m", "sagemaker_local_account.docker", "build", "--quiet", "."]
    return subprocess.Popen(command, cwd=builds.context, env=environment, stdout=subprocess.PIPE)


def waits_for_a_lock(pid: int) -> bool:
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("->" in words and str(pid) in words for words in locks)


def test_an_environment_that_is_gone_is_made_again_when_a_job_starts(builds: Builds, wheels: Wheels):
    name = "123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1"
    shutil.rmtree(builds.build("RUN pip install jobtools==1.0", tags=(name,)).python)
    builds.store.push(name)
    assert version(builds.store.resolve(name)) == "1.0"


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
