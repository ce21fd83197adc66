"""What one stack exports and another imports, as CDK's references between stacks do, over boto3."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from cdk_stacks import deploy, destroy, ids, reasons
from running_account import Running


def group(name: Any) -> dict[str, Any]:
    return {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": name}}


def exporting(name: str, value: Any) -> dict[str, Any]:
    return {"Outputs": {"Shared": {"Value": value, "Export": {"Name": name}}}}


def importing(argument: Any) -> dict[str, Any]:
    return {"Inner": group({"Fn::Join": ["", [{"Fn::ImportValue": argument}, "/inner"]]})}


def status_of(running: Running, name: str) -> str:
    [stack] = running.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    return str(stack["StackStatus"])


@pytest.mark.parametrize("argument", ["first-group", {"Fn::Sub": "${AWS::Region}-group"}])
def test_a_stack_has_the_value_that_another_exports(running: Running, argument: Any) -> None:
    name = "first-group" if argument == "first-group" else "us-east-1-group"
    deploy(running, f"of-{name}", {"Logs": group(f"/{name}")}, **exporting(name, {"Ref": "Logs"}))
    deploy(running, f"to-{name}", importing(argument))
    assert ids(running, f"to-{name}") == {"Inner": f"/{name}/inner"}
    exports = running.client("cloudformation").list_exports()["Exports"]
    assert {export["Name"]: export["Value"] for export in exports}[name] == f"/{name}"


def test_a_name_that_no_stack_exports_fails_the_deployment_by_that_name(running: Running) -> None:
    with pytest.raises(WaiterError):
        deploy(running, "of-nothing", importing("nowhere"))
    assert "No export named nowhere found" in reasons(running, "of-nothing")


def test_a_stack_is_deleted_only_once_nothing_imports_from_it(running: Running) -> None:
    deploy(running, "kept", {"Logs": group("/kept")}, **exporting("kept", {"Ref": "Logs"}))
    deploy(running, "user", importing("kept"))
    running.client("cloudformation").delete_stack(StackName="kept")
    assert status_of(running, "kept") == "CREATE_COMPLETE"
    assert "Export kept cannot be deleted as it is in use by user" in reasons(running, "kept")
    destroy(running, "user")
    destroy(running, "kept")
    assert "kept" not in [export["Name"] for export in running.client("cloudformation").list_exports()["Exports"]]


def test_a_stack_that_was_rolled_back_imports_nothing(running: Running) -> None:
    deploy(running, "free", {"Logs": group("/free")}, **exporting("free", {"Ref": "Logs"}))
    with pytest.raises(WaiterError):
        deploy(running, "rolled", {**importing("free"), "Bad": {"Type": "AWS::Events::EventBus", "Properties": {}}})
    destroy(running, "free")


@pytest.mark.parametrize(
    ("change", "how"), [(exporting("held", {"Ref": "Other"}), "updated"), ({}, "deleted")], ids=["changed", "removed"]
)
def test_an_update_that_takes_an_export_from_who_imports_it_is_rolled_back(
    running: Running, change: dict[str, Any], how: str
) -> None:
    deploy(running, "holder", {"Logs": group("/held")}, **exporting("held", {"Ref": "Logs"}))
    deploy(running, "held-by", importing("held"))
    with pytest.raises(WaiterError):
        deploy(running, "holder", {"Other": group("/other")}, **change)
    assert status_of(running, "holder") == "UPDATE_ROLLBACK_COMPLETE"
    assert f"Export held cannot be {how} as it is in use by held-by" in reasons(running, "holder")
    # Nothing of the former template was deleted, and it is the stack's again.
    assert ids(running, "holder") == {"Logs": "/held"}
    groups = running.client("logs").describe_log_groups()["logGroups"]
    assert {"/held", "/other"} & {found["logGroupName"] for found in groups} == {"/held"}
    template = running.client("cloudformation").get_template(StackName="holder")["TemplateBody"]
    assert "Logs" in json.loads(template if isinstance(template, str) else json.dumps(template))["Resources"]
    destroy(running, "held-by")
    destroy(running, "holder")


def test_an_export_that_keeps_its_value_may_be_updated_with_its_stack(running: Running) -> None:
    deploy(running, "steady", {"Logs": group("/steady")}, **exporting("steady", {"Ref": "Logs"}))
    deploy(running, "on-steady", importing("steady"))
    deploy(
        running, "steady", {"Logs": group("/steady"), "More": group("/more")}, **exporting("steady", {"Ref": "Logs"})
    )
    assert sorted(ids(running, "steady")) == ["Logs", "More"]


def test_a_name_is_exported_by_one_stack(running: Running) -> None:
    deploy(running, "owner", {"Logs": group("/owned")}, **exporting("owned", "1"))
    with pytest.raises(WaiterError):
        deploy(running, "second", {"Logs": group("/second")}, **exporting("owned", "2"))
    assert status_of(running, "second") == "ROLLBACK_COMPLETE"
    assert "Export with name owned is already exported by stack owner" in reasons(running, "second")


def test_an_output_whose_condition_does_not_hold_exports_nothing(running: Running) -> None:
    never: dict[str, Any] = {"Conditions": {"Never": {"Fn::Equals": ["a", "b"]}}, **exporting("never", "1")}
    never["Outputs"]["Shared"]["Condition"] = "Never"
    deploy(running, "without", {"Logs": group("/without")}, **never)
    assert "never" not in [export["Name"] for export in running.client("cloudformation").list_exports()["Exports"]]


def test_a_stack_reads_an_output_that_another_does_not_export(running: Running) -> None:
    deploy(running, "weak", {"Logs": group("/weak")}, Outputs={"Name": {"Value": {"Ref": "Logs"}}})
    reads = {"Fn::GetStackOutput": {"StackName": "weak", "Region": {"Ref": "AWS::Region"}, "OutputName": "Name"}}
    deploy(running, "reads", {"Inner": group({"Fn::Join": ["", [reads, "/inner"]]})})
    assert ids(running, "reads") == {"Inner": "/weak/inner"}
    destroy(running, "weak")  # a weak reference


@pytest.mark.parametrize(
    "given", [{"StackName": "nowhere", "OutputName": "Name"}, {"StackName": "kept", "OutputName": "No"}]
)
def test_an_output_that_is_not_there_fails_the_deployment_by_its_name(running: Running, given: dict[str, Any]) -> None:
    with pytest.raises(WaiterError):
        deploy(running, "reads-nothing", {"Inner": group({"Fn::GetStackOutput": given})})
    said = reasons(running, "reads-nothing")
    assert f"there is no output {given['OutputName']} of a stack {given['StackName']}" in said
    destroy(running, "reads-nothing")


def test_a_function_that_nothing_evaluates_is_refused_by_its_name(running: Running) -> None:
    with pytest.raises(ClientError, match=r"Fn::ForEach \(Inner\)"):
        deploy(running, "of-each", {"Inner": group({"Fn::ForEach": ["Name", ["a"], "${Name}"]})})
