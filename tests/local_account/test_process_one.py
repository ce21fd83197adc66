"""Process 1 of a container: AWS's bash and toolkit drop SIGTERM, and the images' entry point in front of them forwards it."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from host_jobs import ENVIRONMENT, SECONDS, Job

from cdk_sagemaker_training import training_code_path
from sagemaker_local_account.core.image_names import reference
from sagemaker_local_account.images import container_start
from sagemaker_local_account.images.base_images import base_of

AWS = "public.ecr.aws/deep-learning-containers"
PYTORCH, TENSORFLOW = container_start.PYTORCH, container_start.TENSORFLOW
OURS = ("python", "/usr/local/bin/entrypoint.py")
SCRIPT = """
import os, signal, subprocess, sys
def stop(*_):
    print("checkpoint", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, stop)
first = open("/proc/1/cmdline").read().split(chr(0))[0]
print(f"training below {first}\\n", end="", flush=True)
open("/opt/ml/gate").read()
print("trained to the end", flush=True)
"""


def copy_entry_point(folder: Path) -> None:
    """As ``COPY entrypoint/entrypoint.py /usr/local/bin/`` of our images."""
    programs = folder / "image" / "usr" / "local" / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(training_code_path()) / "entrypoint" / "entrypoint.py", programs)


def container(folder: Path, image: str, *command: str) -> Job:
    """A host with one of AWS's images as the account has them, of which the toolkit is the real one."""
    base = base_of(reference(f"{AWS}/{image}"))
    base.write_files(folder / "image")
    code = folder / "image" / "opt" / "ml" / "code"
    copy_entry_point(folder)
    code.mkdir(parents=True, exist_ok=True)
    (code / "train.py").write_text(SCRIPT)
    config = folder / "algo-1" / "opt" / "ml" / "input" / "config"
    config.mkdir(parents=True)
    os.mkfifo(folder / "algo-1" / "opt" / "ml" / "gate")
    group = {"instance_group_name": "homogeneousCluster", "instance_type": "ml.m5.large", "hosts": ["algo-1"]}
    resources = {
        "current_host": "algo-1",
        "current_instance_type": "ml.m5.large",
        "current_group_name": "homogeneousCluster",
        "hosts": ["algo-1"],
        "instance_groups": [group],
        "network_interface_name": "eth0",
    }
    for name, content in {"resourceconfig": resources, "hyperparameters": {}, "inputdataconfig": {}}.items():
        (config / f"{name}.json").write_text(json.dumps(content))
    environment = {
        **ENVIRONMENT,
        **base.env,
        "SAGEMAKER_PROGRAM": "train.py",
        "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/code",
        # PyTorch's module is the one of the two that is installed here; which it is has no part in signals.
        "SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container.training:main",
    }
    return Job(folder, (*command, "train"), environment=environment, working_directory=base.start.workdir)


def training(job: Job) -> str:
    """Wait until the script has a handler; the program that is process 1."""
    while not (line := job.line()[1]).startswith("training below"):
        pass
    return line.rpartition(" ")[2]


@pytest.mark.soak  # what the other test shows is of our entry point
@pytest.mark.parametrize(
    ("image", "start", "first"),
    [
        ("pytorch:2.13-cpu-amzn2023-sagemaker", PYTORCH, "bash"),
        # Its script execs, so that Python is process 1, with the toolkit.
        ("tensorflow-training:2.21-cpu-py312-amzn2023-sagemaker", TENSORFLOW, "python"),
    ],
)
def test_a_script_in_awss_image_as_it_is_gets_no_sigterm(
    tmp_path: Path, image: str, start: container_start.Start, first: str
) -> None:
    with container(tmp_path, image, *start.entrypoint) as job:
        assert Path(training(job)).name.startswith(first)
        job.signal(signal.SIGTERM)
        (tmp_path / "algo-1" / "opt" / "ml" / "gate").write_text("go")
        assert job.wait(SECONDS) == {"algo-1": 0}
        lines = [line for _, line in job.all_lines()]
    assert "trained to the end" in lines
    assert "checkpoint" not in lines


@pytest.mark.parametrize(
    ("image", "start"),
    [
        ("pytorch:2.13-cpu-amzn2023-sagemaker", PYTORCH),
        ("tensorflow-training:2.21-cpu-py312-amzn2023-sagemaker", TENSORFLOW),
    ],
)
def test_with_our_entry_point_in_front_it_does(tmp_path: Path, image: str, start: container_start.Start) -> None:
    with container(tmp_path, image, *OURS, *start.entrypoint) as job:
        assert training(job) == "python"
        job.signal(signal.SIGTERM)
        assert job.wait(SECONDS) == {"algo-1": 0}
        assert "checkpoint" in [line for _, line in job.all_lines()]


def test_our_entry_point_reaps_orphans(tmp_path: Path) -> None:
    copy_entry_point(tmp_path)
    # The shell's child ends at once, and leaves its own to process 1.
    orphan = "import os, sys; os.fork() and os._exit(0); sys.stdin.read(); print('orphaned', flush=True)"
    look = (
        f'python -c "{orphan}" < /opt/ml/pipe & exec 3> /opt/ml/pipe; wait; exec 3>&-; '
        'while [ -n "$(ps -o pid= --ppid 1 | grep -v -w $$)" ]; do :; done; echo reaped'
    )
    (tmp_path / "algo-1" / "opt" / "ml").mkdir(parents=True)
    os.mkfifo(tmp_path / "algo-1" / "opt" / "ml" / "pipe")
    with Job(tmp_path, (*OURS, "bash", "-c", look)) as job:
        assert job.line()[1] == "orphaned"
        assert job.line()[1] == "reaped"
        assert job.wait(SECONDS) == {"algo-1": 0}
