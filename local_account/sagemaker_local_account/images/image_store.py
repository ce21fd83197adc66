"""The images of an account, which the stand-in `docker` builds and jobs run.

An image is a folder in the state folder with the files that its Dockerfile copies, its settings, and its requirements; all other
files of its base image are replaced by this machine's own.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sagemaker_local_account.core import atomic_files
from sagemaker_local_account.core.image_names import ACCOUNT_ID, ECR_REGISTRY, ImageError, Reference, reference
from sagemaker_local_account.core.image_tree import digest
from sagemaker_local_account.core.json_files import read_object
from sagemaker_local_account.images.base_images import AWS_ACCOUNTS, deep_learning_container
from sagemaker_local_account.images.dockerfile_evaluator import DockerfileEvaluator, Stage
from sagemaker_local_account.images.environments import environment_for
from sagemaker_local_account.images.pip_install import PipInstall
from sagemaker_local_account.images.training_toolkit import FAILED, REQUIREMENTS, requirements_of_code
from sagemaker_local_account.runtime import leftovers

__all__ = ["Image", "ImageError", "ImageStore", "own_reference"]

PLATFORM = "linux/amd64"


@dataclass(frozen=True)
class Image:
    """An image.

    Args:
        id: its id.
        root: the folder with its files.
        env: ENV.
        entrypoint: ENTRYPOINT.
        cmd: CMD.
        workdir: WORKDIR.
        python: its Python environment.
        notes: the notes of its build.
    """

    id: str
    root: Path
    env: dict[str, str]
    entrypoint: list[str]
    cmd: list[str]
    workdir: str
    python: Path
    notes: list[str]


class ImageStore:
    """The images in a state folder, which several processes can use at once. All methods raise ``ImageError``.

    The folder `images` has a folder per image by id, `tags` with a file per local name, and `registry` with a file per name in
    the account's ECR.
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
        """Builds an image.

        Args:
            context: the build's context.
            dockerfile: the Dockerfile.
            tags: the image's names.
            build_args: the values of `--build-arg`.
            target: the stage to build; None for the last.
            platform: must be linux/amd64.
            pull: called with each base image that is not on this machine; raises ``ImageError`` where it cannot be pulled.
            step: called with each instruction.
            note: called with each note.
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
            leftovers.mark_in_use(self._folder),
            tempfile.TemporaryDirectory(prefix=leftovers.UNFINISHED, dir=self._folder) as scratch,
        ):
            builder = DockerfileEvaluator(
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
            python = environment_for(stage.base, stage.listed, stage.installs, stage.root, self._state, noted)
            id = self._keep(stage, notes)
            for name in names:
                self._name("tags", name, id)
        return replace(self._load(id, python), notes=notes)

    def tag(self, source: str, target: str) -> None:
        """Adds a name to an image."""
        with leftovers.mark_in_use(self._folder):
            self._name("tags", reference(target), self._id("tags", source))

    def inspect(self, name: str) -> Image | None:
        """Returns the image with a name or id, or None."""
        try:
            id = self._id("tags", name)
        except ImageError:
            return None
        return self._load(id, self._python(id))

    def names(self) -> list[str]:
        """Returns the names of all local images."""
        return sorted(_read(path)["name"] for path in (self._folder / "tags").glob("*.json"))

    def push(self, name: str, register: Callable[[str, Reference], str | None] = lambda id, name: None) -> str:
        """Pushes an image to the account's registry, from which jobs run it; returns its id.

        Args:
            name: the image's name.
            register: called with the id and the name to put the image into the account's ECR; returns its digest, by which jobs
            can
                also name it.
        """
        id = self._id("tags", name)
        named = own_reference(name)
        given = register(id, named)
        with leftovers.mark_in_use(self._folder):
            if given:
                self._name("registry", replace(named, digest=given), id)
            self._name("registry", named, id)
        return id

    def resolve(self, uri: str, code: Path | None = None, note: Callable[[str], None] = lambda text: None) -> Image:
        """Returns the image of a training job: one pushed to the account, or one of AWS's deep learning containers.

        Args:
            uri: its name.
            code: a folder with the job's code, if that is not in the image; its requirements.txt is in the environment, and the
                packages of AWS's container that it imports.
            note: called with each note of the environment.
        """
        named = reference(uri)
        try:
            install = requirements_of_code(code) if code is not None else None
            return self._resolved(named, uri, [install] if install else [], code, note)
        except ImageError as error:
            if str(error).startswith(f"{REQUIREMENTS}:"):
                raise ImageError(f"{FAILED}{error}") from None
            raise

    def _resolved(
        self, named: Reference, uri: str, more: Sequence[PipInstall], code: Path | None, note: Callable[[str], None]
    ) -> Image:
        id = self._named("registry", named)
        if id is not None:
            return self._load(id, self._python(id, more, code, note))
        container = deep_learning_container(named)
        if container is None:
            raise ImageError(
                f"ClientError: Cannot find the requested image: {uri}. Images are pushed to the account by `cdk deploy`; "
                f"of AWS's images it supports the PyTorch and TensorFlow training containers{_of_another_account(named)}"
            )
        start = container.start
        root = self._folder / f"base-{hashlib.sha256(start.source.encode()).hexdigest()[:12]}"
        container.write_files(root)
        python = environment_for(container.requirements, container.listed, more, root, self._state, note, code)
        return Image(
            uri, root, container.env, [*start.entrypoint], [*start.cmd], start.workdir, python, container.notes
        )

    def _python(
        self,
        id: str,
        more: Sequence[PipInstall] = (),
        code: Path | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> Path:
        # Not cached with the image: the account's own environment may have changed since the build.
        stage = self._stage_of(id)
        installs = [*stage.installs, *more]
        return environment_for(stage.base, stage.listed, installs, stage.root, self._state, note, code)

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
        if folder.exists() and not _is_sound(folder / "image.json"):
            folder.rename(tempfile.mkdtemp(dir=stage.root.parent))  # is removed with the build's own folder
        if not folder.exists():
            whole = Path(tempfile.mkdtemp(dir=stage.root.parent))
            stage.root.chmod(0o755)
            stage.root.rename(whole / "root")
            atomic_files.write(whole / "image.json", json.dumps({**settings, "notes": notes}, indent=2))
            try:
                whole.rename(folder)
            except OSError:  # another process has built the same image
                shutil.rmtree(whole)
        return id

    def _settings(self, id: str) -> dict[str, Any]:
        return _read(self._folder / id / "image.json")

    def _load(self, id: str, python: Path) -> Image:
        settings = self._settings(id)
        own = {name: settings[name] for name in ("env", "entrypoint", "cmd", "workdir", "notes")}
        return Image(id=id, root=self._folder / id / "root", python=python, **own)

    def _stage_of(self, id: str) -> Stage:
        settings = self._settings(id)
        own = {name: settings[name] for name in ("env", "entrypoint", "cmd", "workdir", "shell", "base")}
        own["listed"] = settings.get("listed", [])  # missing in images of earlier releases
        installs = [PipInstall.of(install) for install in settings["installs"]]
        return Stage(root=self._folder / id / "root", installs=installs, **own)

    def _stage(self, name: str, pull: Callable[[Reference], None]) -> Stage | None:
        """A local image, or one of the account's registry, as a base image."""
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
        id = str(_read(file)["id"]) if file.is_file() else None
        return id if id and (self._folder / id / "image.json").is_file() else None

    def _file_of(self, kind: str, name: Reference) -> Path:
        # A hash: a name may be longer than a file name can be.
        return self._folder / kind / f"{hashlib.sha256(str(name).encode()).hexdigest()[:32]}.json"


def _read(file: Path) -> dict[str, Any]:
    remedy = f"delete it, and build and push the image again, like `cdk deploy` does: rm {shlex.quote(str(file))}"
    return read_object(file, ImageError, remedy)


def _is_sound(file: Path) -> bool:
    try:
        _read(file)
    except (ImageError, OSError):
        return False
    return True


def _of_another_account(image: Reference) -> str:
    """The addition to the error for an image in a registry of another account."""
    registry = ECR_REGISTRY.fullmatch(image.registry)
    if registry is None or registry["account"] in AWS_ACCOUNTS | {ACCOUNT_ID}:
        return ""
    return f"; its registry belongs to account {registry['account']}, and the local account is {ACCOUNT_ID}"


def own_reference(name: str) -> Reference:
    """Parses the name of an image in the account's own registry; raises ``ImageError`` for another registry."""
    found = reference(name)
    if found.region_of(ACCOUNT_ID) is None:
        raise ImageError(
            f"push must be to the account's own registry, like {ACCOUNT_ID}.dkr.ecr.us-east-1.amazonaws.com/jobs:1, got {name!r}"
        )
    return found
