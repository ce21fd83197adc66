"""Stacks that were adopted, synthesized in one app, and what their requests have otherwise than the jobs'."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from rendered import create_requests

from training_jobs.adopt import Adopted

# What the API's documentation of the members has as their defaults.
DEFAULTS: dict[str, tuple[str, ...]] = {
    "CompressionType": ("None", "GZIP"),  # of a channel, and of the output
    "RecordWrapperType": ("None",),
    "TrainingRepositoryAccessMode": ("Platform",),
}
# The members that tell the structures of a list apart.
NAMES = ("ChannelName", "InstanceGroupName", "RuleConfigurationName", "CollectionName", "Key")


def requests_of(adopted: Mapping[str, Adopted]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The requests of the stacks' jobs by name, and the errors of those that the constructs refuse."""
    # Without the limit of 500 resources nothing is counted, and no stack here is near it.
    app = cdk.App(context={"@aws-cdk/core:stackResourceLimit": 0})
    files: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, one in adopted.items():
        variables = _run(app, one)
        if "refused" in variables:
            refused[name] = variables["refused"]
            app.node.try_remove_child(variables["stack"].node.id)
        else:
            files[name] = variables["stack"].template_file
    folder = Path(app.synth().directory)
    templates = {name: json.loads((folder / file).read_text()) for name, file in files.items()}
    return {name: _only(create_requests(template)) for name, template in templates.items()}, refused


def _run(app: cdk.App, adopted: Adopted) -> dict[str, Any]:
    """The variables of the source after it has run, in an app that it shares with others."""
    assert adopted.source.count("app = cdk.App()\n") == adopted.source.count("\napp.synth()\n") == 1
    source = adopted.source.replace("app = cdk.App()\n", "").replace("\napp.synth()\n", "")
    variables: dict[str, Any] = {"app": app}
    try:
        exec(compile(source, "adopted", "exec"), variables)  # the source is the thing under test
    except ValueError as error:
        variables["refused"] = str(error)
    return variables


def _only(requests: dict[str, Any]) -> dict[str, Any]:
    [request] = requests.values()
    return dict(request)


def differing(job: Mapping[str, Any], stack: Mapping[str, Any]) -> set[str]:
    """The paths of the members with another value, as the service reads the two requests."""
    one, other = dict(_leaves(_plain(job))), dict(_leaves(_plain(stack)))
    return {path for path in {*one, *other} if one.get(path) != other.get(path)}


def _plain(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request whose channels have their own mode in place of the job's (API, Channel.InputMode), without images' hashes."""
    text = re.sub(r":[0-9a-f]{64}\b", ":{hash}", json.dumps(request))  # as `create_requests` leaves them out
    members = {name.removesuffix(".$"): value for name, value in json.loads(text).items()}
    specification = dict(members["AlgorithmSpecification"])
    mode = specification.pop("TrainingInputMode")
    channels = [
        one if "FileSystemDataSource" in one["DataSource"] else {"InputMode": mode, **one}
        for one in members.get("InputDataConfig", [])
    ]
    return {**members, "AlgorithmSpecification": specification, "InputDataConfig": channels}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and {name.removesuffix(".$") for name in value} == {"Key", "Value"}:
        yield path, value.get("Value", value.get("Value.$"))
    elif isinstance(value, dict):
        for name, item in value.items():
            plain = name.removesuffix(".$")
            if item is not False and item not in DEFAULTS.get(plain, ()):
                yield from _leaves(item, f"{path}.{plain}" if path else plain)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, item in enumerate(value):
            name = next((item[key] for key in NAMES if key in item), number)
            yield from _leaves(item, f"{path}[{name}]")
    elif value not in (None, []):
        yield path, value
