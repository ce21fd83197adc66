"""Whole templates of ``app.py`` and of each example, as they were last reviewed: `make snapshots` writes them anew."""

from __future__ import annotations

import copy
import json
import os
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template
from rendered import snapshot

ROOT = Path(__file__).parents[2]
SNAPSHOTS = Path(__file__).parent / "snapshots"
EXAMPLES = sorted(folder.name for folder in (ROOT / "examples").iterdir() if folder.is_dir())
RECOMMENDED = json.loads((ROOT / "cdk.json").read_text())["context"]


def stacks_of_the_app() -> Iterator[cdk.Stack]:
    app = cdk.App(context=RECOMMENDED)
    for name, found in runpy.run_path(str(ROOT / "app.py")).items():
        if isinstance(found, type) and issubclass(found, cdk.Stack):
            yield found(app, name)


def stacks_of(example: str) -> list[cdk.Stack]:
    """The stacks of an example's app, those of its stages among them."""
    root = runpy.run_path(str(ROOT / "examples" / example / "app.py"))["stack"].node.root
    return [found for found in root.node.find_all() if isinstance(found, cdk.Stack)]


@pytest.fixture(scope="module", params=["app", *EXAMPLES])
def templates(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """The templates of an app, by the names of their snapshots."""
    stacks = list(stacks_of_the_app() if request.param == "app" else stacks_of(request.param))
    return {
        ".".join(dict.fromkeys([request.param, *re.split("[/:]", stack.node.path)])): Template.from_stack(
            stack
        ).to_json()
        for stack in stacks
    }


def test_a_template_is_the_reviewed_one(templates: dict[str, dict[str, Any]]) -> None:
    shown = {name: snapshot(template) for name, template in templates.items()}
    if os.environ.get("UPDATE_SNAPSHOTS"):
        for name, text in shown.items():
            (SNAPSHOTS / f"{name}.yaml").write_text(text)
    for name, text in shown.items():
        assert text == (SNAPSHOTS / f"{name}.yaml").read_text(), (
            "read the diff, then `make snapshots` writes the new one"
        )


def test_a_snapshot_is_of_an_app_that_there_is() -> None:
    assert {file.name.partition(".")[0] for file in SNAPSHOTS.iterdir()} == {"app", *EXAMPLES}


def test_a_wider_permission_or_an_open_port_is_in_the_diff() -> None:
    stack = next(stacks_of_the_app())
    template = Template.from_stack(stack).to_json()
    for kind, change in {
        "AWS::EC2::SecurityGroup": lambda it: it.update(
            SecurityGroupIngress=[{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}]
        ),
        "AWS::IAM::Policy": lambda it: it["PolicyDocument"]["Statement"].append({"Action": "s3:DeleteObject"}),
    }.items():
        changed = copy.deepcopy(template)
        change(next(one["Properties"] for one in changed["Resources"].values() if one["Type"] == kind))
        assert snapshot(changed) != (SNAPSHOTS / "app.HeterogeneousTraining.yaml").read_text()
