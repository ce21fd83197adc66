"""The training code that travels with the library."""

from __future__ import annotations

import shutil
from pathlib import Path

from cdk_sagemaker_training.prop_types import checked

_INSTALLED = Path(__file__).parent / "training_code"
_CHECKED_OUT = Path(__file__).parents[2] / "training_code"


@checked
def training_code_path(kind: str | None = None) -> str:
    """The folder of the packaged training code, for ``TrainingImage(directory=...)``.

    Without ``kind`` it is the build context of every kind's Dockerfile; with one, such as ``"heterogeneous"``, that
    kind's folder in it. Raises ``ValueError`` for a kind that is not packaged.
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
    """Copy one kind's training code, and the files it shares, into a new folder, to be edited and built from there.

    Returns the files written. Raises ``ValueError`` for an unknown kind and ``FileExistsError`` where ``directory``
    holds files.
    """
    source = Path(training_code_path(kind))
    if directory.exists() and any(directory.iterdir()):
        raise FileExistsError(
            f"directory must be new or empty so that nothing is overwritten, like 'training', got {str(directory)!r}"
        )
    for folder in (source, source.parent / "common"):
        shutil.copytree(folder, directory / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    return sorted(path for path in directory.rglob("*") if path.is_file())
