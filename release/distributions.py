"""Builds the wheels and the sdists of the last commit, byte for byte the same wherever and whenever it is done.

    python release/distributions.py --repository https://github.com/OWNER/NAME --to dist

Each package's metadata gets the project's addresses from ``--repository``, and the links and pictures of its README, which
is its description, become absolute ones at the version's tag. Needs what requirements-release.txt lists.

Times are those of the commit: https://reproducible-builds.org/specs/source-date-epoch/. setuptools takes them for wheels
but not for sdists (https://github.com/pypa/setuptools/issues/2133), so that the sdist's archive is written again here.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import posixpath
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The folders of the distributions, from the repository's root.
FOLDERS = ("", "local_account", "training_jobs")
# A link or a picture of Markdown that leads to a file beside the page: neither an address nor an anchor.
RELATIVE = re.compile(r"(!?)(\[(?:[^\[\]]|\[[^\]]*\])*\])\((?![a-z]+:|#)([^)\s]+)\)")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, and print the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--repository", required=True, help="address of the repository, like https://github.com/OWNER/NAME"
    )
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="folder of the files; dist by default")
    parser.add_argument("--tag", help="the tag that is released, which has to be the version's; not checked by default")
    given = parser.parse_args(arguments)
    if not re.fullmatch(r"https://[^\s\"/]+/\S*[^\s\"/]", given.repository):
        parser.error(
            f"--repository must be an https address like https://github.com/OWNER/NAME, got {given.repository!r}"
        )
    if given.tag and given.tag != tag():
        parser.error(f"--tag must be {tag()}, since pyproject.toml has that version, got {given.tag!r}")
    for file in build(given.repository, given.to):
        print(file)


def tag() -> str:
    """The tag of the version that pyproject.toml has."""
    return "v" + str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def build(repository: str, to: Path) -> list[Path]:
    """Build the distributions into a folder; the files."""
    time = int(output("git", "log", "-1", "--format=%ct"))
    os.umask(0o022)  # a wheel has the modes of the files that it is built from
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        with tarfile.open(fileobj=io.BytesIO(output("git", "archive", "HEAD"))) as archive:
            archive.extractall(source, filter="data")
        return [file for name in FOLDERS for file in build_one(source, name, repository, time, to)]


def build_one(source: Path, folder: str, repository: str, time: int, to: Path) -> list[Path]:
    """Build the distribution of one folder; its files."""
    readme, project = source / folder / "README.md", source / folder / "pyproject.toml"
    readme.write_text(absolute_links(readme.read_text(), repository, folder))
    project.write_text(project.read_text() + project_urls(repository))
    with tempfile.TemporaryDirectory() as built:
        done = subprocess.run(
            [sys.executable, "-m", "build", "--no-isolation", "--outdir", built, str(source / folder)],
            env={**os.environ, "SOURCE_DATE_EPOCH": str(time)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise SystemExit(done.stdout)
        [sdist], [wheel] = Path(built).glob("*.tar.gz"), Path(built).glob("*.whl")
        files = [to / sdist.name, to / wheel.name]
        files[0].write_bytes(written_again(sdist, time))
        files[1].write_bytes(wheel.read_bytes())
    return files


def output(*command: str) -> bytes:
    """What a command of git prints."""
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def absolute_links(page: str, repository: str, folder: str = "") -> str:
    """A folder's page with absolute addresses in place of relative ones: files at the version's tag, and pictures themselves."""

    def absolute(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        target = posixpath.normpath(posixpath.join(folder, target))
        return f"{picture}{text}({repository}/{'raw' if picture else 'blob'}/{tag()}/{target})"

    return RELATIVE.sub(absolute, page)


def project_urls(repository: str) -> str:
    """The table of addresses of pyproject.toml, with the labels that are well known to package indexes.

    https://packaging.python.org/en/latest/specifications/well-known-project-urls/
    """
    urls = {
        "source": repository,
        "documentation": f"{repository}/tree/{tag()}/docs",
        "changelog": f"{repository}/blob/{tag()}/CHANGELOG.md",
        "issues": f"{repository}/issues",
    }
    return "\n[project.urls]\n" + "".join(f'{label} = "{url}"\n' for label, url in urls.items())


def written_again(sdist: Path, time: int) -> bytes:
    """An sdist with its files in order, with one time and without an owner."""
    plain = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.mode = time, 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(plain.getvalue(), mtime=time)


if __name__ == "__main__":
    main()
