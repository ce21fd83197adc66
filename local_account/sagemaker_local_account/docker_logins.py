"""Which registries the stand-in `docker` is logged in to, as Docker keeps it.

The folder is one of the account's own: its tokens are nothing to the user's real Docker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import atomic_files
from .base_images import AWS_ACCOUNTS, PUBLIC_REGISTRY
from .references import ECR_REGISTRY, ImageError, Reference


class DockerLogins:
    """The registries of a folder's `config.json`: those of `docker login`, and those that a credential helper answers for."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "config.json"

    def add(self, registry: str) -> None:
        content = self._content()
        content.setdefault("auths", {})[registry] = {}
        self._write(content)

    def remove(self, registry: str) -> None:
        content = self._content()
        content.get("auths", {}).pop(registry, None)
        self._write(content)

    def check(self, image: Reference) -> None:
        """Raise ``ImageError`` for an image that may not be pulled or pushed without a log-in; ECR keeps all of its own so."""
        place, content = ECR_REGISTRY.fullmatch(image.registry), self._content()
        if place is None or image.registry in {**content.get("auths", {}), **content.get("credHelpers", {})}:
            return
        public = f"; AWS's containers also lie in {PUBLIC_REGISTRY}/deep-learning-containers/, which takes no log-in"
        raise ImageError(
            f"{image}: pull access denied, repository does not exist or may require authorization: no basic auth credentials. "
            f"Log in before, like `aws ecr get-login-password --region {place['region']} | "
            f"docker login --username AWS --password-stdin {image.registry}`"
            f"{public if place['account'] in AWS_ACCOUNTS else ''}"
        )

    def _content(self) -> dict[str, Any]:
        return dict(json.loads(self._file.read_text())) if self._file.is_file() else {}

    def _write(self, content: Mapping[str, Any]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.write(self._file, json.dumps(content), mode=0o600)
