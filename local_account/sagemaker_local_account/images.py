"""The images of the account: built from a Dockerfile by the stand-in `docker`, kept in the state folder, run by jobs.

An image is a folder with the files that its Dockerfile copies and a few settings; its base's files are this machine's own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .base_images import deep_learning_container
from .builder import Builder, Stage
from .dockerfile import BuildError
from .environments import ImageError, PipInstall, python_for
from .references import ACCOUNT_ID, Reference, reference

__all__ = ["Image", "ImageError", "ImageStore"]


@dataclass(frozen=True)
class Image:
    """What a host needs of an image. ``root``: its files by their paths; ``python``: the environment first on PATH."""

    id: str
    root: Path
    env: dict[str, str]
    entrypoint: list[str]
    cmd: list[str]
    workdir: str
    python: Path
    notes: list[str]


class ImageStore:
    """The images in a state folder, by name. Several processes may use one folder at once."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._folder = state / "images"
        for name in ("tags", "registry"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)

    def build(
        self,
        context: Path,
        dockerfile: Path,
        tags: Sequence[str] = (),
        build_args: Mapping[str, str] | None = None,
        target: str | None = None,
        platform: str | None = None,
        say: Callable[[str], None] = lambda note: None,
    ) -> Image:
        """Build an image and name it. ``say`` gets each note as it comes up. Raises ``ImageError``."""
        if platform not in (None, "", "linux/amd64"):
            raise ImageError(f"platform must be linux/amd64, which SageMaker trains on, got {platform!r}")
        if not dockerfile.is_file():
            raise ImageError(f"there is no Dockerfile {str(dockerfile)!r}")
        notes: list[str] = []

        def note(text: str) -> None:
            notes.append(text)
            say(text)

        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            try:
                stage = Builder(
                    context, dockerfile, Path(scratch), build_args=build_args or {}, known=self._stage, say=note
                ).build(target)
            except BuildError as error:
                raise ImageError(str(error)) from None
            python = python_for(stage.base, stage.installs, self._state, note)
            image = self._keep(stage, python, notes)
        for name in tags:
            self._name("tags", name, image.id)
        return image

    def tag(self, source: str, target: str) -> None:
        image = self.inspect(source)
        if image is None:
            raise ImageError(f"no image is named {source!r}")
        self._name("tags", target, image.id)

    def inspect(self, name: str) -> Image | None:
        """The image of a name or an id; None where there is none."""
        return self._load(self._named("tags", name) or name)

    def names(self) -> list[str]:
        """All names of images on this machine."""
        return sorted(urllib.parse.unquote(path.name) for path in (self._folder / "tags").iterdir())

    def push(self, name: str) -> Image:
        """Put an image into the account's registry, from where jobs run it. Raises ``ImageError`` for other registries."""
        image = self.inspect(name)
        if image is None:
            raise ImageError(f"no image is named {name!r}")
        if own_reference(name) is None:
            raise ImageError(
                f"push must be to the account's own registry, like {ACCOUNT_ID}.dkr.ecr.us-east-1.amazonaws.com, got {name!r}"
            )
        self._name("registry", name, image.id)
        return image

    def resolve(self, uri: str) -> Image:
        """The image that a training job names. Raises ``ImageError`` where the account has none of that name."""
        image = self._load(self._named("registry", uri))
        if image is not None:
            return image
        container = deep_learning_container(reference(uri))
        if container is None:
            raise ImageError(
                f"ClientError: Cannot find the requested image: {uri}. Please check that it has been pushed"
            )
        root = self._folder / "empty"
        root.mkdir(exist_ok=True)
        python = python_for(container.requirements, [], self._state, lambda note: None)
        return Image(uri, root, container.env, [], [], "/", python, container.notes)

    def _keep(self, stage: Stage, python: Path, notes: list[str]) -> Image:
        settings = {
            "env": stage.env,
            "entrypoint": stage.entrypoint,
            "cmd": stage.cmd,
            "workdir": stage.workdir,
            "python": str(python),
            "notes": notes,
            "base": stage.base,
            "installs": [dataclasses.asdict(install) for install in stage.installs],
        }
        digest = hashlib.sha256(json.dumps({**settings, "notes": [], "installs": []}).encode())
        for part in _content(stage.root):
            digest.update(part)
        folder = self._folder / digest.hexdigest()
        if not folder.exists():
            os.chmod(stage.root, 0o755)
            whole = Path(tempfile.mkdtemp(dir=self._folder))
            shutil.move(stage.root, whole / "root")
            (whole / "image.json").write_text(json.dumps(settings, indent=2))
            try:
                whole.rename(folder)
            except OSError:  # another process was quicker with the same image
                shutil.rmtree(whole)
        image = self._load(folder.name)
        assert image is not None
        return image

    def _load(self, id: str | None) -> Image | None:
        file = self._folder / (id or "") / "image.json"
        if not id or "/" in id or not file.is_file():
            return None
        settings = json.loads(file.read_text())
        return Image(
            id=id,
            root=file.parent / "root",
            env=settings["env"],
            entrypoint=settings["entrypoint"],
            cmd=settings["cmd"],
            workdir=settings["workdir"],
            python=Path(settings["python"]),
            notes=settings["notes"],
        )

    def _stage(self, name: str) -> Stage | None:
        """An image that is here already, as the beginning of another."""
        id = self._named("registry", name) or self._named("tags", name)
        if id is None:
            return None
        folder = self._folder / id
        settings = json.loads((folder / "image.json").read_text())
        return Stage(
            root=folder / "root",
            env=settings["env"],
            base=settings["base"],
            installs=[
                PipInstall(
                    tuple(install["arguments"]),
                    install["place"],
                    None if install["requirements"] is None else tuple(install["requirements"]),
                )
                for install in settings["installs"]
            ],
            entrypoint=settings["entrypoint"],
            cmd=settings["cmd"],
            workdir=settings["workdir"],
        )

    def _name(self, kind: str, name: str, id: str) -> None:
        path = self._folder / kind / _quoted(name)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_text(id)
        partial.rename(path)

    def _named(self, kind: str, name: str) -> str | None:
        try:
            path = self._folder / kind / _quoted(name)
        except ValueError:
            return None
        return path.read_text() if path.is_file() else None


def own_reference(name: str) -> Reference | None:
    """A name taken apart, where it is one of the account's own registry; None where it is another's."""
    try:
        found = reference(name)
    except ValueError as error:
        raise ImageError(str(error)) from None
    return found if found.region_of(ACCOUNT_ID) else None


def _quoted(name: str) -> str:
    return urllib.parse.quote(str(reference(name)), safe="")


def _content(root: Path) -> Iterator[bytes]:
    for path in sorted(root.rglob("*")):
        yield str(path.relative_to(root)).encode()
        if path.is_symlink():
            yield str(path.readlink()).encode()
        elif path.is_file():
            yield oct(path.stat().st_mode).encode()
            yield path.read_bytes()
