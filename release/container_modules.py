"""Writes the modules of AWS's containers, `facts/modules.json` of the constructs, from the lists of what AWS installs in them.

    python release/container_modules.py CHECKOUT [--wheels FOLDER]

CHECKOUT is aws/deep-learning-containers, whose `uv.lock` files name the distributions of a container; their wheels, some 600 MB,
are downloaded into FOLDER unless they are there, and say which modules they have. It prints what it does not know.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.progress import track

FACTS = Path(__file__).parents[1] / "constructs" / "cdk_sagemaker_training" / "facts" / "modules.json"
# The folders of AWS's repository, by the repository of the containers in ECR.
FOLDERS = {"pytorch": "docker/pytorch", "tensorflow-training": "docker/tensorflow"}
# Of distributions that have no wheel on PyPI, or whose wheels are larger than all others together.
KNOWN: Mapping[str, tuple[str, ...]] = {
    "antlr4-python3-runtime": ("antlr4",),
    "cuda-bindings": ("cuda",),
    "cuda-pathfinder": ("cuda",),
    "deepspeed": ("deepspeed",),
    "gssapi": ("gssapi",),
    "inotify-simple": ("inotify_simple",),
    "krb5": ("krb5",),
    "promise": ("promise",),
    "sagemaker-pytorch-training": ("sagemaker_pytorch_container",),
    "sagemaker-studio-analytics-extension": ("sagemaker_studio_analytics_extension",),
    "sagemaker-studio-sparkmagic-lib": ("sagemaker_studio_sparkmagic_lib",),
    "sagemaker-tensorflow-training": ("sagemaker_tensorflow_container",),
    "sagemaker-training": ("gethostname", "sagemaker_training"),
    "sparkmagic": ("sparkmagic",),
    "tensorflow": ("tensorflow",),
    "tensorflow-cpu": ("tensorflow",),
    "torch": ("functorch", "torch", "torchgen"),
    "torchaudio": ("torchaudio",),
    "torchvision": ("torchvision",),
    "triton": ("triton",),
}
# What the Dockerfiles install beside the lists: pip itself, and by `Dockerfile.cuda` of PyTorch.
BESIDE = {"pytorch": ("flash_attn", "transformer_engine"), "tensorflow-training": ()}
OF_EACH = ("nvidia", "pip", "pkg_resources", "setuptools")
# Folders that wheels bring by mistake, which are nobody's to import.
_NO_MODULES = frozenset(
    ["benchmarks", "bin", "build", "doc", "docs", "example", "examples", "scripts", "test", "tests", "tools"]
)
_PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64", "any")
_PYTHON = "3.12"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"))
    args = parser.parse_args()
    rows: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    locks = {name: sorted((args.checkout / folder).glob("[0-9]*/*/uv.lock")) for name, folder in FOLDERS.items()}
    all_of = {item for paths in locks.values() for path in paths for item in distributions(path)}
    args.wheels.mkdir(exist_ok=True)
    for name, version in track(sorted(all_of), "wheels"):
        download(name, version, args.wheels)
    found = {**modules_by_name(args.wheels), **KNOWN}
    for repository, paths in locks.items():
        names = {name for path in paths for name, _ in distributions(path)}
        modules = {module for name in names for module in found.get(name, ()) if not module.startswith("_")}
        modules = modules - _NO_MODULES | {*OF_EACH, *BESIDE[repository]}
        rows[repository, tuple(sorted({path.parts[-3] for path in paths}))] = modules
        unknown = sorted(name for name in names - {*found} if not name.startswith("nvidia-"))
        print(f"{repository}: {len(modules)} modules; unknown: {', '.join(unknown) or 'none'}")
    FACTS.write_text(rendered(rows))


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution_of(wheel: Path) -> str:
    return normalized(wheel.name.partition("-")[0])


def distributions(lock: Path) -> Iterator[tuple[str, str]]:
    """The names and versions that a lock file has, but for its own project."""
    for package in tomllib.loads(lock.read_text())["package"]:
        if "registry" in package.get("source", {}):
            yield normalized(package["name"]), package["version"]


def download(name: str, version: str, folder: Path) -> None:
    there = any(distribution_of(path) == name for path in folder.glob("*.whl"))
    if there or name in KNOWN or name.startswith("nvidia-"):
        return
    platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *platforms]
    command += ["--python-version", _PYTHON, "-d", str(folder), f"{name}=={version}"]
    subprocess.run(command, check=False, stderr=subprocess.DEVNULL)


def modules_by_name(folder: Path) -> dict[str, tuple[str, ...]]:
    """The modules in wheels, by the distributions' names."""
    found: dict[str, set[str]] = {}
    for wheel in folder.glob("*.whl"):
        modules = found.setdefault(distribution_of(wheel), set())
        with zipfile.ZipFile(wheel) as archive:
            for path in archive.namelist():
                first, *rest = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", path).split("/")
                if rest and rest[-1].endswith((".py", ".so", ".pyi")) and first.isidentifier():
                    modules.add(first)
                elif not rest and (alone := re.fullmatch(r"([A-Za-z_]\w*)(\.py|\.[\w.-]*so)", first)):
                    modules.add(alone[1])
    return {name: tuple(modules) for name, modules in found.items()}


def rendered(rows: Mapping[tuple[str, tuple[str, ...]], set[str]]) -> str:
    texts = []
    for (repository, versions), modules in rows.items():
        names = ", ".join(json.dumps(name) for name in sorted(modules, key=str.lower))
        lines = textwrap.indent("\n".join(textwrap.wrap(names, 118)), "    ")
        texts.append(f"  [{json.dumps(repository)}, {json.dumps(list(versions))}, [\n{lines}\n  ]]")
    return "[\n" + ",\n".join(texts) + "\n]\n"


if __name__ == "__main__":
    main()
