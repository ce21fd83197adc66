"""The table of resource types holds what the schemas of CloudFormation's registry say, which cfn-lint has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

from sagemaker_local_account.aws.cloudformation import resource_schemas
from sagemaker_local_account.aws.registry import RESOURCE_TYPES

FILE = Path(resource_schemas.__file__).with_suffix(".json")
WITHOUT_SCHEMA = ("AWS::CDK::", "Custom::", "AWS::CloudFormation::CustomResource")


def of_the_registry() -> dict[str, dict[str, Any]]:
    found = {}
    for name in sorted(name for name in RESOURCE_TYPES if not name.startswith(WITHOUT_SCHEMA)):
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", name).schema
        paths = [path.removeprefix("/properties/") for path in schema.get("createOnlyProperties", [])]
        one: dict[str, Any] = {"createOnlyProperties": sorted(path for path in paths if "/" not in path)}
        match schema.get("primaryIdentifier", []):
            case [path]:
                one["primaryIdentifier"] = path.removeprefix("/properties/")
        found[name] = one
    return found


def test_the_table_is_that_of_the_registry() -> None:
    if os.environ.get("UPDATE_SNAPSHOTS"):
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(one)}" for name, one in of_the_registry().items())
        FILE.write_text(f"{{\n{lines}\n}}\n")
    assert json.loads(FILE.read_text()) == of_the_registry()
