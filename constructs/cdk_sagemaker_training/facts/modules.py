"""The modules in AWS's containers, which a script may import without a requirements.txt.

They are those of the distributions that the containers install. Of PyTorch 2.11 and later, and of TensorFlow 2.21, the `uv.lock`
files in aws/deep-learning-containers (e0ecede, below `docker/pytorch` and `docker/tensorflow`, with the extra "sagemaker") name
them by device, and `docker/pytorch/Dockerfile.cuda` installs two beside them. Of PyTorch 2.5 to 2.10, and of Hugging Face's from
transformers 4.49 on, the Dockerfiles name what they install, and what that needs is what pip took then. Other containers have no
such list. `release/container_modules.py` writes the table anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

# By TensorFlow's version, the Keras of its containers, for which their Dockerfiles take what TensorFlow asks for. Of 2.18, those
# were first built on 2025-01-21, two weeks after Keras 3.8; of 2.19, `Dockerfile.sagemaker.gpu.os_scan_allowlist.json` names it
# (aws/deep-learning-containers, 9ce8911); of 2.21, `uv.lock` does.
_KERAS = {"2.18": "3.8 or newer", "2.19": "3.10", "2.21": "3.15"}
_FIRST_WITH_KERAS_3 = (2, 16)
_TRANSFORMERS = re.compile(r"-transformers(\d+\.\d+\.\d+)-")


@cache
def _table() -> Mapping[tuple[str, str, str], frozenset[str]]:
    """The modules by repository, version, of transformers where the tag names it, and device."""
    rows = json.loads(Path(__file__).with_suffix(".json").read_text())
    return {
        (name, version, device): frozenset(modules) for name, versions, device, modules in rows for version in versions
    }


def modules_of(base: str) -> frozenset[str] | None:
    """Return the modules in one of AWS's containers beside Python's own; None where they are not known.

    Args:
        base: `repository:tag`, like ``"pytorch:2.13-cpu-amzn2023-sagemaker"``.
    """
    repository, _, tag = base.partition(":")
    words, transformers = tag.split("-"), _TRANSFORMERS.search(tag)
    if "ec2" in words:
        return None
    version = _minor(words[0]) if transformers is None else transformers[1]
    return _table().get((repository, version, "cpu" if "cpu" in words else "gpu"))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def of_hugging_face(base: str) -> Mapping[str, str]:
    """Return the versions of Hugging Face's libraries in one of its containers, by name; only those that are known.

    Args:
        base: `repository:tag`, like ``"huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04"``.
    """
    tag = _TRANSFORMERS.search(base)
    if tag is None:
        return {}
    table = _hugging_face()
    row = next((row for row in table["rows"] if row[0] == tag[1]), [tag[1]])
    return {name: version for name, version in zip(table["columns"], row, strict=False) if version}


def keras_of(tensorflow: str) -> str:
    """Return the version of Keras in AWS's containers of TensorFlow: ``"3"`` where it is one of Keras 3, and no more is known.

    Args:
        tensorflow: The version of TensorFlow, like ``"2.19"``; before 2.16, Keras has the same.
    """
    minor = _minor(tensorflow)
    is_older = tuple(map(int, minor.split("."))) < _FIRST_WITH_KERAS_3
    return minor if is_older else _KERAS.get(minor, "3")


@cache
def _hugging_face() -> dict[str, list[Any]]:
    return dict(json.loads(Path(__file__).with_name("huggingface.json").read_text()))
