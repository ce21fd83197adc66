"""SageMaker's training toolkit in an image: its command `train`, and the requirements.txt that it installs at the start.

Hosts cannot reach a package index here, so what the toolkit installs there (`entry_point.install` in sagemaker-training) is
installed before: with the image, or when a job with code in S3 is created.
"""

from __future__ import annotations

import posixpath
import tarfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sagemaker_local_account.core.image_tree import locate
from sagemaker_local_account.images.dockerfile import BuildError
from sagemaker_local_account.images.pip_install import PipInstall, pip_install, requirement_of

if TYPE_CHECKING:
    from sagemaker_local_account.images.dockerfile_evaluator import Stage

CODE = "/opt/ml/code"  # the default of SAGEMAKER_SUBMIT_DIRECTORY
REQUIREMENTS = "requirements.txt"
# What says which packages code needs: its modules, and requirements files, which may include others.
_READ = (".py", ".txt", ".in")
_MOST_BYTES = 1 << 20  # of one of these files
# How the FailureReason of a job begins whose requirements the toolkit cannot install.
FAILED = "AlgorithmError: InstallRequirementsError: "


def has_a_command(stage: Stage) -> bool:
    """Whether an image has an ENTRYPOINT or a command `train`, one of which SageMaker requires."""
    if stage.entrypoint or "SAGEMAKER_TRAINING_MODULE" in stage.env:
        return True
    requirements = " ".join(line for install in stage.installs for line in install.requirements).replace("_", "-")
    folders = stage.variables["PATH"].split(":")
    return "sagemaker-" in requirements or any(locate(stage.root, f"{folder}/train").is_file() for folder in folders)


def requirements_at_start(stage: Stage, dockerfile: str) -> PipInstall | None:
    """Returns the `pip install` of the requirements.txt beside the script, which the toolkit runs at the start; None without one.

    Args:
        stage: the image.
        dockerfile: its name, for messages.

    Raises:
        BuildError: the file has URLs or folders, for which the toolkit would need a network.
    """
    folder = stage.env.get("SAGEMAKER_SUBMIT_DIRECTORY", CODE)
    path = posixpath.join(folder, REQUIREMENTS)
    if "SAGEMAKER_PROGRAM" not in stage.env or not locate(stage.root, path).is_file():
        return None
    return _install(path, f"{dockerfile}: {path}", folder, stage.root)


def unpack_code(archive: IO[bytes], folder: Path) -> None:
    """Unpacks of an archive with training code the files that say which packages it needs: modules and requirements files.

    Args:
        archive: the `sourcedir.tar.gz`.
        folder: an empty folder.

    Raises:
        tarfile.TarError, OSError: it is no archive, or has a path outside of the folder.
    """
    with tarfile.open(fileobj=archive, mode="r:*") as members:
        for member in members:
            if member.isfile() and member.name.endswith(_READ) and member.size <= _MOST_BYTES:
                members.extract(member, folder, filter="data")


def requirements_of_code(folder: Path) -> PipInstall | None:
    """Returns the `pip install` of the requirements.txt of unpacked code; None without one.

    Raises:
        ImageError: it has a line that pip does not take, or a URL or folder.
    """
    if not (folder / REQUIREMENTS).is_file():
        return None
    return _install(REQUIREMENTS, REQUIREMENTS, "", folder)


def _install(path: str, place: str, workdir: str, root: Path) -> PipInstall:
    """The `pip install` of a requirements file; raises ``BuildError`` for a URL or folder in it."""
    install = pip_install(["pip", "install", "-r", path], place, workdir, lambda path: locate(root, path))
    assert install is not None
    elsewhere = [*install.folders, *(line for line in install.requirements if requirement_of(line) is None)]
    if elsewhere:
        raise BuildError(
            f"{place}: the training toolkit installs this file when a host starts, which reaches no network; {elsewhere[0]} "
            f"must be installed by the Dockerfile, like 'RUN pip install {elsewhere[0]}'"
        )
    return install
