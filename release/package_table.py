"""Writes which versions packages have, what each needs, and for which Python: `training_jobs/facts/packages.json`.

    python release/package_table.py INDEX [PACKAGE ...]

INDEX is the address of a package index that answers in JSON (PEP 691) and serves parts of files; the packages are those that the
table has, and others that are named: what the public training examples of AWS and Hugging Face install, and what that needs. Of
each version one wheel's METADATA is read, some 100 KB; of one that has no wheel nothing is known of what it needs.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from remotezip import RemoteZip  # type: ignore[import-untyped]
from rich.progress import track

from training_jobs.facts.packages import takes_wheel

FACTS = Path(__file__).parents[1] / "training_jobs" / "training_jobs" / "facts" / "packages.json"
_JSON = {"Accept": "application/vnd.pypi.simple.v1+json"}
_PYTHONS = range(6, 15)  # of Python 3, that any container has or will


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", metavar="INDEX")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE")
    args = parser.parse_args()
    session = index_session()
    names = sorted({*args.packages, *json.loads(FACTS.read_text())["packages"]})
    found = {name: rows_of(name, names, args.index, session) for name in track(names, "packages")}
    FACTS.write_text(rendered(found))


def index_session() -> requests.Session:
    """A session of 16 threads."""
    session = requests.Session()
    session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=16, max_retries=3))
    return session


def rows_of(package: str, names: Sequence[str], index: str, session: requests.Session) -> list[Any]:
    """The rows of a package: versions that have the same needs in one, in their order."""
    files: dict[Version, list[dict[str, Any]]] = {}
    for version, file in files_of(package, index, session):
        if not version.local:
            files.setdefault(version, []).append(file)
    versions = sorted(files)
    with ThreadPoolExecutor(16) as pool:
        facts = list(pool.map(lambda version: facts_of(files[version], names, session), versions))
    groups = itertools.groupby(zip(versions, facts, strict=True), key=lambda pair: pair[1])
    return [[" ".join(str(version) for version, _ in group), *fact] for fact, group in groups]


def files_of(package: str, index: str, session: requests.Session) -> Iterator[tuple[Version, dict[str, Any]]]:
    """The files of a package's releases, without those before a release, with their versions."""
    return ((version, file) for version, file in all_files_of(package, index, session) if not version.is_prerelease)


def all_files_of(package: str, index: str, session: requests.Session) -> Iterator[tuple[Version, dict[str, Any]]]:
    """The files of a package, with their versions: wheels and source distributions."""
    answer = session.get(f"{index.rstrip('/')}/{package}/", headers=_JSON, timeout=60)
    answer.raise_for_status()
    for file in answer.json()["files"]:
        version = version_of(file["filename"], package)
        if version is not None:
            yield version, file


def version_of(filename: str, package: str) -> Version | None:
    """The version of a wheel or of a source distribution; None for other files."""
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename, validate_order=False)[1]
        stem = re.sub(r"\.(tar\.gz|zip|tar\.bz2)$", "", filename)
        name, _, version = stem.rpartition("-")
        return Version(version) if stem != filename and canonicalize_name(name) == package else None
    except (InvalidWheelFilename, InvalidVersion, TypeError):
        return None


def facts_of(
    files: Sequence[dict[str, Any]], names: Sequence[str], session: requests.Session
) -> tuple[str, str, tuple[str, ...] | None]:
    """Which Python a version needs, for which it has wheels on Linux, and what it needs of the other packages."""
    wheels = [file for file in files if file["filename"].endswith(".whl")]
    pythons = sorted({minor for file in wheels for minor in pythons_of(file["filename"])})
    linux = [file for file in wheels if pythons_of(file["filename"])]
    python = next((file["requires-python"] for file in [*linux, *files] if file.get("requires-python")), "")
    needs = requires_of(linux[-1]["url"], names, session) if linux else None
    source = ["source"] if len(wheels) < len(files) else []
    yanked = ["yanked"] if all(file.get("yanked") for file in files) else []
    return valid(python), " ".join([*ranges(pythons), *source, *yanked]), needs


def valid(python: str) -> str:
    try:
        return str(SpecifierSet(python))
    except InvalidSpecifier:
        return ""


def pythons_of(filename: str) -> Iterator[int]:
    """The minor versions of Python 3 that take a wheel on Linux with an x86-64 processor."""
    try:
        tags = parse_wheel_filename(filename, validate_order=False)[3]
    except (InvalidWheelFilename, InvalidVersion, TypeError):
        return
    for minor in _PYTHONS:
        if any(on_linux(tag) and takes_wheel(minor, tag) for tag in tags):
            yield minor


def on_linux(tag: Tag) -> bool:
    return tag.platform == "any" or (tag.platform.endswith("_x86_64") and "linux" in tag.platform)


def ranges(minors: Sequence[int]) -> list[str]:
    """`3.8-3.11` and the like; `any` where all Pythons are there."""
    if minors == [*_PYTHONS]:
        return ["any"]
    groups = itertools.groupby(enumerate(minors), key=lambda pair: pair[1] - pair[0])
    runs = [[minor for _, minor in group] for _, group in groups]
    return [f"3.{run[0]}-3.{run[-1]}" if len(run) > 1 else f"3.{run[0]}" for run in runs]


def requires_of(url: str, names: Sequence[str], session: requests.Session) -> tuple[str, ...] | None:
    """What a wheel needs of the packages, without its extras; None where it does not say."""
    try:
        with RemoteZip(url, session=session, initial_buffer_size=100_000) as archive:
            name = next(name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
            metadata = Metadata.from_email(archive.read(name), validate=False)
        needs = [*(metadata.requires_dist or ())]
    except Exception as error:  # of a wheel that is no archive, and of metadata of before the standard
        print(f"{url.rpartition('/')[2]}: {error!r}"[:160], file=sys.stderr)
        return None
    return tuple(sorted({one for need in needs if (one := kept(need, names))}))


def kept(need: Requirement, names: Sequence[str]) -> str:
    if canonicalize_name(need.name) not in names or "extra" in str(need.marker or ""):
        return ""
    marker = f"; {need.marker}" if need.marker else ""
    return f"{canonicalize_name(need.name)}{need.specifier}{marker}"


def rendered(packages: dict[str, list[Any]]) -> str:
    """The table with a line for each row."""
    head = {
        "source": "the Python Package Index: the files of each version, and the METADATA of one of its wheels",
        "date": str(datetime.date.today()),
        "columns": [
            "versions, without those before a release",
            "Requires-Python",
            "the Pythons that have a wheel on Linux, x86-64; 'source' where there is a source distribution, "
            "'yanked' where the version is",
            "what it needs of the other packages, without its extras; null where there is no wheel that says so",
        ],
    }
    lines = [f' "{key}": {json.dumps(value)},' for key, value in head.items()]
    tables = [
        f'  "{name}": [\n' + ",\n".join(f"   {json.dumps(row)}" for row in rows) + "\n  ]"
        for name, rows in packages.items()
    ]
    return "\n".join(["{", *lines, ' "packages": {', ",\n".join(tables), " }", "}"]) + "\n"


if __name__ == "__main__":
    main()
