"""Records how AWS's training containers start, from a bare clone of aws/deep-learning-containers, for the tests beside it.

    python tests/containers/record.py deep-learning-containers.git

Facts only, of each container's Dockerfile and of the script in front of it: no line of either. A newer commit, or another
container, is a line of ``SOURCES``.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from dockerfile_parse import DockerfileParser

RECORDED = Path(__file__).parent / "recorded.json"
NOW = "e0ecedea6a1c56d6b5914f9cfb2fec5c548e67e0"  # 21 August 2026
# By image: the commit, the Dockerfile, and the script that its entry point starts.
SOURCES = {
    "pytorch:2.13-cu133-amzn2023-sagemaker": (
        NOW,
        "docker/pytorch/Dockerfile.cuda",
        "scripts/docker/pytorch/start_with_right_hostname.sh",
    ),
    "pytorch:2.13-cpu-amzn2023-sagemaker": (
        NOW,
        "docker/pytorch/Dockerfile.cpu",
        "scripts/docker/pytorch/start_with_right_hostname.sh",
    ),
    "tensorflow-training:2.21-gpu-py312-cu129-amzn2023-sagemaker": (
        NOW,
        "docker/tensorflow/2.21/Dockerfile.cuda",
        "scripts/docker/tensorflow/entrypoint.sh",
    ),
    "tensorflow-training:2.21-cpu-py312-amzn2023-sagemaker": (
        NOW,
        "docker/tensorflow/2.21/Dockerfile.cpu",
        "scripts/docker/tensorflow/entrypoint.sh",
    ),
}


def show(clone: str, commit: str, path: str) -> str:
    """A file of a commit."""
    return subprocess.run(
        ["git", "-C", clone, "show", f"{commit}:{path}"], check=True, capture_output=True, text=True
    ).stdout


def settings(dockerfile: str) -> dict[str, Any]:
    """What the stage `sagemaker` says, with what those stages say that it begins from."""
    stages: dict[str, list[tuple[str, str]]] = {}
    for line in DockerfileParser(fileobj=io.BytesIO(dockerfile.encode())).structure:
        keyword, value = line["instruction"], line["value"]
        if keyword == "FROM":
            base, _, name = [*value.split(), "", ""][:3]
            stages[name] = current = [*stages.get(base, [])]
        elif stages:
            current.append((keyword, value))
    found: dict[str, Any] = {"user": "root", "env": {}}
    for keyword, value in stages["sagemaker"]:
        if keyword in ("ENTRYPOINT", "CMD"):
            found[keyword.lower()] = json.loads(value)
        elif keyword in ("WORKDIR", "USER"):
            found[keyword.lower()] = value
        elif keyword == "ENV":
            found["env"] |= dict(word.split("=", 1) for word in shlex.split(value))
    installs = " ".join(value for keyword, value in stages["sagemaker"] if keyword == "RUN")
    return {**found, "has_jq": bool(re.search(r"\bjq\b", installs))}


def facts_of(script: str) -> dict[str, Any]:
    """What a script in front does that a job can notice."""
    lines = [line.strip() for line in script.splitlines() if not line.strip().startswith("#")]
    text = "\n".join(lines)
    preloaded = re.search(r"LD_PRELOAD=(\S+)", text)
    return {
        "sha256": hashlib.sha256(script.encode()).hexdigest(),
        "execs": any(re.match(r"exec\b", line) for line in lines),
        "traps": "trap " in text,
        "preloads": preloaded[1] if preloaded else None,
        "needs_jq": "jq " in text,
    }


def main(clone: str) -> None:
    record = {
        image: {
            "commit": commit,
            "dockerfile": dockerfile,
            "script": script,
            **settings(show(clone, commit, dockerfile)),
            **facts_of(show(clone, commit, script)),
        }
        for image, (commit, dockerfile, script) in SOURCES.items()
    }
    RECORDED.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
