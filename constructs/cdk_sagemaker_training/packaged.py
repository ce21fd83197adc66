"""The training code that is packaged with the library."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from cdk_sagemaker_training.props.prop_types import checked

_INSTALLED = Path(__file__).parent / "training_code"
_CHECKED_OUT = Path(__file__).parents[2] / "training_code"


@checked
def training_code_path(kind: str | None = None) -> str:
    """Return the path of the packaged training code, for ``TrainingImage.from_asset(directory=...)``.

    Args:
        kind: A kind of job like ``"heterogeneous"``, for its folder; None for the folder that contains all kinds, the build
            context of their Dockerfiles.

    Raises:
        ValueError: The kind has no packaged training code.
    """
    root = _INSTALLED if _INSTALLED.is_dir() else _CHECKED_OUT
    if kind is None:
        return str(root)
    kinds = sorted(dockerfile.parent.name for dockerfile in root.glob("*/Dockerfile"))
    if kind not in kinds:
        raise ValueError(
            f"kind must be one whose training code is packaged, like {kinds[0]!r} of {kinds}, got {kind!r}"
        )
    return str(root / kind)


def copy_training_code(kind: str, directory: Path) -> list[Path]:
    """Copy one kind's training code, and the files that it shares, into a new folder.

    Args:
        kind: A kind of job like ``"heterogeneous"``.
        directory: The folder, new or empty.

    Returns:
        The files that were written, sorted.

    Raises:
        ValueError: The kind has no packaged training code.
        FileExistsError: ``directory`` contains files.
    """
    source = Path(training_code_path(kind))
    if directory.exists() and any(directory.iterdir()):
        raise FileExistsError(
            f"directory must be new or empty so that nothing is overwritten, like 'training', got {str(directory)!r}"
        )
    # The folders from which the kind's Dockerfiles copy.
    texts = [dockerfile.read_text() for dockerfile in source.rglob("Dockerfile*")]
    folders = {name for text in texts for name in re.findall(r"^COPY (\w+)", text, re.MULTILINE)}
    for name in sorted({kind, *folders}):
        shutil.copytree(source.parent / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    return sorted(path for path in directory.rglob("*") if path.is_file())
