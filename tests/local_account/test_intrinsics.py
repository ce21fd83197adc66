"""Functions, dynamic references and parameters of templates, and what is refused before anything is made.

Where a fact names a test, AWS gave the answer to it: LocalStack's tests of CloudFormation (localstack/localstack at 8b9a79f,
tests/aws/services/cloudformation).
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from cdk_stacks import deploy, ids
from running_account import Running

# An expression, and its value as an output.
VALUES: dict[str, tuple[Any, str]] = {
    # test_template_engine.py: test_join_no_value_construct
    "what is no value is left out of a list": (
        {"Fn::Join": [",", ["a", {"Ref": "AWS::NoValue"}, {"Fn::If": ["Never", "b", {"Ref": "AWS::NoValue"}]}]]},
        "a",
    ),
    # test_split_length_and_join_functions
    "a length": ({"Fn::Length": ["a", "b"]}, "2"),
    "a part of a text": ({"Fn::Select": ["1", {"Fn::Split": ["-", "a-b-c"]}]}, "b"),
    # engine/test_references.py: test_fn_sub_cases
    "a text with values, attributes and what stays": (
        {"Fn::Sub": ["${One}-${Stored.Value}-${AWS::Region}-${!Untold}-${Size}", {"One": {"Ref": "Size"}}]},
        "4-stored-us-east-1-${Untold}-4",
    ),
    # test_base64_sub_and_getatt_functions
    "a text in base 64": ({"Fn::Base64": {"Fn::Sub": "${Size}"}}, "NA=="),
    # test_get_azs_function[us-east-1]
    "the zones of the region": ({"Fn::Join": ["", {"Fn::GetAZs": ""}]}, "".join(f"us-east-1{letter}" for letter in "abcdef")),
    "the zones of a region by a reference": ({"Fn::Select": [0, {"Fn::GetAZs": {"Ref": "AWS::Region"}}]}, "us-east-1a"),
    # engine/test_mappings.py: test_mapping_ref_map_key
    "what a map has by names that parameters give": (
        {"Fn::FindInMap": [{"Ref": "MapName"}, {"Ref": "AWS::Region"}, "Kind"]},
        "near",
    ),
    # test_change_set_fn_get_attr.py
    "a property, which is an attribute": ({"Fn::GetAtt": ["Topic", "DisplayName"]}, "of four"),
    "an attribute by one text": ({"Fn::GetAtt": "Stored.Type"}, "String"),
    # test_resolve_ssm, test_resolve_ssm_with_version
    "a stored parameter": ({"Fn::Sub": "{{resolve:ssm:${Kept}:1}}"}, "kept"),
    # test_create_stack_with_ssm_parameters
    "a parameter that names a stored one": ({"Ref": "FromStore"}, "kept"),
    "items of a list by its default": ({"Fn::Select": [1, {"Ref": "Names"}]}, "b"),
    # template reference, Fn::Cidr
    "a block of addresses": ({"Fn::Select": [1, {"Fn::Cidr": ["10.0.0.0/16", 2, 8]}]}, "10.0.1.0/24"),
    "a text of JSON": ({"Fn::ToJsonString": {"a": [1, {"Ref": "Size"}]}}, '{"a":[1,4]}'),
}  # fmt: skip


@pytest.fixture(scope="module")
def outputs(running: Running) -> dict[str, str]:
    """Those of a stack that has each expression as an output."""
    running.client("ssm").put_parameter(Name="kept-here", Value="kept", Type="String")
    names = {name: f"Out{number}" for number, name in enumerate(VALUES)}
    stack = {
        "Conditions": {"Never": {"Fn::Equals": ["a", "b"]}},
        "Mappings": {"Regions": {"us-east-1": {"Kind": "near"}}},
        "Parameters": {
            "Size": {"Type": "Number", "Default": 4},
            "MapName": {"Type": "String", "Default": "Regions"},
            "Kept": {"Type": "String", "Default": "kept-here"},
            "FromStore": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "kept-here"},
            "Names": {"Type": "CommaDelimitedList", "Default": "a, b"},
        },
        "Outputs": {names[name]: {"Value": expression} for name, (expression, _) in VALUES.items()},
    }
    resources = {
        "Stored": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "stored"}},
        "Topic": {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": "of four"}},
        "Joined": {
            "Type": "AWS::SSM::Parameter",
            "Properties": {"Type": "String", "Value": {"Fn::Join": ["", ["{{resolve:ssm:", {"Ref": "Kept"}, "}}"]]}},
        },
        # A name that is generated ends as FIFO queues' names must.
        "Ordered": {"Type": "AWS::SQS::Queue", "Properties": {"FifoQueue": True}},
    }
    found = deploy(running, "functions", resources, **stack)
    return {name: found[output] for name, output in names.items()}


@pytest.mark.parametrize("name", VALUES)
def test_a_function_has_its_value(outputs: dict[str, str], name: str) -> None:
    assert outputs[name] == VALUES[name][1]


def template(value: Any = "a", **parts: Any) -> dict[str, Any]:
    """A template with a parameter in SSM that has a value."""
    stored = {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": value}}
    return {"Resources": {"Stored": stored}, **parts}


NEVER = {"Conditions": {"Never": {"Fn::Equals": ["a", "b"]}}}
SKIPPED = {"Type": "AWS::SNS::Topic", "Condition": "Never"}


@pytest.mark.parametrize(
    ("refused", "given", "said"),
    [
        # engine/test_references.py
        (
            template({"Ref": "InvalidRef"}),
            {},
            "Template format error: Unresolved resource dependencies [InvalidRef] in the Resources block of the template",
        ),
        (
            template({"Fn::If": ["Taken", {"Ref": "Untold"}, "a"]}, Conditions={"Taken": {"Fn::Equals": ["a", "a"]}}),
            {},
            "Template format error: Unresolved resource dependencies [Untold] in the Resources block of the template",
        ),
        (
            {"Resources": {"Topic": {"Type": "AWS::SNS::Topic", "DependsOn": "NotThere"}}},
            {},
            "Template format error: Unresolved resource dependencies [NotThere] in the Resources block of the template",
        ),
        # engine/test_conditions.py: test_dependent_ref, test_output_reference_to_skipped_resource
        (
            {**NEVER, "Resources": {**template({"Ref": "MyTopic"})["Resources"], "MyTopic": SKIPPED}},
            {},
            "Template format error: Unresolved resource dependencies [MyTopic] in the Resources block of the template",
        ),
        (
            {
                **NEVER,
                "Resources": {**template()["Resources"], "MyTopic": SKIPPED},
                "Outputs": {"Topic": {"Value": {"Ref": "MyTopic"}}},
            },
            {},
            "Unresolved resource dependencies [MyTopic] in the Outputs block of the template",
        ),
        # engine/test_mappings.py: test_mapping_with_nonexisting_key
        (
            template({"Fn::FindInMap": ["TopicSuffixMap", "C", "Suffix"]}, Mappings={"TopicSuffixMap": {"A": {"Suffix": "a"}}}),
            {},
            "Template error: Unable to get mapping for TopicSuffixMap::C::Suffix",
        ),
        # api/test_stacks.py: test_no_parameters_given; api/test_resources.py: test_invalid_logical_resource_id
        (template(Parameters={"Input": {"Type": "String"}}), {}, "Parameters: [Input] must have values"),
        (
            {"Resources": {"my-bad-resource-id": {"Type": "AWS::SNS::Topic"}}},
            {},
            "Template format error: Resource name my-bad-resource-id is non alphanumeric.",
        ),
        # test_change_set_parameters.py: test_invalid_parameter_type
        (template(Parameters={"Value": {"Type": "Number"}}), {"Value": "four"}, "Parameter 'Value' must be a number."),
        # template reference, Parameters
        (
            template(Parameters={"Value": {"Type": "String", "AllowedValues": ["a", "b"]}}),
            {"Value": "c"},
            "Parameter 'Value' must be one of AllowedValues: [a, b]",
        ),
        (
            template(Parameters={"Value": {"Type": "String", "AllowedPattern": "[a-z]+", "ConstraintDescription": "letters"}}),
            {"Value": "1"},
            "Parameter Value failed to satisfy constraint: letters",
        ),
        (template(), {"Other": "1"}, "Parameters: [Other] do not exist in the template"),
    ],
)  # fmt: skip
def test_what_cannot_be_deployed_is_refused_before_anything_is_made(
    running: Running, refused: dict[str, Any], given: dict[str, str], said: str
) -> None:
    client = running.client("cloudformation")
    parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()]
    with pytest.raises(ClientError) as raised:
        client.create_stack(StackName="refused", TemplateBody=json.dumps(refused), Parameters=parameters)
    assert raised.value.response["Error"]["Message"] == said
    with pytest.raises(ClientError, match="does not exist"):
        client.describe_stacks(StackName="refused")


@pytest.mark.usefixtures("outputs")
def test_a_resource_has_the_stored_parameter_whose_name_is_joined(running: Running) -> None:
    stored = running.client("ssm").get_parameter(Name=ids(running, "functions")["Joined"])
    assert stored["Parameter"]["Value"] == "kept"


def test_what_a_condition_leaves_out_may_refer_to_what_it_leaves_out(running: Running) -> None:
    """engine/test_conditions.py: test_references_to_disabled_resources"""
    skipped = {**template({"Ref": "MyTopic"})["Resources"]["Stored"], "Condition": "Never"}
    # As may what stays, in a branch that is not taken, and in what it waits for.
    stays = {**template({"Fn::If": ["Never", {"Ref": "MyTopic"}, "a"]})["Resources"]["Stored"], "DependsOn": "MyTopic"}
    resources = {"Stored": stays, "MyTopic": SKIPPED, "Of": skipped}
    outputs = {"Of": {"Condition": "Never", "Value": {"Ref": "MyTopic"}}, "Kind": {"Value": "a"}}
    assert deploy(running, "left-out", resources, **NEVER, Outputs=outputs) == {"Kind": "a"}


def test_a_request_without_a_template_is_refused(running: Running) -> None:
    """api/test_update_stack.py: test_no_template_error"""
    with pytest.raises(ClientError, match="Either Template URL or Template Body must be specified"):
        running.client("cloudformation").create_stack(StackName="none")


def test_a_parameter_without_a_name_is_refused(running: Running) -> None:
    client = running.client("cloudformation")
    with pytest.raises(ClientError, match="each must have a ParameterKey"):
        client.create_stack(
            StackName="unnamed", TemplateBody=json.dumps(template()), Parameters=[{"ParameterValue": "a"}]
        )


def test_a_parameter_that_is_not_to_be_shown_is_not(running: Running) -> None:
    """api/test_stacks.py: test_no_echo_parameter"""
    parameters = {
        "Token": {"Type": "String", "NoEcho": True, "Default": "secret"},
        "FromStore": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "shown"},
    }
    running.client("ssm").put_parameter(Name="shown", Value="resolved", Type="String")
    deploy(running, "hidden", template()["Resources"], Parameters=parameters)
    [stack] = running.client("cloudformation").describe_stacks(StackName="hidden")["Stacks"]
    assert stack["Parameters"] == [
        {"ParameterKey": "Token", "ParameterValue": "****"},
        {"ParameterKey": "FromStore", "ParameterValue": "shown", "ResolvedValue": "resolved"},
    ]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"Fn::Select": [2, ["a"]]}, "Fn::Select cannot select nonexistent value at index 2"),
        ("{{resolve:ssm:not-there}}", r"Parameters: \[ssm:not-there\] cannot be found"),
        ("{{resolve:secretsmanager:mine}}", "can't find the specified secret"),
    ],
)
def test_a_value_that_there_is_not_fails_the_stack(running: Running, value: Any, why: str) -> None:
    client = running.client("cloudformation")
    client.create_stack(StackName="failed", TemplateBody=json.dumps(template(value)), OnFailure="DO_NOTHING")
    with pytest.raises(WaiterError):
        client.get_waiter("stack_create_complete").wait(StackName="failed", WaiterConfig={"Delay": 0.1})
    events = client.describe_stack_events(StackName="failed")["StackEvents"]
    client.delete_stack(StackName="failed")
    client.get_waiter("stack_delete_complete").wait(StackName="failed", WaiterConfig={"Delay": 0.1})
    assert any(re.search(why, one.get("ResourceStatusReason", "")) for one in events)


@pytest.mark.parametrize(
    ("value", "before", "after"),
    [
        (
            {"Fn::FindInMap": ["Sizes", "here", "Kind"]},
            {"Mappings": {"Sizes": {"here": {"Kind": "small"}}}},
            {"Mappings": {"Sizes": {"here": {"Kind": "large"}}}},
        ),
        (
            {"Ref": "Kind"},
            {"Parameters": {"Kind": {"Type": "String", "Default": "small"}}},
            {"Parameters": {"Kind": {"Type": "String", "Default": "large"}}},
        ),
    ],
)
def test_another_map_and_another_default_modify_what_takes_a_value_of_them(
    running: Running, value: Any, before: dict[str, Any], after: dict[str, Any]
) -> None:
    name = f"changed-{'-'.join(before)}".lower()
    outputs = {"Kind": {"Value": {"Fn::GetAtt": ["Stored", "Value"]}}}
    assert deploy(running, name, template(value)["Resources"], **before, Outputs=outputs) == {"Kind": "small"}
    assert deploy(running, name, template(value)["Resources"], **after, Outputs=outputs) == {"Kind": "large"}
