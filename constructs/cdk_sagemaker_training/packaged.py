"""The training code that is packaged with the library."""

from __future__ import annotations

from pathlib import Path

from cdk_sagemaker_training.core.errors import must
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
        raise must("kind", "be one whose training code is packaged", f"{kinds[0]!r} of {kinds}", repr(kind))
    return str(root / kind)
