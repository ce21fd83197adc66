"""The training code in the wheel of cdk-sagemaker-training, found without an import of that package, which needs the CDK."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterable
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


def copy_training_code(kind: str, directory: Path, besides: Iterable[str] = ()) -> list[Path]:
    """Copy a Dockerfile of the training code, and what it copies into its image, into a new folder.

    Args:
        kind: The folder of the Dockerfile, like ``"heterogeneous"``.
        directory: The folder, new or empty.
        besides: Further files, like ``"model_parallel/huggingface/prepare_tokens.py"``.

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
    text = (root / kind / "Dockerfile").read_text().replace("\\\n", " ")
    lines = re.findall(r"^COPY (?:--\S+ )*(.+)", text, re.MULTILINE)
    copied = dict.fromkeys(source for line in lines for source in line.split()[:-1])
    for name in (f"{kind}/Dockerfile", *copied, *besides):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        if (root / name).is_dir():
            shutil.copytree(root / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(root / name, directory / name)
    return sorted(path for path in directory.rglob("*") if path.is_file())
