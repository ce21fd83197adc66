"""Whether this machine allows a user to run hosts in namespaces."""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

from sagemaker_local_account.runtime.pod import HostError, Pod
from sagemaker_local_account.runtime.spec import ContainerSpec, PodSpec


@functools.cache
def namespaces_refused() -> str | None:
    """Runs a host; returns why it could not be started, or None where it could."""
    if sys.platform != "linux":
        return f"namespaces require Linux; this is {sys.platform}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "image").mkdir()
        host = ContainerSpec.alone(
            name="algo-1",
            instance_type="ml.m5.large",
            folder=folder / "host",
            root=folder / "image",
            environment={"PATH": "/usr/bin:/bin"},
            command=("true",),
            working_directory="/",
        )
        trial = Pod(PodSpec("trial", (host,), 1, folder), on_line=lambda host, line: None)
        try:
            trial.start()
        except HostError as error:
            return str(error)
        finally:
            trial.close()
    return None
