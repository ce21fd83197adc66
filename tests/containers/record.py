"""Records how AWS's training containers start, and what packages they have, for the account and the tests beside this file.

From a bare clone of aws/deep-learning-containers:

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
import tomllib
from pathlib import Path
from typing import Any

from dockerfile_parse import DockerfileParser
from packaging.markers import Marker
from packaging.utils import canonicalize_name

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
# By container and version, the folder with the pyproject.toml and the uv.lock of what `uv sync --extra sagemaker` installs.
LOCKS = {
    f"{repository} {version}-{flavour}": f"docker/{framework}/{version}/{folder}"
    for repository, framework, versions, flavours in (
        ("pytorch", "pytorch", ("2.11", "2.12", "2.13"), ("cpu", "cuda")),
        ("tensorflow-training", "tensorflow", ("2.21",), ("cpu", "cuda")),
    )
    for version in versions
    for flavour, folder in (("cpu", "cpu"), ("gpu", "cuda"))
}
# Installed by a Dockerfile's own `uv pip install`, over the container that it begins with.
DOCKERFILES = {"huggingface-pytorch-training 2.11-gpu": ("docker/huggingface/pytorch/Dockerfile", "pytorch 2.11-gpu")}
LISTS = Path(__file__).parent / "lists.json"
PACKAGES = (
    Path(__file__).parents[2] / "local_account" / "sagemaker_local_account" / "images" / "container_packages.json"
)
CONTAINERS_PYTHON = {
    **{"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"},
    **{"python_version": "3.12", "python_full_version": "3.12.12", "implementation_name": "cpython"},
    **{"platform_python_implementation": "CPython", "implementation_version": "3.12.12"},
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


def packages_of(lock: str) -> dict[str, str]:
    """All that is installed from a lock file for the extra `sagemaker`, on Linux with Python 3.12: versions by name."""
    entries = tomllib.loads(lock)["package"]
    [project] = [entry for entry in entries if entry["source"] == {"virtual": "."}]
    found: dict[str, str] = {"pip": ""}  # of the virtual environment itself
    seen: set[tuple[str, str]] = set()
    rest = [{"name": project["name"], "extra": ["sagemaker"]}]
    while rest:
        wanted = rest.pop()
        entry = chosen(entries, wanted)
        if entry is not project:
            found[entry["name"]] = entry["version"].partition("+")[0]
        for extra in ("", *wanted.get("extra", [])):
            if (entry["name"], extra) not in seen:
                seen.add((entry["name"], extra))
                needs = (
                    entry.get("optional-dependencies", {}).get(extra, []) if extra else entry.get("dependencies", [])
                )
                rest += [
                    need for need in needs if "marker" not in need or Marker(need["marker"]).evaluate(CONTAINERS_PYTHON)
                ]
    return dict(sorted(found.items()))


def chosen(entries: list[dict[str, Any]], wanted: dict[str, Any]) -> dict[str, Any]:
    """The entry that is meant, of those for this platform; where an index has its own build of a version, that."""
    named = [one for one in entries if one["name"] == wanted["name"]]
    named = [one for one in named if wanted.get("version", one["version"]) == one["version"]]
    here = [one for one in named if any(map(for_linux, one.get("resolution-markers", ["os_name == 'posix'"])))]
    return max(here or named, key=lambda one: "+" in one["version"])


def for_linux(marker: str) -> bool:
    return Marker(marker).evaluate(CONTAINERS_PYTHON)


def installed_by(dockerfile: str) -> dict[str, str]:
    """What a Dockerfile's `uv pip install` names: the version by name where it is pinned, else nothing."""
    arguments: dict[str, str] = {}
    found: dict[str, str] = {}
    for line in DockerfileParser(fileobj=io.BytesIO(dockerfile.encode())).structure:
        if line["instruction"] == "ARG":
            name, _, value = line["value"].partition("=")
            arguments[name] = value
        for command in line["value"].split("&&") if line["instruction"] == "RUN" else ():
            words = shlex.split(re.sub(r"\$\{(\w+)\}", lambda one: arguments.get(one[1], ""), command))
            if words[:3] == ["uv", "pip", "install"]:
                for word in words[5:]:  # after --python and its value
                    name, _, version = word.partition("==")
                    found[canonicalize_name(re.split(r"[><]", name)[0])] = version
    return dict(sorted(found.items()))


def record_packages(clone: str) -> None:
    """Written beside the account, which installs by it."""
    table = {
        container: {
            "commit": NOW,
            "date": "2026-08-21",
            "source": f"{folder}/uv.lock",
            "packages": packages_of(show(clone, NOW, f"{folder}/uv.lock")),
        }
        for container, folder in LOCKS.items()
    }
    for container, (dockerfile, base) in DOCKERFILES.items():
        own = installed_by(show(clone, NOW, dockerfile))
        table[container] = {
            "commit": NOW,
            "date": "2026-08-21",
            "source": f"{dockerfile}, over {table[base]['source']}",
            "packages": table[base]["packages"] | own,
        }
    PACKAGES.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")


def record_lists(clone: str) -> None:
    """What each container's pyproject.toml, or its Dockerfile, names itself; the account's table is held against it."""
    lists = {}
    for container, folder in LOCKS.items():
        project = tomllib.loads(show(clone, NOW, f"{folder}/pyproject.toml"))["project"]
        lists[container] = sorted({*project["dependencies"], *project["optional-dependencies"]["sagemaker"]})
    for container, (dockerfile, _) in DOCKERFILES.items():
        own = installed_by(show(clone, NOW, dockerfile))
        lists[container] = [f"{name}=={version}" if version else name for name, version in own.items()]
    LISTS.write_text(json.dumps(lists, indent=2, sort_keys=True) + "\n")


def main(clone: str) -> None:
    record_packages(clone)
    record_lists(clone)
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
