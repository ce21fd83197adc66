"""The start of AWS's deep learning containers: entry point, working directory, variables, and wrapper script.

Source: aws/deep-learning-containers at commit e0ecedea6a (21 August 2026), and for releases before its new layout at 9ce8911cdf
and b872b74994 (February and July 2026). docs/container.md describes them; a test compares them with a record of the sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Set by all of AWS's training containers.
CONTAINER_ENV = {
    "DLC_CONTAINER_TYPE": "training",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONIOENCODING": "UTF-8",
    "PYTHONUNBUFFERED": "1",
}
# Also set by TensorFlow's containers since 2.21, for the CPU libraries.
TENSORFLOW_ENV = {
    "KMP_AFFINITY": "granularity=fine,compact,1,0",
    "KMP_BLOCKTIME": "1",
    "KMP_SETTINGS": "0",
    "TF_AUTOTUNE_THRESHOLD": "2",
}
# Variables of the containers that name files and devices that this machine lacks.
ENV_OF_FILES = (
    "CUDA_HOME",
    "EFA_PATH",
    "LD_LIBRARY_PATH",
    "OPEN_MPI_PATH",
    "PATH",
    "RDMAV_FORK_SAFE",
    "UV_PROJECT_ENVIRONMENT",
)


@dataclass(frozen=True)
class Start:
    """The start of a container.

    Args:
        source: the files of aws/deep-learning-containers.
        entrypoint: ENTRYPOINT. A script without `exec` remains process 1, and its child gets no signals.
        cmd: CMD.
        workdir: WORKDIR.
        env: variables that only this container sets.
        files: the scripts of the entry point, by path.
    """

    source: str
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...] = ("/bin/bash",)
    workdir: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


UNKNOWN = Start("", (), cmd=())
# Each script has the same process 1 as AWS's. AWS's also do what has no use here: telemetry, CUDA's forward compatibility, and a
# library for gethostname(2) (docs/container.md).
_RIGHT_HOSTNAME = """\
#!/usr/bin/env bash
if [[ "$1" = "train" ]]; then
    train
else
    eval "$@"
fi
"""
_EXEC = """\
#!/bin/bash
set -e
exec "$@"
"""
_CHECK_CALL = """\
import shlex, subprocess, sys
subprocess.check_call(shlex.split(" ".join(sys.argv[1:])))
"""
_PYTORCH_ENTRY = ("bash", "-m", "start_with_right_hostname.sh")
_PYTORCH_FILES = {"/usr/local/bin/start_with_right_hostname.sh": _RIGHT_HOSTNAME}

PYTORCH = Start(
    "docker/pytorch/Dockerfile.cuda and Dockerfile.cpu, stage sagemaker; scripts/docker/pytorch/start_with_right_hostname.sh",
    _PYTORCH_ENTRY,
    workdir="/workspace",
    files=_PYTORCH_FILES,
)
PYTORCH_BEFORE_2_11 = Start(
    "pytorch/training/docker/2.10/py3/cu130/Dockerfile.gpu, stage sagemaker", _PYTORCH_ENTRY, files=_PYTORCH_FILES
)
TENSORFLOW = Start(
    "docker/tensorflow/2.21/Dockerfile.cuda and Dockerfile.cpu, stage sagemaker; scripts/docker/tensorflow/entrypoint.sh",
    ("bash", "-m", "/usr/local/bin/entrypoint.sh"),
    workdir="/workspace",
    env=TENSORFLOW_ENV,
    files={"/usr/local/bin/entrypoint.sh": _EXEC},
)
TENSORFLOW_BEFORE_2_21 = Start(
    "tensorflow/training/docker/2.19/py3/cu125/Dockerfile.gpu, stage sagemaker; build_artifacts/dockerd-entrypoint.py",
    ("python", "/usr/local/bin/dockerd-entrypoint.py"),
    files={"/usr/local/bin/dockerd-entrypoint.py": _CHECK_CALL},
)
# Its own script sets defaults for the libraries, and then execs PyTorch's.
HUGGING_FACE = Start(
    "docker/huggingface/pytorch/Dockerfile, stage sagemaker; scripts/docker/huggingface/pytorch/sagemaker_entrypoint.sh",
    ("/usr/local/bin/sagemaker_entrypoint.sh",),
    cmd=("train",),
    workdir="/workspace",
    files={
        **_PYTORCH_FILES,
        "/usr/local/bin/sagemaker_entrypoint.sh": f'#!/usr/bin/env bash\nexec {" ".join(_PYTORCH_ENTRY)} "$@"\n',
    },
)


def renames_host(command: Sequence[str]) -> bool:
    """Whether a container's command is the start of AWS's PyTorch containers, with which gethostname(2) returns ``algo-N``.

    Source: docs/pytorch/deployment/sagemaker.md and scripts/docker/pytorch/changehostname.c of that repository. docs/container.md
    has what speaks against it for PyTorch 2.11 and newer.
    """
    return tuple(command) in ((*_PYTORCH_ENTRY, "train"), (*HUGGING_FACE.entrypoint, "train"))


def start_of(repository: str, version: tuple[int, int]) -> Start:
    """Returns the start of a container on SageMaker, by repository and the framework's version."""
    if repository == "tensorflow-training":
        return TENSORFLOW if version >= (2, 21) else TENSORFLOW_BEFORE_2_21
    if version < (2, 11):
        return PYTORCH_BEFORE_2_11
    return HUGGING_FACE if repository.startswith("huggingface") else PYTORCH
