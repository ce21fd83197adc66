"""The logins of the stand-in `docker`, in the format of Docker's config.json.

The folder belongs to the account: its logins are separate from those of the user's Docker.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sagemaker_local_account.core import atomic_files
from sagemaker_local_account.core.image_names import ECR_REGISTRY, ImageError, Reference
from sagemaker_local_account.core.json_files import read_object
from sagemaker_local_account.images.base_images import AWS_ACCOUNTS, PUBLIC_REGISTRY


class DockerLogins:
    """The registries in a folder's `config.json`: those of `docker login`, and those with a credential helper."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "config.json"

    def add(self, registry: str) -> None:
        """Adds a registry."""
        content = self._content()
        content.setdefault("auths", {})[registry] = {}
        self._write(content)

    def remove(self, registry: str) -> None:
        """Removes a registry."""
        content = self._content()
        content.get("auths", {}).pop(registry, None)
        self._write(content)

    def check(self, image: Reference) -> None:
        """Raises ``ImageError`` for an image in an ECR registry without a login."""
        place, content = ECR_REGISTRY.fullmatch(image.registry), self._content()
        if place is None or image.registry in {**content.get("auths", {}), **content.get("credHelpers", {})}:
            return
        public = f"; AWS's containers are also in {PUBLIC_REGISTRY}/deep-learning-containers/, which requires no login"
        raise ImageError(
            f"{image}: pull access denied, repository does not exist or may require authorization: no basic auth credentials. "
            f"Log in first, like `aws ecr get-login-password --region {place['region']} | "
            f"docker login --username AWS --password-stdin {image.registry}`"
            f"{public if place['account'] in AWS_ACCOUNTS else ''}"
        )

    def _content(self) -> dict[str, Any]:
        remedy = f"delete it, and log in again: rm {shlex.quote(str(self._file))}"
        return read_object(self._file, ImageError, remedy) if self._file.is_file() else {}

    def _write(self, content: Mapping[str, Any]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.write(self._file, json.dumps(content), mode=0o600)
