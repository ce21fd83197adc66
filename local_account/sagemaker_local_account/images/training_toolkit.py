"""SageMaker's training toolkit in an image: its command `train`, and the requirements.txt that it installs at the start."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from sagemaker_local_account.core.image_tree import locate
from sagemaker_local_account.images.dockerfile import BuildError
from sagemaker_local_account.images.pip_install import PipInstall, pip_install, requirement_of

if TYPE_CHECKING:
    from sagemaker_local_account.images.dockerfile_evaluator import Stage

CODE = "/opt/ml/code"  # the default of SAGEMAKER_SUBMIT_DIRECTORY


def has_a_command(stage: Stage) -> bool:
    """Whether an image has an ENTRYPOINT or a command `train`, one of which SageMaker requires."""
    if stage.entrypoint or "SAGEMAKER_TRAINING_MODULE" in stage.env:
        return True
    requirements = " ".join(line for install in stage.installs for line in install.requirements).replace("_", "-")
    folders = stage.variables["PATH"].split(":")
    return "sagemaker-" in requirements or any(locate(stage.root, f"{folder}/train").is_file() for folder in folders)


def requirements_at_start(stage: Stage, dockerfile: str) -> PipInstall | None:
    """Returns the `pip install` of the requirements.txt beside the script, which the toolkit runs at the start; None without one.

    Hosts cannot reach a package index here, so it is installed with the image (`entry_point.install` in sagemaker-training).

    Args:
        stage: the image.
        dockerfile: its name, for messages.

    Raises:
        BuildError: the file has URLs or folders, for which the toolkit would need a network.
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
