"""Image names: `registry/repository:tag` or `registry/repository@sha256:...`, and the account and region of ECR registries."""

from __future__ import annotations

import re
from dataclasses import dataclass

ACCOUNT_ID = "123456789012"
ECR_REGISTRY = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?")


class ImageError(Exception):
    """An image cannot be built or found; the message says which, where, and why."""


@dataclass(frozen=True)
class Reference:
    """A parsed image name; ``registry`` is "" in a name without one."""

    registry: str
    repository: str
    tag: str  # "latest" where neither tag nor digest is given
    digest: str = ""

    def __str__(self) -> str:
        name = f"{self.registry}/{self.repository}" if self.registry else self.repository
        return f"{name}@{self.digest}" if self.digest else f"{name}:{self.tag}"

    def region_of(self, account_id: str) -> str | None:
        """Returns the registry's region if it is an ECR registry of the account, else None."""
        match = ECR_REGISTRY.fullmatch(self.registry)
        return match["region"] if match and match["account"] == account_id else None


def reference(text: str) -> Reference:
    """Parses an image name as Docker does.

    Raises:
        ImageError: the text is not an image name.
    """
    rest, _, digest = text.partition("@")
    registry, slash, repository = rest.partition("/")
    if not slash or not ("." in registry or ":" in registry or registry == "localhost"):
        registry, repository = "", rest
    repository, _, tag = repository.partition(":")
    if (
        not re.fullmatch(r"[a-z0-9]+([._/-]+[a-z0-9]+)*", repository)
        or not re.fullmatch(r"([\w][\w.-]{0,127})?", tag)
        or (digest and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest))
    ):
        raise ImageError(f"an image's name must be like 'repository:tag' in lower case, got {text!r}")
    return Reference(registry, repository, tag or "latest", digest)
