"""What the tests share: a context with builds of it, packages that are nowhere but in a folder, a running account."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_account import NEWER_TYPE, Running

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.images.image_store import Image, ImageError, ImageStore


class Builds:
    """A context of files, and builds of it."""

    def __init__(self, folder: Path) -> None:
        self.context = folder / "context"
        self.context.mkdir()
        self.state = folder / "state"
        self.store = ImageStore(self.state)
        self.steps: list[str] = []

    def file(self, path: str, text: str = "") -> Path:
        file = self.context / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text or f"this is {path}")
        return file

    def build(
        self, *lines: str, tags: tuple[str, ...] = (), base: str = "FROM python:3.11", **options: object
    ) -> Image:
        dockerfile = self.context.parent / "Dockerfile"
        dockerfile.write_text("\n".join([base, *lines]))
        return self.store.build(self.context, dockerfile, tags, step=self.steps.append, **options)  # type: ignore[arg-type]

    def files(self, *lines: str, **options: object) -> dict[str, str]:
        """The files of the image that is built, by their paths."""
        root = self.build(*lines, **options).root  # type: ignore[arg-type]
        return {f"/{path.relative_to(root)}": path.read_text() for path in root.rglob("*") if path.is_file()}

    def refused(self, *lines: str, **options: object) -> str:
        with pytest.raises(ImageError) as error:
            self.build(*lines, **options)  # type: ignore[arg-type]
        return str(error.value)


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path)


class Wheels:
    """Packages of one module each, in the folder that is all that pip finds packages in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def add(self, name: str, version: str, folder: Path | None = None) -> None:
        """Its module says its `version`."""
        about = f"{name}-{version}.dist-info"
        with zipfile.ZipFile((folder or self.folder) / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}.py", f"version = {version!r}")
            archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{about}/RECORD", "")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheels:
    monkeypatch.delenv("SAGEMAKER_LOCAL_ACCOUNT_VENVS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    wheels = Wheels(tmp_path / "index")
    wheels.add("jobtools", "1.0")
    wheels.add("jobtools", "2.0")
    return wheels


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An account for the tests of a module, which evaluates permissions unless ``ENFORCED`` is False."""
    enforced = getattr(request.module, "ENFORCED", True)
    state = tmp_path_factory.mktemp("account")
    with LocalAccount(state=state, devices={NEWER_TYPE: 3}, enforce_iam=enforced) as account:
        yield Running(account)
