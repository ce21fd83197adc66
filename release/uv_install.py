"""Installs packages by uv with the settings that pip has on this machine.

    .venv/bin/python release/uv_install.py -r requirements.txt

Packages are compiled, as by pip: programs whose environment says PYTHONDONTWRITEBYTECODE would compile them anew each time they
start.

uv writes packages side by side, pip each after what it requires. Where two have a file in common, as aws-cdk-lib and the
aws-cdk.cloud-assembly-schema that it requires have ``aws_cdk/cloud_assembly_schema/__init__.py``, pip leaves that of the one
which requires the other, and uv that of the slower. What pip would have left is put in place afterwards.
"""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Sequence
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


def install(python: Path, folder: Path, asked: Sequence[str]) -> int:
    """Install what is asked for into an environment, and then anew what was covered; returns uv's exit status."""
    command, environment = uv.command(python)
    status = subprocess.run([*command, *asked], env=environment, check=False).returncode
    again = covered(folder)
    if status or not again:
        return status
    anew = [part for each in again for part in ("--reinstall-package", each.split("==")[0])]
    return subprocess.run([*command, "--no-deps", *anew, *again], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(install(Path(sys.executable), Path(sysconfig.get_path("purelib")), sys.argv[1:]))
