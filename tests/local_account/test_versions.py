"""Versions and aliases of state machines, as LocalStack recorded AWS's answers (localstack/localstack at 8b9a79f, under
tests/aws/services/stepfunctions/v2: test_sfn_api_versioning.py, test_sfn_api_aliasing.py)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from botocore.exceptions import ClientError
from running_account import Running
from state_machines import Machines


def definition(comment: str) -> str:
    return json.dumps({"Comment": comment, "StartAt": "S", "States": {"S": {"Type": "Pass", "End": True}}})


class Machine:
    """A state machine of the shared account, and its client."""

    def __init__(self, machines: Machines, name: str) -> None:
        self.machines, self.client = machines, machines.client
        created = self.client.create_state_machine(name=name, definition=definition("0"), roleArn=machines.role)
        self.arn: str = created["stateMachineArn"]

    def version(self, comment: str) -> str:
        updated = self.client.update_state_machine(
            stateMachineArn=self.arn, definition=definition(comment), publish=True
        )
        return str(updated["stateMachineVersionArn"])

    def versions(self) -> list[str]:
        listed = self.client.list_state_machine_versions(stateMachineArn=self.arn)["stateMachineVersions"]
        return [it["stateMachineVersionArn"].removeprefix(f"{self.arn}:") for it in listed]

    def alias(self, name: str, *routes: tuple[str, int], **more: Any) -> str:
        routing = [{"stateMachineVersionArn": arn, "weight": weight} for arn, weight in routes]
        return str(
            self.client.create_state_machine_alias(name=name, routingConfiguration=routing, **more)[
                "stateMachineAliasArn"
            ]
        )


@pytest.fixture(scope="module")
def machines(running: Running) -> Machines:
    return Machines(running, "versions")


@pytest.fixture
def machine(machines: Machines, request: pytest.FixtureRequest) -> Machine:
    return Machine(machines, re.sub(r"\W", "-", request.node.name)[-70:])


def refusal(call: Any, *given: Any, **request: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as raised:
        call(*given, **request)
    error = raised.value.response["Error"]
    return error["Code"], error["Message"]


def test_one_revision_is_one_version(machine: Machine) -> None:
    """test_idempotent_publish, test_empty_revision_with_publish_and_no_publish_on_creation"""
    first, second = (machine.client.publish_state_machine_version(stateMachineArn=machine.arn) for _ in range(2))
    assert first["stateMachineVersionArn"] == second["stateMachineVersionArn"] == f"{machine.arn}:1"
    assert [machine.version(comment) for comment in "0112"] == [f"{machine.arn}:{number}" for number in (1, 2, 2, 3)]


def test_versions_are_listed_from_the_latest_in_pages(machine: Machine) -> None:
    """test_list_state_machine_versions_pagination"""
    for number in range(1, 4):
        machine.version(str(number))
    assert machine.versions() == ["3", "2", "1"]
    listed = machine.client.list_state_machine_versions(stateMachineArn=machine.arn, maxResults=2)
    rest = machine.client.list_state_machine_versions(stateMachineArn=machine.arn, nextToken=listed["nextToken"])
    assert [len(it["stateMachineVersions"]) for it in (listed, rest)] == [2, 1]
    assert "nextToken" not in rest
    assert refusal(machine.client.list_state_machine_versions, stateMachineArn=machine.arn, maxResults=1001) == (
        "ValidationException",
        "1 validation error detected: Value '1001' at 'maxResults' failed to satisfy constraint: Member must have value "
        "less than or equal to 1000",
    )


def test_a_number_is_not_used_again(machine: Machine) -> None:
    """test_version_ids_between_deletions, test_list_delete_version"""
    second = [machine.version(it) for it in "12"][1]
    for _ in range(2):
        machine.client.delete_state_machine_version(stateMachineVersionArn=second)
    assert machine.versions() == ["1"]
    assert machine.version("3") == f"{machine.arn}:3"


def test_another_revision_than_the_current_one_is_not_published(machine: Machine) -> None:
    """test_publish_state_machine_version"""
    old, new = (
        machine.client.update_state_machine(stateMachineArn=machine.arn, definition=definition(it))["revisionId"]
        for it in "12"
    )
    refused = refusal(machine.client.publish_state_machine_version, stateMachineArn=machine.arn, revisionId=old)
    assert refused == (
        "ConflictException",
        f"Failed to publish the State Machine version for revision {old}. The current State Machine revision is {new}.",
    )
    published = machine.client.publish_state_machine_version(stateMachineArn=machine.arn, description="second")
    described = machine.client.describe_state_machine(stateMachineArn=published["stateMachineVersionArn"])
    assert (described["revisionId"], described["description"]) == (new, "second")


def test_an_execution_of_a_version_has_the_definition_of_the_version(machine: Machine) -> None:
    """test_start_version_execution, test_describe_state_machine_for_execution_of_version_with_revision"""
    version = machine.version("1")
    machine.version("2")
    execution = machine.client.start_execution(stateMachineArn=version)["executionArn"]
    assert execution.startswith(machine.arn.replace(":stateMachine:", ":execution:"))
    described = machine.client.describe_state_machine_for_execution(executionArn=execution)
    assert (described["stateMachineArn"], json.loads(described["definition"])["Comment"]) == (machine.arn, "1")
    latest = machine.client.start_execution(stateMachineArn=machine.arn)["executionArn"]
    listed = machine.client.list_executions(stateMachineArn=version)["executions"]
    assert [(it["executionArn"], it["stateMachineVersionArn"]) for it in listed] == [(execution, version)]
    listed = machine.client.list_executions(stateMachineArn=machine.arn)["executions"]
    assert [it["executionArn"] for it in listed] == [latest, execution]


def test_a_version_is_not_updated(machine: Machine) -> None:
    """test_update_state_machine"""
    version = machine.version("1")
    refused = refusal(machine.client.update_state_machine, stateMachineArn=version, definition=definition("2"))
    assert refused == ("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{version}'")


def test_an_alias_routes_executions_by_weight(machine: Machine) -> None:
    """test_base_lifecycle_create_invoke_describe_list, test_base_lifecycle_create_update_describe"""
    first, second = (machine.version(it) for it in "12")
    alias = machine.alias("prod", (first, 100), description="of users")
    execution = machine.client.start_execution(stateMachineArn=alias)["executionArn"]
    described = machine.machines.ended(execution)
    assert (described["stateMachineAliasArn"], described["stateMachineVersionArn"]) == (alias, first)
    assert described["stateMachineArn"] == machine.arn
    routes = [{"stateMachineVersionArn": first, "weight": 0}, {"stateMachineVersionArn": second, "weight": 100}]
    machine.client.update_state_machine_alias(stateMachineAliasArn=alias, routingConfiguration=routes)
    described = machine.client.describe_state_machine_alias(stateMachineAliasArn=alias)
    assert (described["routingConfiguration"], described["description"]) == (routes, "of users")
    execution = machine.client.start_execution(stateMachineArn=alias)["executionArn"]
    assert machine.machines.ended(execution)["stateMachineVersionArn"] == second
    assert len(machine.client.list_executions(stateMachineArn=alias)["executions"]) == 2


def test_the_same_alias_is_created_once(machine: Machine) -> None:
    """test_idempotent_create_alias, test_error_create_alias_not_idempotent"""
    version = machine.version("1")
    assert len({machine.alias("same", (version, 100)) for _ in range(2)}) == 1
    assert refusal(machine.alias, "same", (version, 100), description="other") == (
        "ConflictException",
        "Failed to create alias because an alias with the same name and a different routing configuration already exists.",
    )


def test_a_version_of_an_alias_is_not_deleted(machine: Machine) -> None:
    """test_delete_version_with_alias"""
    version = machine.version("1")
    alias = machine.alias("used", (version, 100))
    refused = refusal(machine.client.delete_state_machine_version, stateMachineVersionArn=version)
    assert refused == (
        "ConflictException",
        "Version to be deleted must not be referenced by an alias. Current list of aliases referencing this version: "
        "[used]",
    )
    for _ in range(2):  # test_delete_no_such_alias_arn
        machine.client.delete_state_machine_alias(stateMachineAliasArn=alias)
    assert refusal(machine.client.update_state_machine_alias, stateMachineAliasArn=alias, description="gone") == (
        "ResourceNotFound",
        "Request references a resource that does not exist.",
    )
    machine.client.delete_state_machine_version(stateMachineVersionArn=version)
    assert machine.versions() == []


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ([("", 100)], "Routing configuration must contain state machine version ARNs. Received: [ARN]"),
        (
            [(":1", 50), (":1", 50)],
            "Routing configuration must contain distinct state machine version ARNs. Received: [ARN:1, ARN:1]",
        ),
        (
            [(":1", 70), (":2", 29)],
            "Sum of routing configuration weights must equal 100. Received: [70, 29]",
        ),
        (
            [(":1", 101)],
            "1 validation error detected: Value '101' at 'routingConfiguration.1.member.weight' failed to satisfy "
            "constraint: Member must have value less than or equal to 100",
        ),
        (
            [(":1", 50), (":2", 30), (":3", 20)],
            "1 validation error detected: Value '[RoutingConfigurationListItem(stateMachineVersionArn=ARN:1, weight=50), "
            "RoutingConfigurationListItem(stateMachineVersionArn=ARN:2, weight=30), "
            "RoutingConfigurationListItem(stateMachineVersionArn=ARN:3, weight=20)]' at 'routingConfiguration' failed to "
            "satisfy constraint: Member must have length less than or equal to 2",
        ),
    ],
)
def test_bad_routes_are_refused(machine: Machine, routes: list[tuple[str, int]], message: str) -> None:
    """test_error_create_alias_invalid_router_configs"""
    for number in range(1, 4):
        machine.version(str(number))
    refused = refusal(machine.alias, "bad", *((f"{machine.arn}{suffix}", weight) for suffix, weight in routes))
    assert refused == ("ValidationException", re.sub(r"ARN(?!s)", machine.arn, message))


@pytest.mark.parametrize("name", ["123", "INVALID ALIAS"])
def test_the_name_of_an_alias_has_a_letter_and_no_blank(machine: Machine, name: str) -> None:
    """test_error_create_alias_invalid_name"""
    assert refusal(machine.alias, name, (machine.version("1"), 100)) == (
        "ValidationException",
        rf"1 validation error detected: Value '{name}' at 'name' failed to satisfy constraint: Member must satisfy regular "
        r"expression pattern: ^(?=.*[a-zA-Z_\-\.])[a-zA-Z0-9_\-\.]+$",
    )
