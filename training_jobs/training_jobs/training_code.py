"""The training code in the wheel of cdk-sagemaker-training, found without an import of that package, which needs the CDK."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

from training_jobs.client.errors import TrainingError

# Of ``fits`` and ``measure``: they import torch and the training code, and run in processes of their own.
SCRIPTS = Path(__file__).parent / "torch_scripts"


def training_code() -> Path:
    """Return the folder that contains the training code of all kinds of job.

    Raises:
        TrainingError: cdk-sagemaker-training is not installed.
    """
    spec = importlib.util.find_spec("cdk_sagemaker_training")
    for place in (spec and spec.submodule_search_locations) or ():
        package = Path(place)
        # In a wheel it is in the package, in a clone beside the source root.
        for folder in (package / "training_code", package.parents[1] / "training_code"):
            if folder.is_dir():
                return folder
    raise TrainingError("the training code is in a package that is not installed: `pip install cdk-sagemaker-training`")


def copy_training_code(kind: str, directory: Path) -> list[Path]:
    """Copy one kind's training code, and the files that it shares, into a new folder.

    Args:
        kind: A folder of the training code like ``"heterogeneous"``.
        directory: The folder, new or empty.

    Returns:
        The files that were written, sorted.

    Raises:
        TrainingError: cdk-sagemaker-training is not installed.
        FileExistsError: ``directory`` contains files.
    """
    root = training_code()
    if directory.exists() and any(directory.iterdir()):
        raise FileExistsError(
            f"directory must be new or empty so that nothing is overwritten, like 'training', got {str(directory)!r}"
        )
    # The folders from which the kind's Dockerfiles copy.
    texts = [dockerfile.read_text() for dockerfile in (root / kind).rglob("Dockerfile*")]
    folders = {name for text in texts for name in re.findall(r"^COPY (\w+)", text, re.MULTILINE)}
    for name in sorted({kind, *folders}):
        shutil.copytree(root / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    return sorted(path for path in directory.rglob("*") if path.is_file())
