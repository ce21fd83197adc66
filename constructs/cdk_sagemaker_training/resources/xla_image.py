"""Whether an image can have PyTorch/XLA with CUDA, where its tag or its requirements tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import is_unlisted
from cdk_sagemaker_training.resources.image_advice import accelerator_of

_LAST = (2, 7)  # with CUDA: README of PyTorch/XLA, and its pull requests 9540 and 9598
# AWS's containers with PyTorch, such as pytorch-training:2.8.0-gpu-py312 and pytorch:2.13-cu133-amzn2023-sagemaker.
_PYTORCH = re.compile(r"pytorch(?:-training)?:(\d+)\.(\d+)")
_PIN = re.compile(r"^torch[_-]xla(?:\[\w+\])?\s*==\s*(\d+)\.(\d+)\S*", re.MULTILINE)


def check_xla_has_cuda(base: str | None, copied: tuple[Path, list[str] | None] | None) -> None:
    """Check that nothing shows that an image has no PyTorch/XLA with CUDA.

    Args:
        base: `repository:tag` of the image or of its base image; None if unknown.
        copied: The build context of an image that is built, and what is copied from it, as of ``copied_sources``.

    Raises:
        ValueError: The image is for other machines than those with GPUs, has a newer PyTorch, or installs a newer PyTorch/XLA.
    """
    if base is not None and is_unlisted(base):
        return
    for found in (*_in_base(base), *_in_requirements(copied)):
        rule = "have PyTorch/XLA with CUDA, so 2.7 or older, for compiler=TorchXla() on GPUs"
        example = "a base image 'pytorch-training:2.7.1-gpu-py312' with torch_xla==2.7.0, or compiler=TorchCompile()"
        raise must("image", rule, example, f"{found}")


def _in_base(base: str | None) -> Iterator[str]:
    if base is None or is_unresolved(base):
        return
    version = _PYTORCH.match(base)
    newer = version is not None and (int(version[1]), int(version[2])) > _LAST
    if newer or accelerator_of(base) in ("cpu", "neuron"):
        yield repr(base)


def _in_requirements(copied: tuple[Path, list[str] | None] | None) -> Iterator[str]:
    directory, sources = copied or (Path(), None)
    for source in sources or ():
        for file in sorted(directory.glob(source)):
            pin = _PIN.search(file.read_text()) if file.suffix == ".txt" else None
            if pin is not None and (int(pin[1]), int(pin[2])) > _LAST:
                yield f"{pin[0]} in {file.relative_to(directory)}"
