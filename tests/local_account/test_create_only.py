"""Which properties of a resource cannot be changed, by the schemas of CloudFormation's registry that cfn-lint has."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

from sagemaker_local_account.aws.cloudformation import create_only
from sagemaker_local_account.aws.registry import RESOURCE_TYPES

FILE = Path(create_only.__file__).with_suffix(".json")


def of_the_registry() -> dict[str, list[str]]:
    found = {}
    for name in sorted(RESOURCE_TYPES):
        if name.startswith(("AWS::CDK::", "Custom::")) or name == "AWS::CloudFormation::CustomResource":
            continue
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", name).schema
        paths = [path.removeprefix("/properties/") for path in schema.get("createOnlyProperties", [])]
        found[name] = sorted(path for path in paths if "/" not in path)
    return {name: names for name, names in found.items() if names}


def test_the_table_is_that_of_the_registry() -> None:
    if os.environ.get("UPDATE_SNAPSHOTS"):
        FILE.write_text(json.dumps(of_the_registry(), indent=1) + "\n")
    assert json.loads(FILE.read_text()) == of_the_registry()
