"""The schedule of a stack that stops jobs which run although their executions have ended: its resources, and what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from stacks import UserStack
from test_prove_mutants import Change, broken, default, resource, sets, states

from cdk_sagemaker_training import TrainingQueue
from cdk_sagemaker_training.lifecycle.guard import guard_definition
from cdk_sagemaker_training.request.access import EXECUTION_TAG
from training_jobs.prove.evaluator import Answered, Call, Elapsed, Event, Execution, Failed, start, step, wants

MACHINES = [{"Word": "stack", "Machines": ["Train", "Tune"]}, {"Word": "other", "Machines": ["Other"]}]
EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:{}:{}"
GONE = ("Sfn.ExecutionDoesNotExistException", "Execution Does Not Exist")
# The statuses of executions by their names; GONE was deleted.
STATUSES = {"runs": "RUNNING", "redriven": "PENDING_REDRIVE", "stopped": "ABORTED", "late": "TIMED_OUT", "gone": ""}


class Account:
    """Answers the guard's calls of jobs, which are their machine, their execution and their status once it looks again.

    Pages of ListTrainingJobs have one job each. ``refused`` calls fail.
    """

    def __init__(self, jobs: Mapping[str, tuple[str, str, str]], refused: str = "") -> None:
        self.jobs, self.refused, self.stopped, self.calls = jobs, refused, list[str](), list[str]()

    def run(self) -> Execution:
        execution = start(guard_definition(MACHINES, "aws"), {}, {"Execution": {"Id": "guard", "Input": {}}})
        while execution.status == "RUNNING":
            [want, *_] = wants(execution)
            execution = step(execution, self._event(want) if isinstance(want, Call) else Elapsed(want.at))
        return execution

    def _event(self, call: Call) -> Event:
        operation, given = call.resource.rpartition(":")[2], call.parameters
        self.calls.append(operation)
        if operation == self.refused:
            return Failed(call.at, "SageMaker.SageMakerException", "Rate exceeded", lasting=True)
        job = given.get("TrainingJobName", given.get("ResourceArn", "").rpartition("/")[2])
        match operation:
            case "listTrainingJobs":
                return Answered(call.at, self._page(given))
            case "listTags":
                machine, execution, _ = self.jobs[job]
                tag = {"Key": EXECUTION_TAG, "Value": EXECUTION.format(machine, execution)}
                others = [{"Key": "team", "Value": "vision"}]
                return Answered(call.at, {"Tags": others if execution == "none" else [*others, tag]})
            case "describeExecution":
                status = STATUSES[given["ExecutionArn"].rpartition(":")[2]]
                return Answered(call.at, {"Status": status}) if status else Failed(call.at, *GONE)
            case "describeTrainingJob":
                return Answered(call.at, {"TrainingJobStatus": self.jobs[job][2]})
            case "stopTrainingJob":
                self.stopped.append(job)
                return Answered(call.at, {})
        raise AssertionError(operation)

    def _page(self, given: Mapping[str, Any]) -> dict[str, Any]:
        assert (given["StatusEquals"], given["MaxResults"]) == ("InProgress", 100)
        names = [name for name in self.jobs if given["NameContains"] in name]
        at = int(given.get("NextToken", 0))
        arns = [{"TrainingJobName": name, "TrainingJobArn": f"arn:training-job/{name}"} for name in names[at : at + 1]]
        more = {"NextToken": str(at + 1)} if at + 1 < len(names) else {}
        return {"TrainingJobSummaries": arns, **more}


@pytest.mark.parametrize(
    ("machine", "execution", "now", "stops"),
    [
        ("Train", "stopped", "InProgress", True),
        ("Tune", "late", "InProgress", True),
        ("Train", "gone", "InProgress", True),
        ("Train", "stopped", "Stopping", False),  # the stopper was faster
        ("Train", "runs", "InProgress", False),
        ("Train", "redriven", "InProgress", False),
        ("Foreign", "stopped", "InProgress", False),
        ("Train", "none", "InProgress", False),  # without the tag
    ],
)
def test_a_job_is_stopped_whose_execution_has_ended_and_no_other(
    machine: str, execution: str, now: str, stops: bool
) -> None:
    account = Account({"stack-train-1": (machine, execution, now)})
    ended = account.run()
    assert account.stopped == ["stack-train-1"] * stops
    assert ended.status == ("FAILED" if stops else "SUCCEEDED")
    if stops:
        told = [f"stack-train-1 ran after the end of {EXECUTION.format(machine, execution)}"]
        assert (ended.error, json.loads(ended.cause)) == ("TrainingJobGuard", [told])


def test_of_a_job_whose_name_begins_otherwise_not_even_the_tags_are_read() -> None:
    account = Account(
        {"my-stack-1": ("Train", "stopped", "InProgress"), "mystack-1": ("Train", "stopped", "InProgress")}
    )
    assert (account.run().status, account.stopped) == ("SUCCEEDED", [])
    assert set(account.calls) == {"listTrainingJobs"}


def test_all_pages_of_all_names_are_looked_at() -> None:
    account = Account(
        {
            **{f"stack-{one}": ("Train", "runs", "InProgress") for one in range(3)},
            "stack-last": ("Train", "stopped", "InProgress"),
            "other-1": ("Other", "stopped", "InProgress"),
        }
    )
    ended = account.run()
    assert (account.stopped, account.calls.count("listTrainingJobs")) == (["stack-last", "other-1"], 5)
    assert [one[0].split()[0] for one in json.loads(ended.cause)] == ["stack-last", "other-1"]


@pytest.mark.parametrize("refused", ["listTrainingJobs", "listTags", "describeExecution", "stopTrainingJob"])
def test_a_guard_that_cannot_look_fails_with_the_error_after_it_looked_at_all_others(refused: str) -> None:
    jobs = {"stack-1": ("Train", "stopped", "InProgress"), "other-1": ("Other", "stopped", "InProgress")}
    ended = Account(jobs, refused).run()
    error = "SageMaker.SageMakerException: Rate exceeded"
    assert (ended.status, json.loads(ended.cause)) == ("FAILED", [[f"stack: {error}"], [f"other: {error}"]])


def guards(template: Mapping[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    resources = template["Resources"].items()
    return {
        id: one["Properties"]
        for id, one in resources
        if "JobsGuard" in id and one["Type"] == kind
    }  # fmt: skip


def test_the_workflows_of_a_stack_share_one_guard_each_quarter_of_an_hour() -> None:
    stack = UserStack()
    first, second = stack.workflow("First"), stack.workflow("Second", job_name_prefix="tune")
    template = stack.template()
    [machine] = guards(template, "AWS::StepFunctions::StateMachine").values()
    [rule] = guards(template, "AWS::Events::Rule").values()
    assert (machine["StateMachineType"], rule["ScheduleExpression"]) == ("EXPRESS", "rate(15 minutes)")
    assert first.alarms[-1] is second.alarms[-1]
    [alarm] = guards(template, "AWS::CloudWatch::Alarm").values()
    assert alarm["MetricName"] == "ExecutionsFailed"
    [definition] = [one for name, one in stack.machines().items() if "JobsGuard" in name]
    found = definition["States"]["Workflows"]["Result"]["Workflows"]
    assert [(one["Word"], len(one["Machines"])) for one in found] == [("stack", 1), ("tune", 1)]


def test_a_guard_may_stop_the_jobs_of_its_workflows_alone() -> None:
    stack = UserStack()
    stack.workflow()
    allowed = {
        action: one["Resource"]
        for one in stack.statements("SageMakerTrainingJobsGuardStateMachineRole")
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
        if action.startswith(("sagemaker:", "states:"))
    }
    job = "arn:aws:sagemaker:us-east-1:123456789012:training-job/"
    assert {name: one for name, one in allowed.items() if name != "states:DescribeExecution"} == {
        "sagemaker:ListTrainingJobs": "*",
        "sagemaker:ListTags": f"{job}stack-*",
        "sagemaker:DescribeTrainingJob": f"{job}stack-training-04d490aa-*",
        "sagemaker:StopTrainingJob": f"{job}stack-training-04d490aa-*",
    }
    assert allowed["states:DescribeExecution"].startswith("arn:aws:states:us-east-1:123456789012:execution:{Training")


def test_a_workflow_with_a_queue_has_no_guard() -> None:
    stack = UserStack()
    stack.workflow(queue=TrainingQueue(stack, "Queue", capacity=8))
    assert not guards(stack.template(), "AWS::Events::Rule")


def policies(template: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The characters of all inline policies by their role, each reference to a resource counted as 64."""
    sizes: dict[str, int] = {}
    for one in template["Resources"].values():
        if one["Type"] == "AWS::IAM::Policy":
            size = len(json.dumps(_filled(one["Properties"]["PolicyDocument"]), separators=(",", ":")))
            for role in one["Properties"]["Roles"]:
                sizes[role["Ref"]] = sizes.get(role["Ref"], 0) + size
    yield from sizes.items()


def _filled(value: Any) -> Any:
    if isinstance(value, list):
        return [_filled(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "Fn::Join" in value:
        return "".join(map(str, _filled(value["Fn::Join"][1])))
    return "x" * 64 if set(value) & {"Ref", "Fn::GetAtt"} else {key: _filled(one) for key, one in value.items()}


def test_the_policies_of_a_stack_with_as_many_workflows_as_it_may_have_are_within_iams_limit() -> None:
    stack = UserStack()
    for number in range(15):
        stack.workflow(f"Workflow{number}")
    assert max(size for _, size in policies(stack.template())) < 10_240
    rule = r"retain_jobs=False must stop the jobs of at most 15 workflows .*, got 16"
    with pytest.raises(ValueError, match=rule):
        stack.workflow("OneMore")


def test_further_workflows_have_a_guard_of_their_own() -> None:
    stack = UserStack()
    for number in range(16):
        stack.workflow(f"Workflow{number}", retain_jobs=True)
    template = stack.template()
    assert len(guards(template, "AWS::Events::Rule")) == 2
    assert max(size for _, size in policies(template)) < 10_240


def of_guard(change: Any) -> Change:
    return states("SageMakerTrainingJobsGuardStateMachine", change)


def of_each_job(state: str, **members: Any) -> Change:
    def change(found: dict[str, Any]) -> None:
        of_workflows = found["OfEach"]["ItemProcessor"]["States"]
        of_workflows["OfEachJob"]["ItemProcessor"]["States"][state].update(members)

    return of_guard(change)


def guard_rule(**members: Any) -> Change:
    return lambda template: resource(template, "AWS::Events::Rule", "SageMakerTrainingJobsGuardRule").update(members)


MUTANTS: tuple[tuple[str, Change, str], ...] = (
    ("a schedule that is disabled", guard_rule(State="DISABLED"), "left-running"),
    ("a guard of other names", of_guard(sets("Workflows", Result={"Workflows": []})), "left-running"),
    ("a guard that takes each job for another's", of_each_job("IsOurs", Default="Well", Choices=[
        {"Variable": "$.Whose.IsOurs", "BooleanEquals": False, "Next": "DescribeExecution"}]), "left-running"),
    ("a guard that reads another tag", of_each_job("IsTagged", Choices=[
        {"Variable": "$.Tagged.Name[0]", "IsPresent": True, "Next": "Whose"}]), "left-running"),
    ("a guard that takes ABORTED for running", of_each_job("HasEnded", Default="Well", Choices=[
        {"Variable": "$.Execution.Status", "StringEquals": "FAILED", "Next": "WaitForStopper"}]), "left-running"),
    ("a guard that looks but does not stop", of_each_job("IsLeft", Choices=[
        {"Variable": "$.Now.Status", "StringEquals": "Stopping", "Next": "Stop"}]), "left-running"),
    ("a guard that stops each job", of_each_job("HasEnded", Choices=[
        {"Variable": "$.Execution.Status", "StringEquals": "PENDING_REDRIVE", "Next": "Well"}]), "stopped-well"),
)  # fmt: skip


@pytest.mark.parametrize(("change", "property"), [one[1:] for one in MUTANTS], ids=[one[0] for one in MUTANTS])
def test_prove_finds_a_mutant_of_the_guard(change: Change, property: str) -> None:
    mutant = deepcopy(default())
    change(mutant)
    assert property in broken(mutant, 1)
