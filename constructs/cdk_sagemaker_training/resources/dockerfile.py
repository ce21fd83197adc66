"""Checks of what a Dockerfile copies, and what is excluded from its build context."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cdk_sagemaker_training.core.errors import must

if TYPE_CHECKING:
    from training_jobs.lint.dockerfile import Dockerfile


def check_sources(dockerfile: Dockerfile) -> None:
    """Check that the build context has the sources of a Dockerfile's COPY and ADD; Docker reports it when the image is built.

    Raises:
        ValueError: The file is no Dockerfile, a source does not exist, or .dockerignore excludes it; the message shows the line.
    """
    from training_jobs.lint.dockerfile import MalformedError

    try:
        _ = dockerfile.image
    except MalformedError as error:
        raise must("file", "be a Dockerfile that Docker reads", "'Dockerfile'", str(error)) from error
    for source, line, why in dockerfile.lacking():
        got = f"{str(dockerfile.directory)!r} {why} {source!r} (line {line} of {dockerfile.file})"
        raise must("directory", "contain what its Dockerfile copies", "'train.py'", got)


def check_copied(dockerfile: Dockerfile, file: str) -> None:
    """Check that a Dockerfile copies a file of ``training_code_path()``, wherever it is in the build context.

    Args:
        dockerfile: The Dockerfile.
        file: Path of the file relative to ``training_code_path()``.
    """
    root, sources = dockerfile.directory, dockerfile.copied
    taken = [root] if sources is None else [path for pattern in sources for path in root.glob(pattern)]
    name = PurePosixPath(file).name
    if not any(path.name == name or any(path.rglob(name)) for path in taken):
        rule = f"copy {file} of training_code_path(), which the job's launcher starts on every host"
        example = f"'COPY {file} /opt/ml/code/{PurePosixPath(file).parent}/'"
        raise must("image", rule, example, f"a Dockerfile in {str(root)!r} that does not")


def ignore_lines(dockerfile: Dockerfile) -> list[str] | None:
    """Return the lines of a .dockerignore that excludes all but what is copied; None where all is."""
    if (sources := dockerfile.copied) is None:
        return None
    ignored = dockerfile.directory / ".dockerignore"
    return [
        "**",
        *(f"!{path}" for path in (dockerfile.file, *sources)),
        "**/__pycache__",
        # CDK reads the directory's own lines too, but puts them first, so that the lines above would override them.
        *(ignored.read_text().splitlines() if ignored.is_file() else []),
    ]
