"""The request that a script of SageMaker's SDK would send."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_jobs.adopt.code import Source
from training_jobs.client.errors import TrainingError

_CATCHER = Path(__file__).with_name("catch_request.py")
_REGION = "us-east-1"


@dataclass(frozen=True)
class Caught:
    """What a script would send.

    Attributes:
        request: CreateTrainingJob's request.
        region: The region of the client that would send it.
        uploads: S3 URIs of what the script would upload before.
        source: The folder of its training script; None for none, and for one that is not on this machine.
    """

    request: dict[str, Any]
    region: str
    uploads: tuple[str, ...]
    source: Source | None = None


def request_of_script(
    script: Path,
    arguments: Sequence[str] = (),
    *,
    account: str = "123456789012",
    region: str | None = None,
    python: str = sys.executable,
) -> Caught:
    """Run a script without a network or credentials until it would start a job.

    Args:
        script: The script.
        arguments: Its arguments.
        account: The account's number that the script's calls return, as in the name of its default bucket.
        region: The region; None for that of the environment.
        python: The Python that has the SDK.

    Raises:
        TrainingError: The script fails, or starts no job.
    """
    if not script.is_file():
        raise TrainingError(f"there is no script {str(script)!r}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    chosen = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _REGION
    environment |= {
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": chosen,
        "AWS_REGION": chosen,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "caught.json")
        command = [python, str(_CATCHER), str(output), account, str(script), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        caught = json.loads(output.read_text()) if output.is_file() else {}
    if "request" not in caught:
        raise TrainingError(f"{script} {_why(done, caught.get('failed'))}")
    found = caught["source"]
    given: dict[str, Any] = {name: tuple(it) if isinstance(it, list) else it for name, it in (found or {}).items()}
    source = Source(**given) if given else None
    return Caught(caught["request"], caught["region"], tuple(caught["uploads"]), source)


def _why(done: subprocess.CompletedProcess[str], failed: str | None) -> str:
    if failed is not None:
        return f"fails before it starts a job: {failed}"
    if done.returncode == 0:
        return "starts no training job"
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    if last.startswith("ModuleNotFoundError: No module named 'sagemaker"):
        install = "`pip install 'training-jobs[sagemaker]'`"
        return f"needs SageMaker's SDK: {install}, or --python of an environment that has it ({last})"
    return f"fails before it starts a job: {last}"
