"""The images of the account: built from a Dockerfile by the stand-in `docker`, kept in the state folder, run by jobs.

An image is a folder with the files that its Dockerfile copies, a few settings, and what it installs; the rest of its
base's files are this machine's own.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from . import atomic_files, leftovers
from .base_images import AWS_ACCOUNTS, deep_learning_container
from .builder import Builder, Stage
from .environments import python_for
from .pip_install import PipInstall
from .references import ACCOUNT_ID, ECR_REGISTRY, ImageError, Reference, reference
from .trees import digest

__all__ = ["Image", "ImageError", "ImageStore", "own_reference"]

PLATFORM = "linux/amd64"


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
    """The images in a state folder, by name. Several processes may use one folder at once.

    Beneath `images`: a folder per image by its id, `tags` with a file per name on this machine, and `registry` with one per
    name in the account's ECR. All methods raise ``ImageError``.
    """

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
        *,
        pull: Callable[[Reference], None] = lambda image: None,
        step: Callable[[str], None] = lambda text: None,
        note: Callable[[str], None] = lambda text: None,
    ) -> Image:
        """Build an image and name it.

        ``pull`` gets each image that is not on this machine before it is taken from its registry, and raises ``ImageError``
        where it may not be; ``step`` gets each instruction as it is applied, ``note`` each note.
        """
        if (platform or PLATFORM) != PLATFORM:
            raise ImageError(f"platform must be {PLATFORM}, which SageMaker trains on, got {platform!r}")
        if not dockerfile.is_file():
            raise ImageError(f"no Dockerfile is at {str(dockerfile)!r}")
        names = [reference(name) for name in tags]
        notes: list[str] = []

        def noted(text: str) -> None:
            notes.append(text)
            note(text)

        with (
            leftovers.held(self._folder),
            tempfile.TemporaryDirectory(prefix=leftovers.UNFINISHED, dir=self._folder) as scratch,
        ):
            builder = Builder(
                context,
                dockerfile,
                Path(scratch),
                build_args=build_args or {},
                known=lambda name: self._stage(name, pull),
                pull=pull,
                step=step,
                note=noted,
            )
            stage = builder.build(target)
            python = python_for(stage.base, stage.listed, stage.installs, stage.root, self._state, noted)
            id = self._keep(stage, notes)
            for name in names:
                self._name("tags", name, id)
        return replace(self._load(id, python), notes=notes)

    def tag(self, source: str, target: str) -> None:
        """Give an image another name."""
        with leftovers.held(self._folder):
            self._name("tags", reference(target), self._id("tags", source))

    def inspect(self, name: str) -> Image | None:
        """The image of a name or an id; None where there is none."""
        try:
            id = self._id("tags", name)
        except ImageError:
            return None
        return self._load(id, self._python(id))

    def names(self) -> list[str]:
        """All names of images on this machine."""
        return sorted(json.loads(path.read_text())["name"] for path in (self._folder / "tags").glob("*.json"))

    def push(self, name: str, register: Callable[[str, Reference], str | None] = lambda id, name: None) -> str:
        """Put an image into the account's registry, from where jobs run it; its id.

        ``register`` gets the id and the name, and makes the account's ECR know them; it may return the digest that ECR gives
        the image, by which jobs can name it too.
        """
        id = self._id("tags", name)
        named = own_reference(name)
        given = register(id, named)
        with leftovers.held(self._folder):
            if given:
                self._name("registry", replace(named, digest=given), id)
            self._name("registry", named, id)
        return id

    def resolve(self, uri: str) -> Image:
        """The image that a training job names: one pushed to the account, or one of AWS's deep learning containers."""
        named = reference(uri)
        id = self._named("registry", named)
        if id is not None:
            return self._load(id, self._python(id))
        container = deep_learning_container(named)
        if container is None:
            raise ImageError(
                f"ClientError: Cannot find the requested image: {uri}. Images are pushed to the account by `cdk deploy`, "
                f"and of AWS's own it has the PyTorch and TensorFlow training containers{_of_another_account(named)}"
            )
        start = container.start
        root = self._folder / f"base-{hashlib.sha256(start.source.encode()).hexdigest()[:12]}"
        container.write_files(root)
        python = python_for(container.requirements, container.listed, [], root, self._state, lambda note: None)
        return Image(
            uri, root, container.env, [*start.entrypoint], [*start.cmd], start.workdir, python, container.notes
        )

    def _python(self, id: str) -> Path:
        # Each time anew: the account's own environment may have changed since the image was built.
        stage = self._stage_of(id)
        return python_for(stage.base, stage.listed, stage.installs, stage.root, self._state, lambda note: None)

    def _keep(self, stage: Stage, notes: list[str]) -> str:
        settings: dict[str, Any] = {
            "env": stage.env,
            "entrypoint": stage.entrypoint,
            "cmd": stage.cmd,
            "workdir": stage.workdir,
            "shell": stage.shell,
            "base": stage.base,
            "listed": stage.listed,
            "installs": [asdict(install) for install in stage.installs],
        }
        id = hashlib.sha256(f"{digest(stage.root)} {json.dumps(settings)}".encode()).hexdigest()
        folder = self._folder / id
        if not folder.exists():
            whole = Path(tempfile.mkdtemp(dir=stage.root.parent))
            stage.root.chmod(0o755)
            stage.root.rename(whole / "root")
            atomic_files.write(whole / "image.json", json.dumps({**settings, "notes": notes}, indent=2))
            try:
                whole.rename(folder)
            except OSError:  # another process was quicker with the same image
                shutil.rmtree(whole)
        return id

    def _settings(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._folder / id / "image.json").read_text())
        return found

    def _load(self, id: str, python: Path) -> Image:
        settings = self._settings(id)
        own = {name: settings[name] for name in ("env", "entrypoint", "cmd", "workdir", "notes")}
        return Image(id=id, root=self._folder / id / "root", python=python, **own)

    def _stage_of(self, id: str) -> Stage:
        settings = self._settings(id)
        own = {name: settings[name] for name in ("env", "entrypoint", "cmd", "workdir", "shell", "base")}
        own["listed"] = settings.get("listed", [])  # of an earlier release's image there is none
        installs = [PipInstall.of(install) for install in settings["installs"]]
        return Stage(root=self._folder / id / "root", installs=installs, **own)

    def _stage(self, name: str, pull: Callable[[Reference], None]) -> Stage | None:
        """An image of this machine, else of the account's registry, as the beginning of another."""
        try:
            named = reference(name)
        except ImageError:
            return None
        id = self._named("tags", named)
        if id is None and (id := self._named("registry", named)) is not None:
            pull(named)
        return self._stage_of(id) if id else None

    def _id(self, kind: str, name: str) -> str:
        id = name.removeprefix("sha256:")
        if len(id) == 64 and (self._folder / id / "image.json").is_file():
            return id
        found = self._named(kind, reference(name))
        if found is None:
            raise ImageError(f"no image is named {name!r}")
        return found

    def _name(self, kind: str, name: Reference, id: str) -> None:
        atomic_files.write(self._file_of(kind, name), json.dumps({"name": str(name), "id": id}))

    def _named(self, kind: str, name: Reference) -> str | None:
        file = self._file_of(kind, name)
        id = str(json.loads(file.read_text())["id"]) if file.is_file() else None
        return id if id and (self._folder / id / "image.json").is_file() else None

    def _file_of(self, kind: str, name: Reference) -> Path:
        # By a hash: a name may be longer than a file's name.
        return self._folder / kind / f"{hashlib.sha256(str(name).encode()).hexdigest()[:32]}.json"


def _of_another_account(image: Reference) -> str:
    """What to add of an image that is in a registry of neither the account nor AWS."""
    registry = ECR_REGISTRY.fullmatch(image.registry)
    if registry is None or registry["account"] in AWS_ACCOUNTS | {ACCOUNT_ID}:
        return ""
    return f"; that is the registry of account {registry['account']}, and the local account is {ACCOUNT_ID}"


def own_reference(name: str) -> Reference:
    """The name of an image of the account's own registry; ``ImageError`` where it is another's."""
    found = reference(name)
    if found.region_of(ACCOUNT_ID) is None:
        raise ImageError(
            f"push must be to the account's own registry, like {ACCOUNT_ID}.dkr.ecr.us-east-1.amazonaws.com/jobs:1, got {name!r}"
        )
    return found
