"""What packages AWS's containers have, by AWS's own lists, and which of them an image's files import.

The table is recorded by tests/containers/record.py from the lock files and Dockerfiles of aws/deep-learning-containers. All of a
container's packages are some gigabytes: those that the account has are linked, others installed where a file imports them.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

_RECORD = Path(__file__).parent / "container_packages.json"
_WORDS = re.compile(r"^[ \t]*(?:from[ \t]+(\w+)[\w.]*[ \t]+import\b|import[ \t]+([^#\n]+))", re.MULTILINE)
# The modules that are called otherwise than their packages.
MODULES = {
    "IPython": "ipython",
    "PIL": "pillow",
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "functional": "pyfunctional",
    "git": "gitpython",
    "jwt": "pyjwt",
    "mpl_toolkits": "matplotlib",
    "multipart": "python-multipart",
    "nacl": "pynacl",
    "pkg_resources": "setuptools",
    "rapidjson": "python-rapidjson",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tree": "dm-tree",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
# For CUDA's libraries there is nothing here that uses them; vLLM brings PyTorch for CUDA along, and starts on no CPU.
_OF_GPUS = re.compile(r"nvidia-.*|cuda-.*|vllm")


@dataclass(frozen=True)
class Listed:
    """A container's packages as requirements, and where AWS lists them."""

    requirements: list[str]
    source: str


def listed(repository: str, version: str, tag: str) -> Listed | None:
    """The packages of a container of a framework's version. One that is not recorded has those of the nearest, of any version."""
    same = "tensorflow-training" if repository == "tensorflow-training" else "pytorch"
    same = repository if repository.startswith("huggingface") else same
    flavour = "cpu" if "-cpu" in tag else "gpu"
    exact = f"{same} {version}-{flavour}"
    near = [name for name in _table() if name.startswith(f"{same} ")]
    if not near:
        return None
    name = exact if exact in near else min(near, key=lambda one: (not one.endswith(flavour), _distance(one, version)))
    found = _table()[name]
    packages = {one: pin for one, pin in found["packages"].items() if not _OF_GPUS.fullmatch(one)}
    lines = [f"{one}=={pin}" if pin and name == exact else one for one, pin in packages.items()]
    return Listed(lines, f"{found['source']} in aws/deep-learning-containers, {found['date']}")


def imported(root: Path) -> set[str]:
    """The packages that the files of an image import, by what their modules are called."""
    modules: set[str] = set()
    for file in root.rglob("*.py"):
        if not file.is_symlink():
            for one, several in _WORDS.findall(file.read_text(errors="replace")):
                modules |= (
                    {one} if one else {word.split(".")[0].split()[0] for word in several.split(",") if word.strip()}
                )
    return {canonicalize_name(MODULES.get(module, module)) for module in modules}


@functools.cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_RECORD.read_text())
    return found


def _distance(name: str, version: str) -> int:
    recorded = name.partition(" ")[2].partition("-")[0]
    (major, minor), (other, lesser) = (map(int, text.split(".")) for text in (version, recorded))
    return abs((major - other) * 100 + minor - lesser)
