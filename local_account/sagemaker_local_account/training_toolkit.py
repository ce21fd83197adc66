"""What SageMaker's training toolkit makes of an image: its command `train`, and the requirements that it installs at a start."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from .dockerfile import BuildError
from .pip_install import PipInstall, pip_install, requirement_of
from .trees import locate

if TYPE_CHECKING:
    from .builder import Stage

CODE = "/opt/ml/code"  # where the toolkit looks, unless SAGEMAKER_SUBMIT_DIRECTORY says another folder


def has_a_command(stage: Stage) -> bool:
    """Whether an image has what SageMaker starts: an ENTRYPOINT, or a command `train`."""
    if stage.entrypoint or "SAGEMAKER_TRAINING_MODULE" in stage.env:
        return True
    asked = " ".join(line for install in stage.installs for line in install.requirements).replace("_", "-")
    folders = stage.variables["PATH"].split(":")
    return "sagemaker-" in asked or any(locate(stage.root, f"{folder}/train").is_file() for folder in folders)


def requirements_at_start(stage: Stage, dockerfile: str) -> PipInstall | None:
    """What the toolkit would install on each host, which reaches no index of packages here; None where it would nothing.

    It does so where there is a requirements.txt beside the script (`entry_point.install` in sagemaker-training).

    Raises:
        BuildError: it would need a network even where all is installed.
    """
    folder = stage.env.get("SAGEMAKER_SUBMIT_DIRECTORY", CODE)
    path = posixpath.join(folder, "requirements.txt")
    if "SAGEMAKER_PROGRAM" not in stage.env or not locate(stage.root, path).is_file():
        return None
    place = f"{dockerfile}: {path}"
    install = pip_install(["pip", "install", "-r", path], place, folder, lambda path: locate(stage.root, path))
    assert install is not None
    elsewhere = [*install.folders, *(line for line in install.requirements if requirement_of(line) is None)]
    if elsewhere:
        raise BuildError(
            f"{place}: the training toolkit installs this file when a host starts, which reaches no network; {elsewhere[0]} "
            f"must be installed by the Dockerfile, like 'RUN pip install {elsewhere[0]}'"
        )
    return install
