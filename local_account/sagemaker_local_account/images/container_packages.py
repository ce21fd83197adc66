"""The packages of AWS's containers, and which of them an image's files import.

The table is recorded by tests/containers/record.py from the lock files and Dockerfiles of aws/deep-learning-containers. A
container has gigabytes of packages: those that the account has are linked, others are installed if a file imports them.
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
# Modules whose names differ from their packages'.
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
# The AWS CLI, which scripts run as a command, in a shell or as a list of words.
_AWS_CLI = re.compile(
    r"""(?:^|[\s"';&|(`])aws["']?(?:,\s*|\s+)["']?(?:--|s3|ecr|ssm|sts|secretsmanager|sagemaker|configure)""",
    re.MULTILINE,
)
# CUDA's libraries are not used here; vLLM requires PyTorch for CUDA, and does not run on CPUs.
_OF_GPUS = re.compile(r"nvidia-.*|cuda-.*|vllm")


@dataclass(frozen=True)
class Listed:
    """A container's packages as requirements, and their source."""

    requirements: list[str]
    source: str


def listed(repository: str, version: str, tag: str) -> Listed | None:
    """Returns the packages of a container; for an unrecorded version those of the nearest one, without their versions.

    Those of Hugging Face's libraries are known for more of its containers.

    Args:
        repository: such as "pytorch-training".
        version: the framework's, such as "2.13".
        tag: the image's tag.
    """
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
    pins = packages if name == exact else _of_hugging_face(tag)
    lines = [f"{one}=={pins[one]}" if pins.get(one) else one for one in packages]
    return Listed(lines, f"{found['source']} in aws/deep-learning-containers, {found['date']}")


def imported(root: Path) -> set[str]:
    """Returns the names of the packages that an image's files import, by their modules, and "awscli" where they run `aws`."""
    modules: set[str] = set()
    for file in (one for one in root.rglob("*") if one.suffix in (".py", ".sh") and not one.is_symlink()):
        text = file.read_text(errors="replace")
        if _AWS_CLI.search(text):
            modules.add("awscli")
        for one, several in _WORDS.findall(text) if file.suffix == ".py" else ():
            modules |= {one} if one else {word.split(".")[0].split()[0] for word in several.split(",") if word.strip()}
    return {canonicalize_name(MODULES.get(module, module)) for module in modules}


@functools.cache
def _of_hugging_face(tag: str) -> dict[str, str]:
    """The versions of the libraries in a container whose tag names that of transformers, by their Dockerfiles."""
    table = json.loads(_RECORD.with_name("huggingface.json").read_text())
    rows = (dict(zip(table["columns"], row, strict=True)) for row in table["rows"])
    found = next((row for row in rows if f"-transformers{row['transformers']}-" in tag), {})
    return {name: version for name, version in found.items() if version and name != "transformers"}


@functools.cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_RECORD.read_text())
    return found


def _distance(name: str, version: str) -> int:
    recorded = name.partition(" ")[2].partition("-")[0]
    (major, minor), (other, lesser) = (map(int, text.split(".")) for text in (version, recorded))
    return abs((major - other) * 100 + minor - lesser)
