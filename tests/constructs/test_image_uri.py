"""What may pull an image that is named by its URI, of which parts are known only when the stack is deployed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Annotations, Match, Template

from cdk_sagemaker_training import TrainingImage, TrainingRole

OF_ACCOUNT = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
HERE = "arn:<Partition>:ecr:<Region>:<AccountId>:repository"


def parameter(stack: cdk.Stack) -> str:
    return cdk.CfnParameter(stack, "Parameter").value_as_string


def of_stack(stack: cdk.Stack) -> str:
    return f"{stack.account}.dkr.ecr.{stack.region}.{stack.url_suffix}"


def asset(stack: cdk.Stack) -> str:
    directory = Path(cdk.FileSystem.mkdtemp("context"))
    (directory / "Dockerfile").write_text("FROM python:3.11\n")
    return ecr_assets.DockerImageAsset(stack, "Asset", directory=str(directory)).image_uri


def input_of_an_execution(name: str) -> str:
    return sfn.JsonPath.string_at(f"$.{name}")


Uri = Callable[[cdk.Stack], str]
# A URI, and the one repository that it names.
KNOWN: dict[str, tuple[Uri, str]] = {
    "the stack's account and region": (lambda stack: f"{of_stack(stack)}/team/jobs:1", f"{HERE}/team/jobs"),
    "the same, joined": (
        lambda stack: cdk.Fn.join("", [stack.account, ".dkr.ecr.", stack.region, ".amazonaws.com/jobs@sha256:0"]),
        f"{HERE}/jobs",
    ),
    "the same, substituted": (
        lambda stack: cdk.Fn.sub("${AWS::AccountId}.dkr.ecr.${AWS::Region}.${AWS::URLSuffix}/jobs:1"),
        f"{HERE}/jobs",
    ),
    "an asset": (asset, f"{HERE}/cdk-hnb659fds-container-assets-<AccountId>-<Region>"),
    "a repository of the stack": (
        lambda stack: ecr.Repository(stack, "Jobs").repository_uri_for_tag("1"),
        "arn:<Partition>:ecr:<Arn 3>:<Arn 4>:repository/<Jobs>",
    ),
    "a registry that is a parameter": (lambda stack: f"{parameter(stack)}/jobs:1", f"{HERE}/jobs"),
    "a tag that is a parameter": (
        lambda stack: f"{OF_ACCOUNT}/jobs:{parameter(stack)}",
        "arn:<Partition>:ecr:us-east-1:123456789012:repository/jobs",
    ),
    "China": (
        lambda stack: "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/jobs:1",
        "arn:<Partition>:ecr:cn-north-1:123456789012:repository/jobs",
    ),
    "the sovereign cloud": (
        lambda stack: "123456789012.dkr.ecr.eusc-de-east-1.amazonaws.eu/jobs:1",
        "arn:<Partition>:ecr:eusc-de-east-1:123456789012:repository/jobs",
    ),
    "the FIPS endpoint": (
        lambda stack: "123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com/jobs:1",
        "arn:<Partition>:ecr:us-gov-west-1:123456789012:repository/jobs",
    ),
    "the dual-stack endpoint": (
        lambda stack: "123456789012.dkr-ecr.us-east-1.on.aws/jobs:1",
        "arn:<Partition>:ecr:us-east-1:123456789012:repository/jobs",
    ),
}
# A URI, and the pattern of the repositories that it may name.
UNKNOWN: dict[str, tuple[Uri, str]] = {
    "a parameter": (parameter, f"{HERE}/*"),
    "a parameter and a tag": (lambda stack: f"{parameter(stack)}:1", f"{HERE}/*"),
    "an import": (lambda stack: cdk.Fn.import_value("Uri"), f"{HERE}/*"),
    "the input of an execution": (lambda stack: input_of_an_execution("image"), f"{HERE}/*"),
    "a parameter after a known registry": (
        lambda stack: f"{OF_ACCOUNT}/{parameter(stack)}",
        "arn:<Partition>:ecr:us-east-1:123456789012:repository/*",
    ),
    "a parameter after the beginning of a name": (
        lambda stack: f"{of_stack(stack)}/team/{parameter(stack)}",
        f"{HERE}/team/*",
    ),
    "the input of an execution in a name": (
        lambda stack: f"{of_stack(stack)}/jobs-{input_of_an_execution('kind')}:1",
        f"{HERE}/jobs-*",
    ),
}


def flat(value: Any) -> str:
    """A resolved ARN with its intrinsics by short names."""
    match value:
        case str():
            return value
        case {"Fn::Join": ["", [*parts]]}:
            return "".join(map(flat, parts))
        case {"Ref": name}:
            return f"<{str(name).removeprefix('AWS::').rstrip('0123456789ABCDEF')}>"
        case {"Fn::Select": [number, {"Fn::Split": _}]}:
            return f"<Arn {number}>"
    raise AssertionError(value)


class Pulled:
    """What a role may pull from where an image is named by its URI, and the warnings about it."""

    def __init__(self, uri: Uri) -> None:
        stack = cdk.Stack(cdk.App(), "Stack")
        self.image = TrainingImage.from_uri(stack, "Image", uri(stack))
        self.image.grant_pull(TrainingRole(stack, "Role"))
        self.stack, template = stack, Template.from_stack(stack).to_json()
        policies = [one for one in template["Resources"].values() if one["Type"] == "AWS::IAM::Policy"]
        statements = [one for policy in policies for one in policy["Properties"]["PolicyDocument"]["Statement"]]
        self.resources = [flat(one["Resource"]) for one in statements if "ecr:BatchGetImage" in one["Action"]]
        self.logs_in = "ecr:GetAuthorizationToken" in json.dumps(statements)

    def warnings(self) -> list[str]:
        return [
            str(one.entry.data)
            for one in Annotations.from_stack(self.stack).find_warning("*", Match.string_like_regexp("image_uri .*"))
        ]


@pytest.mark.parametrize(("uri", "repository"), KNOWN.values(), ids=KNOWN)
def test_an_image_is_pulled_from_the_repository_that_its_uri_names(uri: Uri, repository: str) -> None:
    pulled = Pulled(uri)
    assert pulled.resources == [repository]
    assert pulled.logs_in
    assert pulled.image.repository is not None
    assert pulled.warnings() == []


@pytest.mark.parametrize(("uri", "pattern"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_image_of_a_uri_that_is_known_only_later_is_pulled_from_each_repository_that_it_may_name(
    uri: Uri, pattern: str
) -> None:
    pulled = Pulled(uri)
    assert pulled.resources == [pattern]
    assert pulled.logs_in
    assert pulled.image.repository is None


def test_pulling_from_repositories_of_any_name_is_warned_of() -> None:
    [warning] = Pulled(parameter).warnings()
    assert warning.startswith("image_uri does not contain the full name of a repository at synthesis")
    assert "TrainingImage.from_ecr_repository(" in warning


def test_an_image_in_another_registry_is_granted_nothing_whatever_its_tag() -> None:
    pulled = Pulled(lambda stack: f"registry.example.com/team/jobs:{parameter(stack)}")
    assert (pulled.resources, pulled.logs_in) == ([], False)
