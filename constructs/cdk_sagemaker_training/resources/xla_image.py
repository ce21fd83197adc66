"""Whether an image can have PyTorch/XLA with CUDA, where its tag or its requirements tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import is_unlisted
from cdk_sagemaker_training.resources.image_advice import accelerator_of

if TYPE_CHECKING:
    from training_jobs.lint.dockerfile import Dockerfile

_LAST = (2, 7)  # with CUDA: README of PyTorch/XLA, and its pull requests 9540 and 9598
# AWS's containers with PyTorch, such as pytorch-training:2.8.0-gpu-py312 and pytorch:2.13-cu133-amzn2023-sagemaker.
_PYTORCH = re.compile(r"pytorch(?:-training)?:(\d+)\.(\d+)")
_PIN = re.compile(r"^torch[_-]xla(?:\[\w+\])?\s*==\s*(\d+)\.(\d+)\S*", re.MULTILINE)


def check_xla_has_cuda(base: str | None, dockerfile: Dockerfile | None) -> None:
    """Check that nothing shows that an image has no PyTorch/XLA with CUDA.

    Args:
        base: `repository:tag` of the image or of its base image; None if unknown.
        dockerfile: What the Dockerfile of an image that is built says.

    Raises:
        ValueError: The image is for other machines than those with GPUs, has a newer PyTorch, or installs a newer PyTorch/XLA.
    """
    if base is not None and is_unlisted(base):
        return
    for found in (*_in_base(base), *_in_requirements(dockerfile)):
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


def _in_requirements(dockerfile: Dockerfile | None) -> Iterator[str]:
    if dockerfile is None:
        return
    for path, file in sorted(dockerfile.image.files.items()):
        pin = _PIN.search(file.read_text()) if path.endswith(".txt") else None
        if pin is not None and (int(pin[1]), int(pin[2])) > _LAST:
            yield f"{pin[0]} in {file.relative_to(dockerfile.directory)}"
