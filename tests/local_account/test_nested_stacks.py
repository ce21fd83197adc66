"""A stack inside another one, as CDK's NestedStack writes it, over boto3."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import WaiterError
from cdk_stacks import deploy, destroy, ids, reasons
from running_account import Running

BUCKET = "of-templates"


def group(name: Any) -> dict[str, Any]:
    return {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": name}}


def nested(running: Running, key: str, resources: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    """A nested stack whose template has the parameter Name and the output Group."""
    s3 = running.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    template = {
        "Parameters": {"Name": {"Type": "String"}},
        "Resources": resources,
        "Outputs": {"Group": {"Value": {"Ref": "Inner"}}},
    }
    s3.put_object(Bucket=BUCKET, Key=key, Body=json.dumps(template).encode())
    url = {
        "Fn::Join": ["", ["https://s3.", {"Ref": "AWS::Region"}, ".", {"Ref": "AWS::URLSuffix"}, f"/{BUCKET}/{key}"]]
    }
    return {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": url, "Parameters": parameters}}


OUTPUT = {"Outputs": {"Group": {"Value": {"Fn::GetAtt": ["Nested", "Outputs.Group"]}}}}
NAMED = {"Inner": group({"Ref": "Name"})}


def groups(running: Running, prefix: str) -> list[str]:
    found = running.client("logs").describe_log_groups(logGroupNamePrefix=prefix)["logGroups"]
    return [one["logGroupName"] for one in found]


def test_a_nested_stack_takes_parameters_gives_outputs_and_goes_with_the_one_around_it(running: Running) -> None:
    resources = {"Outer": group("/both/outer")}
    resources["Nested"] = nested(running, "both.json", NAMED, Name={"Fn::Join": ["", [{"Ref": "Outer"}, "/inner"]]})
    assert deploy(running, "both", resources, **OUTPUT) == {"Group": "/both/outer/inner"}
    arn = ids(running, "both")["Nested"]
    [stack] = running.client("cloudformation").describe_stacks(StackName=arn)["Stacks"]
    assert (stack["StackStatus"], stack["StackName"].startswith("both-Nested-")) == ("CREATE_COMPLETE", True)
    destroy(running, "both")
    assert groups(running, "/both") == []
    [stack] = running.client("cloudformation").describe_stacks(StackName=arn)["Stacks"]
    assert stack["StackStatus"] == "DELETE_COMPLETE"


def test_a_nested_stack_is_updated_in_place_with_its_template_and_its_parameters(running: Running) -> None:
    deploy(running, "grows", {"Nested": nested(running, "one.json", NAMED, Name="/grows/1")}, **OUTPUT)
    arn = ids(running, "grows")["Nested"]
    more = {**NAMED, "More": group("/grows/more")}
    changed = {"Nested": nested(running, "two.json", more, Name="/grows/2")}
    assert deploy(running, "grows", changed, **OUTPUT) == {"Group": "/grows/2"}
    assert ids(running, "grows")["Nested"] == arn
    assert groups(running, "/grows") == ["/grows/2", "/grows/more"]
    destroy(running, "grows")


def test_a_nested_stack_that_fails_rolls_both_back_and_leaves_no_stack(running: Running) -> None:
    bad = {**NAMED, "Bad": {"Type": "AWS::StepFunctions::StateMachine", "Properties": {}}}
    with pytest.raises(WaiterError):
        deploy(
            running, "fails", {"Outer": group("/fails/o"), "Nested": nested(running, "bad.json", bad, Name="/fails/i")}
        )
    said = reasons(running, "fails")
    assert "was not successfully created" in said
    assert "Bad (AWS::StepFunctions::StateMachine)" in said
    assert groups(running, "/fails") == []
    names = [stack["StackName"] for stack in running.client("cloudformation").describe_stacks()["Stacks"]]
    assert [name for name in names if name.startswith("fails-")] == []


def test_an_update_whose_nested_stack_fails_takes_both_back(running: Running) -> None:
    deploy(running, "back", {"Nested": nested(running, "well.json", NAMED, Name="/back/1")}, **OUTPUT)
    bad = {**NAMED, "Bad": {"Type": "AWS::StepFunctions::StateMachine", "Properties": {}}}
    with pytest.raises(WaiterError):
        deploy(running, "back", {"Nested": nested(running, "ill.json", bad, Name="/back/2")}, **OUTPUT)
    assert "was not successfully updated" in reasons(running, "back")
    [stack] = running.client("cloudformation").describe_stacks(StackName="back")["Stacks"]
    assert (stack["StackStatus"], stack["Outputs"][0]["OutputValue"]) == ("UPDATE_ROLLBACK_COMPLETE", "/back/1")
    assert groups(running, "/back") == ["/back/1"]
    destroy(running, "back")


def test_a_type_that_is_not_supported_is_named_in_a_nested_stack_too(running: Running) -> None:
    robot = {**NAMED, "Robot": {"Type": "AWS::RoboMaker::Robot"}}
    with pytest.raises(WaiterError):
        deploy(running, "robots", {"Nested": nested(running, "robots.json", robot, Name="/robots")})
    assert "AWS::RoboMaker::Robot (Robot)" in reasons(running, "robots")
