"""Change sets, as AWS answered LocalStack's tests of them: localstack/localstack at 8b9a79f,
tests/aws/services/cloudformation/api/test_changesets.py, by whose tests' names each fact is called."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from cdk_stacks import WAITING, deploy, destroy
from running_account import Running

TOPIC = {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": "first"}}
ROLE = {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {"Statement": []}}}


class ChangeSets:
    """The change sets of a stack."""

    def __init__(self, running: Running, stack: str) -> None:
        self.client, self.stack = running.client("cloudformation"), stack

    def create(self, name: str, kind: str | None = None, topic: Any = TOPIC, **members: Any) -> dict[str, Any]:
        template = {"Resources": {"Topic": topic}, **members.pop("template", {})}
        kinds = {} if kind is None else {"ChangeSetType": kind}
        given = {"StackName": self.stack, "ChangeSetName": name, **kinds, **members}
        return self.client.create_change_set(**given, TemplateBody=json.dumps(template))

    def describe(self, name: str) -> dict[str, Any]:
        return self.client.describe_change_set(StackName=self.stack, ChangeSetName=name)

    def execute(self, name: str, status: str = "update") -> None:
        self.client.execute_change_set(StackName=self.stack, ChangeSetName=name)
        self.client.get_waiter(f"stack_{status}_complete").wait(StackName=self.stack, WaiterConfig=WAITING)

    def names(self) -> list[str]:
        return [one["ChangeSetName"] for one in self.client.list_change_sets(StackName=self.stack)["Summaries"]]


@pytest.fixture
def change_sets(running: Running, request: pytest.FixtureRequest) -> ChangeSets:
    """Those of a stack that was made."""
    name = f"of-{abs(hash(request.node.name)):x}"
    deploy(running, name, {"Topic": TOPIC})
    return ChangeSets(running, name)


def test_a_stack_that_is_reviewed_gets_another_change_set(running: Running) -> None:
    """test_create_changeset_with_stack_id, test_multiple_create_changeset"""
    reviewed = ChangeSets(running, "reviewed")
    first = reviewed.create("first", "CREATE")
    assert reviewed.create("second", "CREATE")["StackId"] == first["StackId"]
    by_id = ChangeSets(running, first["StackId"])
    assert by_id.create("third", "CREATE")["StackId"] == first["StackId"]
    assert reviewed.names() == ["first", "second", "third"]
    reviewed.execute("second", "create")
    assert reviewed.names() == []


def test_a_stack_is_created_once(change_sets: ChangeSets) -> None:
    """test_name_conflicts"""
    with pytest.raises(ClientError) as raised:
        change_sets.create("again", "CREATE")
    said = f"Stack [{change_sets.stack}] already exists and cannot be created again with the changeSet [again]."
    assert raised.value.response["Error"]["Message"] == said


def test_without_a_type_a_change_set_updates(change_sets: ChangeSets) -> None:
    """API_CreateChangeSet: "By default, CloudFormation specifies UPDATE." """
    id = change_sets.create("changed", topic={**TOPIC, "Properties": {"DisplayName": "other"}})["Id"]
    [change] = [one["ResourceChange"] for one in change_sets.describe("changed")["Changes"]]
    assert (change["Action"], change["Replacement"], change["Scope"]) == ("Modify", "False", ["Properties"])
    change_sets.execute("changed")
    assert change_sets.client.describe_stacks(StackName=change_sets.stack)["Stacks"][0]["ChangeSetId"] == id


def test_a_change_set_says_what_is_replaced(change_sets: ChangeSets) -> None:
    """test_describe_changeset_after_delete"""
    change_sets.create("named", "UPDATE", topic={**TOPIC, "Properties": {"DisplayName": "first", "TopicName": "named"}})
    [change] = [one["ResourceChange"] for one in change_sets.describe("named")["Changes"]]
    assert change["Replacement"] == "True"
    assert [(one["Target"]["Name"], one["Target"]["RequiresRecreation"]) for one in change["Details"]] == [
        ("TopicName", "Always")
    ]


@pytest.mark.parametrize("tags", [None, [{"Key": "team", "Value": "vision"}]])
def test_a_change_set_without_changes_fails_and_tags_are_changes(change_sets: ChangeSets, tags: Any) -> None:
    """test_create_change_set_no_changes, test_empty_changeset"""
    members = {} if tags is None else {"Tags": tags}
    id = change_sets.create("same", "UPDATE", **members)["Id"]
    if tags is None:
        described = change_sets.describe("same")
        assert (described["Status"], described["ExecutionStatus"]) == ("FAILED", "UNAVAILABLE")
        assert described["StatusReason"] == (
            "The submitted information didn't contain changes. Submit different information to create a change set."
        )
        with pytest.raises(ClientError) as raised:
            change_sets.execute("same")
        assert raised.value.response["Error"]["Code"] == "InvalidChangeSetStatus"
        said = f"ChangeSet [{id}] cannot be executed in its current status of [FAILED]"
        assert raised.value.response["Error"]["Message"] == said
    else:
        change_sets.execute("same")
        [stack] = change_sets.client.describe_stacks(StackName=change_sets.stack)["Stacks"]
        assert stack["Tags"] == tags


def test_what_was_not_executed_goes_with_an_update(change_sets: ChangeSets) -> None:
    """API_ExecuteChangeSet: "CloudFormation deletes all other change sets associated with the stack" """
    for name in ("stale", "next"):
        change_sets.create(name, "UPDATE", topic={**TOPIC, "Properties": {"DisplayName": name}})
    change_sets.execute("next")
    assert change_sets.names() == []
    with pytest.raises(
        change_sets.client.exceptions.ChangeSetNotFoundException, match=r"ChangeSet \[stale\] does not exist"
    ):
        change_sets.execute("stale")
    with pytest.raises(ClientError, match=r"in its current execution status of \[EXECUTE_COMPLETE\]"):
        change_sets.execute("next")


@pytest.mark.parametrize(
    ("members", "code", "said"),
    [
        ({"StackName": "nostack", "ChangeSetName": "x"}, "ValidationError", "Stack [nostack] does not exist"),
        (
            {"ChangeSetName": "x"},
            "ValidationError",
            "StackName must be specified if ChangeSetName is not specified as an ARN.",
        ),
    ],
)
def test_a_change_set_is_found_by_its_stack(running: Running, members: dict[str, str], code: str, said: str) -> None:
    """test_delete_change_set_exception"""
    with pytest.raises(ClientError) as raised:
        running.client("cloudformation").delete_change_set(**members)
    assert (raised.value.response["Error"]["Code"], raised.value.response["Error"]["Message"]) == (code, said)


def test_one_of_a_deleted_stack_is_described_by_its_arn_and_changes_nothing(
    running: Running, change_sets: ChangeSets
) -> None:
    """test_name_conflicts, test_changeset_for_deleted_stack, test_create_changeset_for_deleted_stack"""
    id = change_sets.create("last", "UPDATE", topic={**TOPIC, "Properties": {"DisplayName": "last"}})["Id"]
    change_sets.execute("last")
    stack = change_sets.client.describe_stacks(StackName=change_sets.stack)["Stacks"][0]["StackId"]
    destroy(running, change_sets.stack)
    assert change_sets.client.describe_change_set(ChangeSetName=id)["ExecutionStatus"] == "EXECUTE_COMPLETE"
    gone = ChangeSets(running, stack)
    with pytest.raises(ClientError, match="is in DELETE_COMPLETE state and can not be updated"):
        gone.create("late", "UPDATE")
    with pytest.raises(ClientError, match=r"already exists and cannot be created again with the changeSet \[late\]"):
        gone.create("late", "CREATE")


@pytest.mark.parametrize(("name", "capability"), [({}, "CAPABILITY_IAM"), ({"RoleName": "x"}, "CAPABILITY_NAMED_IAM")])
def test_resources_of_iam_are_acknowledged(running: Running, name: dict[str, str], capability: str) -> None:
    """API_CreateStack, Capabilities; the sentence is of test_template_engine.py, TestMacros::test_capabilities_requirements"""
    role = {**ROLE, "Properties": {**ROLE["Properties"], **name}}
    asked = {"StackName": "roles", "ChangeSetName": capability.replace("_", "-"), "ChangeSetType": "CREATE"}
    template = json.dumps({"Resources": {"Role": role}})
    client = running.client("cloudformation")
    with pytest.raises(client.exceptions.InsufficientCapabilitiesException) as raised:
        client.create_change_set(**asked, TemplateBody=template)
    assert raised.value.response["Error"]["Message"] == f"Requires capabilities : [{capability}]"
    assert client.create_change_set(**asked, TemplateBody=template, Capabilities=[capability])["Id"]


def test_a_condition_adds_and_removes(running: Running) -> None:
    """resources/test_cdk.py: test_cdk_bootstrap_redeploy; test_change_sets.py: test_conditions"""
    by_condition = {
        "Parameters": {"Kind": {"Type": "String"}},
        "Conditions": {
            "First": {"Fn::Equals": [{"Ref": "Kind"}, "a"]},
            "Second": {"Fn::Not": [{"Condition": "First"}]},
        },
        "Resources": {
            "Always": TOPIC,
            **{name: {"Type": "AWS::SNS::Topic", "Condition": name} for name in ("First", "Second")},
        },
    }
    chosen = ChangeSets(running, "chosen-by-condition")

    def changes(name: str, kind: str, value: str) -> dict[str, str]:
        parameters = [{"ParameterKey": "Kind", "ParameterValue": value}]
        chosen.create(name, kind, template=by_condition, Parameters=parameters)
        found = [one["ResourceChange"] for one in chosen.describe(name)["Changes"]]
        return {one["LogicalResourceId"]: one["Action"] for one in found}

    assert changes("made", "CREATE", "a") == {"Always": "Add", "First": "Add"}
    chosen.execute("made", "create")
    assert changes("other", "UPDATE", "b") == {"Second": "Add", "First": "Remove"}


def test_a_parameter_keeps_its_previous_value(running: Running) -> None:
    """API_Parameter, UsePreviousValue, which the CDK CLI says of each parameter that it is given no value for."""
    named = {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": {"Ref": "Kind"}}}
    parameter = {"Parameters": {"Kind": {"Type": "String", "Default": "of the template"}}}
    kept = ChangeSets(running, "kept-value")
    kept.create(
        "made", "CREATE", named, template=parameter, Parameters=[{"ParameterKey": "Kind", "ParameterValue": "a"}]
    )
    kept.execute("made", "create")
    previous = [{"ParameterKey": "Kind", "UsePreviousValue": True}]
    assert kept.create(
        "next", "UPDATE", named, template=parameter, Parameters=previous, Tags=[{"Key": "k", "Value": "v"}]
    )
    assert kept.describe("next")["Parameters"] == [{"ParameterKey": "Kind", "ParameterValue": "a"}]
    kept.execute("next")
    [stack] = kept.client.describe_stacks(StackName="kept-value")["Stacks"]
    assert stack["Parameters"] == [{"ParameterKey": "Kind", "ParameterValue": "a"}]
