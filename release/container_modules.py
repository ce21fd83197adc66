"""Writes the modules of AWS's containers, `facts/modules.json` of the constructs, from the lists of what AWS installs in them.

    python release/container_modules.py CHECKOUT INDEX

CHECKOUT is aws/deep-learning-containers, whose `uv.lock` files name the distributions of the containers since PyTorch 2.11; those
of older ones are named by `container_dockerfiles.json` beside this script, and uv resolves what these need as of their day. INDEX
is the address of a package index that answers in JSON (PEP 700) and serves parts of files: the list of a wheel's files says which
modules it has, some 100 KB each. It prints what it does not know.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
from package_table import all_files_of, index_session, on_linux
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version
from remotezip import RemoteZip  # type: ignore[import-untyped]
from rich.progress import track

FACTS = Path(__file__).parents[1] / "constructs" / "cdk_sagemaker_training" / "facts" / "modules.json"
DOCKERFILES = Path(__file__).with_name("container_dockerfiles.json")
# The folders of AWS's repository, by the repository of the containers in ECR.
FOLDERS = {"pytorch": "docker/pytorch", "tensorflow-training": "docker/tensorflow"}
# Of distributions that have no wheel on the index.
KNOWN: Mapping[str, tuple[str, ...]] = {
    "antlr4-python3-runtime": ("antlr4",),
    "cuda-bindings": ("cuda",),
    "cuda-pathfinder": ("cuda",),
    "deepspeed": ("deepspeed",),
    "flash-attn": ("flash_attn",),
    "gssapi": ("gssapi",),
    "inotify-simple": ("inotify_simple",),
    "kenlm": ("kenlm",),
    "krb5": ("krb5",),
    "promise": ("promise",),
    "s3torchconnector": ("s3torchconnector",),
    "sagemaker-pytorch-training": ("sagemaker_pytorch_container",),
    "sagemaker-studio-analytics-extension": ("sagemaker_studio_analytics_extension",),
    "sagemaker-studio-sparkmagic-lib": ("sagemaker_studio_sparkmagic_lib",),
    "sagemaker-tensorflow-training": ("sagemaker_tensorflow_container",),
    "sagemaker-training": ("gethostname", "sagemaker_training"),
    "sparkmagic": ("sparkmagic",),
    "transformer-engine": ("transformer_engine", "transformer_engine_torch"),
}
# What the Dockerfiles install beside the lists: pip itself, and by `Dockerfile.cuda` of PyTorch.
BESIDE = {"pytorch": ("flash_attn", "transformer_engine"), "tensorflow-training": ()}
OF_EACH = ("nvidia", "pip", "pkg_resources", "setuptools")
# What flash-attn and NVIDIA's Transformer Engine need, which the Dockerfiles install from files of their own.
NEEDS = {"flash_attn": ["einops"], "transformer_engine": ["einops", "onnxscript", "pydantic", "importlib-metadata"]}
_FOLDER_OF = {"cpu": "cpu", "gpu": "cuda"}  # of AWS's lists, by device
# Folders that wheels bring by mistake, which are nobody's to import.
_NO_MODULES = frozenset(
    ["benchmarks", "bin", "build", "doc", "docs", "example", "examples", "scripts", "test", "tests", "tools"]
)
Distribution = tuple[str, str]  # its normalized name, and its version
Modules = Mapping[str, Iterable[str]]  # of distributions, by their names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("index")
    args = parser.parse_args()
    locks = {name: sorted((args.checkout / folder).glob("[0-9]*/*/uv.lock")) for name, folder in FOLDERS.items()}
    older = [dockerfile(*row) for row in json.loads(DOCKERFILES.read_text())["rows"]]
    locked = {path: list(distributions(path)) for paths in locks.values() for path in paths}
    needs = {module: resolved(names, "3.12", None, args.index) for module, names in NEEDS.items()}
    found_in = [installed(one, needs, args.index) for one in track(older, "resolutions")]
    all_of = {item for items in [*locked.values(), *found_in] for item in items}
    found = {**modules_by_name(sorted(all_of), args.index), **KNOWN}
    rows: list[list[Any]] = []
    full: dict[tuple[str, str], set[str]] = {}
    for (repository, paths), (device, folder) in itertools.product(locks.items(), _FOLDER_OF.items()):
        of_device = [path for path in paths if path.parts[-2] == folder]
        names = {name for path in of_device for name, _ in locked[path]}
        modules = {*modules_of(names, found, repository), *OF_EACH, *(BESIDE[repository] if device == "gpu" else ())}
        versions = sorted({path.parts[-3] for path in of_device})
        full |= {(repository, version): modules for version in versions if device == "gpu"}
        rows.append([repository, versions, device, modules])
    for one, items in zip(older, found_in, strict=True):
        names = {name for name, _ in items}.difference(one["removed"])
        below = full[one["base"][0], one["base"][1]] if one["base"] else {*OF_EACH}
        modules = below - modules_of(one["removed"], found) | modules_of(names, found, one["repository"])
        full |= {(one["repository"], version): {*modules, *one["beside"]} for version in one["versions"]}
        rows.append([one["repository"], one["versions"], "gpu", {*modules, *one["beside"]}])
        if one["base"] is None:
            rows.append([one["repository"], one["versions"], "cpu", modules])
    FACTS.write_text(rendered(rows))


def dockerfile(*row: Any) -> dict[str, Any]:
    columns = ("repository", "versions", "source", "before", "python", "base", "installs", "removed", "beside")
    return dict(zip(columns, row, strict=True))


def installed(one: Mapping[str, Any], needs: Mapping[str, Iterable[Distribution]], index: str) -> set[Distribution]:
    """What the commands of a Dockerfile install, each by itself, with what that needs."""
    steps = [resolved(names, one["python"], one["before"], index) for names in one["installs"]]
    steps += [needs[module] for module in one["beside"] if module in needs]
    return {item for step in steps for item in step}


def resolved(names: Iterable[str], python: str, before: str | None, index: str) -> list[Distribution]:
    """What uv installs on Linux for requirements, with what these need.

    Args:
        names: The requirements.
        python: The version of Python, like ``"3.12"``.
        before: The day before which files were uploaded; None for now.
        index: The package index.
    """
    command = ["uv", "pip", "compile", "-", "--quiet", "--no-header", "--no-annotate", "--no-python-downloads"]
    command += ["--index-url", index, "--python-version", python, "--python-platform", "x86_64-manylinux_2_28"]
    command += [] if before is None else ["--exclude-newer", before]
    done = subprocess.run(command, input="\n".join(names), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{names}\n{done.stderr}")
    lines = [Requirement(line) for line in done.stdout.splitlines() if line and not line.startswith("#")]
    return [(canonicalize_name(line.name), str(line.specifier).removeprefix("==")) for line in lines]


def distributions(lock: Path) -> Iterator[Distribution]:
    """The names and versions that a lock file has, but for its own project."""
    for package in tomllib.loads(lock.read_text())["package"]:
        if "registry" in package.get("source", {}):
            yield canonicalize_name(package["name"]), package["version"].partition("+")[0]


def modules_of(names: Iterable[str], found: Modules, repository: str = "") -> set[str]:
    """The modules of distributions; of a repository it prints of which they are not known."""
    unknown = sorted(name for name in names if name not in found and not name.startswith("nvidia-"))
    modules = {module for name in names for module in found.get(name, ()) if not module.startswith("_")} - _NO_MODULES
    if repository:
        print(f"{repository}: {len(modules)} modules; unknown: {', '.join(unknown) or 'none'}")
    return modules


def modules_by_name(wanted: Iterable[Distribution], index: str) -> dict[str, set[str]]:
    """The modules in wheels of distributions, by their names."""
    session = index_session()
    asked = [item for item in wanted if item[0] not in KNOWN and not item[0].startswith("nvidia-")]
    found: dict[str, set[str]] = {}
    with ThreadPoolExecutor(16) as pool:
        answers = pool.map(lambda item: (item[0], paths_in(*item, index, session)), asked)
        for name, paths in track(answers, "wheels", total=len(asked)):
            if paths:
                found.setdefault(name, set()).update(modules_in(paths))
    return found


def paths_in(name: str, version: str, index: str, session: requests.Session) -> list[str]:
    """The paths in a wheel of a version for Linux; none where there is none."""
    try:
        files = [file for found, file in all_files_of(name, index, session) if found == Version(version)]
    except requests.HTTPError:
        return []
    for file in files:
        if file["filename"].endswith(".whl") and any(map(on_linux, parse_wheel_filename(file["filename"])[3])):
            with RemoteZip(file["url"], session=session, initial_buffer_size=100_000) as archive:
                return list(archive.namelist())
    return []


def modules_in(paths: Iterable[str]) -> Iterator[str]:
    """The modules that the files of a wheel are."""
    for path in paths:
        first, *rest = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", path).split("/")
        if rest and rest[-1].endswith((".py", ".so", ".pyi")) and first.isidentifier():
            yield first
        elif not rest and (alone := re.fullmatch(r"([A-Za-z_]\w*)(\.py|\.[\w.-]*so)", first)):
            yield alone[1]


def rendered(rows: Iterable[list[Any]]) -> str:
    texts = []
    for repository, versions, device, modules in rows:
        names = ", ".join(json.dumps(name) for name in sorted(modules, key=str.lower))
        lines = textwrap.indent("\n".join(textwrap.wrap(names, 118)), "    ")
        head = ", ".join(json.dumps(value) for value in (repository, versions, device))
        texts.append(f"  [{head}, [\n{lines}\n  ]]")
    return "[\n" + ",\n".join(texts) + "\n]\n"


if __name__ == "__main__":
    main()
