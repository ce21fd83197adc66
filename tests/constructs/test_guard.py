"""The schedule of a stack that stops jobs which run although their executions have ended: its resources, and what it does."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_stepfunctions as sfn
from botocore.loaders import Loader
from botocore.model import ServiceModel
from constructs import Construct
from policy_sentry.querying.actions import get_action_data
from rendered import resolved
from stacks import GUARD, UserStack
from test_prove_mutants import Change, broken, default, resource, sets, states

from cdk_sagemaker_training import Grid, NumberField, TrainingPipeline, TrainingQueue, TrainingSweep
from cdk_sagemaker_training.core.job_names import machine_name, machines_prefix
from cdk_sagemaker_training.guard.reconciling import reconciling_definition
from cdk_sagemaker_training.lifecycle.states import STARTED_BY
from cdk_sagemaker_training.request.access import EXECUTION_TAG
from training_jobs.prove.environment import Environment
from training_jobs.prove.evaluator import Answered, Call, Elapsed, Event, Execution, Failed, start, step, wants
from training_jobs.prove.explorer import explore
from training_jobs.prove.templates import read

WORDS, OURS = ["stack", "other"], "*:execution:Ours-*"
EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:{}:{}"
GONE = ("Sfn.ExecutionDoesNotExistException", "Execution Does Not Exist")
# The statuses of executions by their names; GONE was deleted.
STATUSES = {"runs": "RUNNING", "redriven": "PENDING_REDRIVE", "stopped": "ABORTED", "late": "TIMED_OUT", "gone": ""}


def ended(definition: Mapping[str, Any], answer: Callable[[Call], Event]) -> Execution:
    """An execution of the guard that has ended, whose calls are answered so."""
    execution = start(definition, {}, {"Execution": {"Id": "guard", "Input": {}}})
    while execution.status == "RUNNING":
        [want, *_] = wants(execution)
        execution = step(execution, answer(want) if isinstance(want, Call) else Elapsed(want.at))
    return execution


class Account:
    """Answers the guard's calls of jobs, which are their machine, their execution and their status once it looks again.

    Pages of ListTrainingJobs have one job each. ``refused`` calls fail.
    """

    def __init__(
        self, jobs: Mapping[str, tuple[str, str, str]], refused: str = "", given: Any = None, now: str = "RUNNING"
    ) -> None:
        self.jobs, self.refused, self.stopped, self.calls = jobs, refused, list[str](), list[str]()
        # The inputs of an execution, of its parent and so on; the status of one that runs once the guard looks again.
        self.given = given if isinstance(given, tuple) else ({} if given is None else given, {})
        self.now, self.looked = now, list[str]()

    def run(self, *parents: str) -> Execution:
        return ended(reconciling_definition(WORDS, [], [OURS], "aws", parents), self._event)

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
                status = STATUSES[(arn := given["ExecutionArn"]).rpartition(":")[2]]
                whole = {} if "IncludedData" in given else {"Input": json.dumps(self.given[0])}
                self.given = self.given[1:] or self.given if whole else self.given
                self.looked += [arn] if whole == {} else []
                status = self.now if self.looked.count(arn) == 2 else status
                return Answered(call.at, {"Status": status, **whole}) if status else Failed(call.at, *GONE)
            case "stopExecution":
                self.stopped.append(given["ExecutionArn"])
                return Answered(call.at, {})
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
        ("Ours-Train", "stopped", "InProgress", True),
        ("Ours-Tune", "late", "InProgress", True),
        ("Ours-Train", "gone", "InProgress", True),
        ("Ours-Train", "stopped", "Stopping", False),  # the stopper was faster
        ("Ours-Train", "runs", "InProgress", False),
        ("Ours-Train", "redriven", "InProgress", False),
        ("Foreign", "stopped", "InProgress", False),
        ("Ours-Train", "none", "InProgress", False),  # without the tag
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


OUR_PARENTS = ("*:execution:Pipeline:*", "*:execution:Pipeline/*")


@pytest.mark.parametrize(
    ("parent", "execution", "now", "stops"),
    [
        (("Pipeline", "stopped"), "runs", "RUNNING", True),
        (("Pipeline", "late"), "runs", "RUNNING", True),
        (("Pipeline", "gone"), "runs", "RUNNING", True),
        (("Pipeline/Rows", "stopped"), "redriven", "RUNNING", True),  # an item of a Distributed Map
        (("Pipeline", "stopped"), "runs", "ABORTED", False),  # Step Functions was faster
        (("Pipeline", "runs"), "runs", "RUNNING", False),
        (("Pipeline", "redriven"), "runs", "RUNNING", False),
        (("Pipeline2", "stopped"), "runs", "RUNNING", False),  # of another machine, which may not have waited
        (None, "runs", "RUNNING", False),
    ],
)
def test_an_execution_is_stopped_whose_parent_has_ended_and_no_other(
    parent: tuple[str, str] | None, execution: str, now: str, stops: bool
) -> None:
    given = {} if parent is None else {STARTED_BY: EXECUTION.format(*parent), "rate": 0.1}
    account = Account({"stack-train-1": ("Ours-Train", execution, "InProgress")}, given=given, now=now)
    ended = account.run(*OUR_PARENTS)
    arn = EXECUTION.format("Ours-Train", execution)
    assert account.stopped == [arn] * stops
    assert ended.status == ("FAILED" if stops else "SUCCEEDED")
    if stops:
        assert json.loads(ended.cause) == [[f"{arn} ran after the end of {given[STARTED_BY]}"]]


@pytest.mark.parametrize(("status", "stops"), [("stopped", True), ("runs", False)])
def test_a_parent_is_stopped_whose_own_parent_has_ended(status: str, stops: bool) -> None:
    pipeline, machine = EXECUTION.format("Pipeline", "runs"), EXECUTION.format("Outer", status)
    given = ({STARTED_BY: pipeline}, {STARTED_BY: machine}, {})
    account = Account({"stack-train-1": ("Ours-Train", "runs", "InProgress")}, given=given)
    ended = account.run(*OUR_PARENTS, "*:execution:Outer:*")
    assert account.stopped == [pipeline] * stops
    assert ended.status == ("FAILED" if stops else "SUCCEEDED")
    if stops:
        assert json.loads(ended.cause) == [[f"{pipeline} ran after the end of {machine}"]]


def test_an_input_that_names_its_own_execution_holds_nothing_up() -> None:
    own = {STARTED_BY: EXECUTION.format("Pipeline", "runs")}
    account = Account({"stack-train-1": ("Ours-Train", "runs", "InProgress")}, given=(own,))
    assert (account.run(*OUR_PARENTS).status, account.stopped) == ("SUCCEEDED", [])


@pytest.mark.parametrize("given", [[1], "text", 5, {STARTED_BY: 5}])
def test_an_input_that_names_no_parent_stops_nothing(given: Any) -> None:
    account = Account({"stack-train-1": ("Ours-Train", "runs", "InProgress")}, given=given)
    assert (account.run(*OUR_PARENTS).status, account.stopped) == ("SUCCEEDED", [])


@cache
def in_a_pipeline() -> dict[str, Any]:
    stack = UserStack()
    TrainingPipeline(stack, "Pipeline", steps=[stack.workflow()])
    return stack.template()


def of_parent(change: Callable[[dict[str, Any]], None]) -> Change:
    def changed(found: dict[str, Any]) -> None:
        change(found["OfEach"]["ItemProcessor"]["States"]["OfEachJob"]["ItemProcessor"]["States"])

    return states(f"{GUARD}Reconciler", changed)


def without_parent(found: dict[str, Any]) -> None:
    found["Training"]["Parameters"]["Input.$"] = "$"


def goes_on(state: str) -> dict[str, Any]:
    return {"Variable": "$.Execution.Status", "StringEquals": "RUNNING", "Next": state}


NEVER = {"Variable": "$.None", "IsPresent": True, "Next": "Well"}


@pytest.mark.parametrize(
    ("change", "property"),
    [
        (of_parent(sets("HasParentEnded", Choices=[NEVER])), "stopped-well"),
        (of_parent(sets("HasParentEnded", Default="Well")), "outlives"),
        (of_parent(sets("Outlives", Choices=[NEVER])), "outlives"),
        (of_parent(sets("HasEnded", Choices=[goes_on("Well")])), "outlives"),
        (states("PipelineStateMachine", without_parent), "outlives"),
    ],
    ids=["takes each parent for ended", "takes none for ended", "stops nothing", "does not ask", "is not told"],
)  # fmt: skip
def test_a_mutant_of_what_stops_an_execution_that_outlives_its_parent_breaks_a_property(
    change: Change, property: str
) -> None:
    template = deepcopy(in_a_pipeline())
    change(template)
    app = read(template)
    [machine] = [one for one in app.starters if one.startswith("Pipeline")]
    proof = explore(Environment(app), machine, 1, {}, most_states=6_000)
    assert property in {one.property for one in proof.violations}


def test_a_guard_may_describe_the_parents_and_stop_the_executions_of_its_stack_alone() -> None:
    stack = UserStack()
    TrainingPipeline(stack, "Pipeline", steps=[stack.workflow("First"), stack.workflow("Second")])
    statements = stack.statements("SageMakerTrainingJobsGuardRole")
    [stopping] = [one for one in statements if one["Action"] == "states:StopExecution"]
    [describing] = [one for one in statements if one["Action"] == "states:DescribeExecution"]
    assert stopping["Resource"] == EXECUTIONS
    assert [one.rpartition("}")[2] for one in describing["Resource"][1:]] == [":*", "/*"]


def test_a_guard_may_stop_the_executions_of_a_pipeline_that_stops_with_a_machine() -> None:
    stack = UserStack()
    pipeline = TrainingPipeline(stack, "Pipeline", steps=[stack.workflow()])
    pipeline.stop_with(stack.machine_of(pipeline.as_task(stack, "Train")))
    statements = stack.statements("SageMakerTrainingJobsGuardRole")
    [stopping] = [one for one in statements if one["Action"] == "states:StopExecution"]
    assert stopping["Resource"][0] == EXECUTIONS
    assert ["PipelineStateMachine" in one for one in stopping["Resource"][1:]] == [True]


def test_a_guard_may_stop_the_executions_of_a_sweep_that_stops_with_a_machine_and_those_of_its_rows() -> None:
    stack = UserStack()
    rate = sfn.JsonPath.format("{}", sfn.JsonPath.string_at("$.rate"))
    workflow = stack.workflow(input_fields={"rate": NumberField()}, hyperparameters={"rate": rate})
    rates: Any = Grid({"rate": [0.1]})
    sweep = TrainingSweep(stack, "Sweep", workflow=workflow, over=rates, results=stack.place("sweeps/"), concurrency=1)
    sweep.stop_with(stack.machine_of(sweep.as_task(stack, "Train")))
    statements = stack.statements("SageMakerTrainingJobsGuardRole")
    [stopping] = [one for one in statements if one["Action"] == "states:StopExecution"]
    assert stopping["Resource"][0] == EXECUTIONS
    assert [one.rpartition("}")[2] for one in stopping["Resource"][1:] if "SweepStateMachine" in one] == ["/*", ":*"]
    [rows] = [one["States"]["Rows"] for name, one in stack.machines().items() if name.startswith("Sweep")]
    assert rows["ItemSelector"][f"{STARTED_BY}.$"] == "$$.Execution.Id"


def test_a_workflow_stops_with_a_machine_of_another_stack_or_app_whose_name_is_known() -> None:
    stack = UserStack()
    other = cdk.Stack(cdk.App.of(stack), "Other", env=cdk.Environment(account=stack.account, region=stack.region))
    workflow = stack.workflow()
    body = sfn.DefinitionBody.from_chainable(workflow.as_task(other, "Train"))
    workflow.stop_with(sfn.StateMachine(other, "Machine", state_machine_name="nightly", definition_body=body))
    arn = f"arn:aws:states:{stack.region}:{stack.account}:stateMachine:weekly"
    workflow.stop_with(sfn.StateMachine.from_state_machine_arn(stack, "Weekly", arn))
    statements = stack.statements("SageMakerTrainingJobsGuardRole")
    [describing] = [one for one in statements if one["Action"] == "states:DescribeExecution"]
    prefix = f"arn:aws:states:{stack.region}:{stack.account}:execution:"
    assert describing["Resource"][1:] == [
        f"{prefix}{name}{rest}" for name in ("nightly", "weekly") for rest in (":*", "/*")
    ]
    [looking] = [one for name, one in stack.machines().items() if "Reconciler" in name]
    assert f"{prefix}nightly:*" in json.dumps(looking)
    assert stack.dependencies == []  # the other one depends on this


def test_a_machine_of_another_account_or_region_stops_nothing() -> None:
    stack = UserStack()
    workflow = stack.workflow()
    for number, place in enumerate(("eu-west-1:123456789012", "us-east-1:210987654321")):
        machine = sfn.StateMachine.from_state_machine_arn(
            stack, f"Imported{number}", f"arn:aws:states:{place}:stateMachine:nightly"
        )
        with pytest.raises(ValueError, match=r"^machine must be .* and be of the account and region of the stack, "):
            workflow.stop_with(machine)


def test_a_machine_of_another_stack_has_a_name_that_is_known_for_a_workflow_to_stop_with_it() -> None:
    stack = UserStack()
    other = cdk.Stack(cdk.App.of(stack), "Other", env=cdk.Environment(account=stack.account, region=stack.region))
    run = stack.workflow().as_task(other, "Train")
    machine = sfn.StateMachine(other, "Machine", definition_body=sfn.DefinitionBody.from_chainable(run))
    imported: Any = sfn.StateMachine.from_state_machine_arn(stack, "Imported", machine.state_machine_arn)
    second = stack.workflow("Second")
    for one, path in ((machine, "Other/Machine"), (imported, "Stack/Imported")):
        with pytest.raises(
            ValueError,
            match=rf"^machine must be one that the stack of Stack/Second defines, or have a name .* got {path}$",
        ):
            second.stop_with(one)


def test_a_workflow_that_stops_with_a_machine_twice_does_so_once() -> None:
    stack = UserStack()
    workflow = stack.workflow()
    machine = stack.machine_of(workflow.as_task(stack, "Train"))
    for _ in range(2):
        workflow.stop_with(machine)
    deletions = [
        one for one in stack.template()["Resources"].values() if one["Type"] == "Custom::SageMakerTrainingJobs"
    ]
    assert len(deletions) == 2  # of the workflow and of the machine


def test_of_a_job_whose_name_begins_otherwise_not_even_the_tags_are_read() -> None:
    account = Account(
        {"my-stack-1": ("Ours-Train", "stopped", "InProgress"), "mystack-1": ("Ours-Train", "stopped", "InProgress")}
    )
    assert (account.run().status, account.stopped) == ("SUCCEEDED", [])
    assert set(account.calls) == {"listTrainingJobs"}


def test_all_pages_of_all_names_are_looked_at() -> None:
    account = Account(
        {
            **{f"stack-{one}": ("Ours-Train", "runs", "InProgress") for one in range(3)},
            "stack-last": ("Ours-Train", "stopped", "InProgress"),
            "other-1": ("Ours-Other", "stopped", "InProgress"),
        }
    )
    ended = account.run()
    assert (account.stopped, account.calls.count("listTrainingJobs")) == (["stack-last", "other-1"], 5)
    assert [one[0].split()[0] for one in json.loads(ended.cause)] == ["stack-last", "other-1"]


@pytest.mark.parametrize("refused", ["listTrainingJobs", "listTags", "describeExecution", "stopTrainingJob"])
def test_a_guard_that_cannot_look_fails_with_the_error_after_it_looked_at_all_others(refused: str) -> None:
    jobs = {"stack-1": ("Ours-Train", "stopped", "InProgress"), "other-1": ("Ours-Other", "stopped", "InProgress")}
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
    first, second = stack.workflow("First"), stack.workflow("Second", job_name_prefix="Tune")
    template = stack.template()
    machines = guards(template, "AWS::StepFunctions::StateMachine")
    types = {
        id.removeprefix(GUARD).rstrip("0123456789ABCDEF"): one.get("StateMachineType") for id, one in machines.items()
    }
    assert types == {"Stopper": None, "Reconciler": "EXPRESS"}
    rules = guards(template, "AWS::Events::Rule").values()
    assert [one["ScheduleExpression"] for one in rules if "ScheduleExpression" in one] == ["rate(15 minutes)"]
    assert first.guard is second.guard
    [definition] = [one for name, one in stack.machines().items() if "Reconciler" in name]
    assert definition["States"]["Items"]["Result"] == {"Items": [{"Word": word} for word in ("stack", "Tune", "tune")]}


def test_the_guards_alarm_counts_looks_that_failed_and_looks_that_took_longer_than_an_express_execution_may() -> None:
    """A metric without data is 0 in a sum ("Using metric math"); none of the two counts what the other does."""
    stack = UserStack()
    stack.workflow("First")
    template = stack.template()
    [alarm] = [one for one in guards(template, "AWS::CloudWatch::Alarm").values() if "Metrics" in one]
    total, *metrics = alarm["Metrics"]
    named = {one["Id"]: one["MetricStat"]["Metric"] for one in metrics}
    assert (total["Expression"], total["ReturnData"]) == (" + ".join(named), True)
    assert {one["MetricName"] for one in named.values()} == {"ExecutionsFailed", "ExecutionsTimedOut"}
    machines = [one["Dimensions"] for one in named.values()]
    assert "Reconciler" in str(machines[0])
    assert machines[0] == machines[1]


def test_the_waits_for_a_page_of_jobs_whose_executions_have_ended_fit_into_an_express_execution() -> None:
    [item] = [state["ItemProcessor"]["States"] for state in reconciling_definition(WORDS, [], [OURS], "aws")["States"].values()
              if state["Type"] == "Map"]  # fmt: skip
    jobs = item["OfEachJob"]
    waits = [state["Seconds"] for state in jobs["ItemProcessor"]["States"].values() if state["Type"] == "Wait"]
    rounds = math.ceil(item["List"]["Parameters"]["MaxResults"] / jobs["MaxConcurrency"])
    assert rounds * sum(waits) < 5 * 60
    assert jobs["MaxConcurrency"] <= 40  # "Using Map state in Inline mode in Step Functions workflows"


EXECUTIONS = "arn:aws:states:us-east-1:123456789012:execution:Stack-86e1c1d7-*"
JOBS = "arn:aws:sagemaker:us-east-1:123456789012:training-job/"


def test_a_guard_may_stop_the_jobs_of_its_stacks_executions_alone() -> None:
    stack = UserStack()
    stack.workflow()
    allowed = {
        (action, one["Resource"], json.dumps(one.get("Condition")))
        for one in stack.statements("SageMakerTrainingJobsGuardRole")
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
        if action.startswith(("sagemaker:", "states:"))
    }
    own = json.dumps({"StringLike": {"aws:ResourceTag/StepFunctionsExecution": EXECUTIONS}})
    assert allowed == {
        ("sagemaker:ListTrainingJobs", "*", "null"),
        ("sagemaker:ListTags", f"{JOBS}stack-*", "null"),
        ("sagemaker:DescribeTrainingJob", f"{JOBS}*", own),
        ("sagemaker:StopTrainingJob", f"{JOBS}*", own),
        ("states:DescribeExecution", EXECUTIONS, "null"),
    }


@pytest.mark.parametrize("action", ["StopTrainingJob", "DescribeTrainingJob"])
def test_iam_has_the_condition_of_the_guards_statements(action: str) -> None:
    [row] = get_action_data("sagemaker", action)["sagemaker"]
    assert "aws:ResourceTag/${TagKey}" in row["condition_keys"]


def test_each_job_has_the_tag_of_the_guards_condition() -> None:
    stack = UserStack()
    stack.workflow()
    assert {"Key": EXECUTION_TAG, "Value.$": "$$.Execution.Id"} in stack.request()["Tags"]


def test_names_of_two_stacks_of_which_one_begins_as_the_other_are_told_apart() -> None:
    app = cdk.App()
    short, long = (machines_prefix(cdk.Stack(app, id)) for id in ("Stack", "Stack-2"))
    assert not long.startswith(short)
    nested = machines_prefix(cdk.NestedStack(cdk.Stack(app, "Outer"), "Inner"))
    assert re.fullmatch("Outer-[0-9a-f]{8}-", nested)
    assert nested != machines_prefix(cdk.Stack(app, "Other", stack_name="Outer"))


def test_a_state_machines_name_has_eighty_characters_at_most_and_is_the_same_for_a_path() -> None:
    stack = cdk.Stack(cdk.App(), "S" * 60)
    parent = Construct(stack, "C" * 60)
    names = [machine_name(Construct(parent, id)) for id in ("One", "Two")]
    assert ([len(one) for one in names], len(set(names))) == ([80, 80], 2)


QUEUE, SECOND = "arn:job-queue/one", "arn:job-queue/two"


class Queues:
    """Answers the guard's calls of service jobs: by id their queue, status, execution and status once it looks again."""

    def __init__(self, jobs: Mapping[str, tuple[str, str, str, str]], refused: str = "") -> None:
        self.jobs, self.refused = dict(jobs), refused
        self.terminated, self.looked = list[str](), list[str]()

    def run(self) -> Execution:
        return ended(reconciling_definition([], [QUEUE, SECOND], [OURS], "aws"), self._event)

    def _event(self, call: Call) -> Event:
        operation, given = call.resource.rpartition(":")[2], call.parameters
        if operation == self.refused:
            return Failed(call.at, "Batch.BatchException", "Too Many Requests", lasting=True)
        match operation:
            case "listServiceJobs":
                asked = (given["JobQueue"], given["JobStatus"])
                ids = [id for id, job in self.jobs.items() if job[:2] == asked]
                at = int(given.get("NextToken", 0))
                more = {"NextToken": str(at + 1)} if at + 1 < len(ids) else {}
                return Answered(call.at, {"JobSummaryList": [self._named(id) for id in ids[at : at + 1]], **more})
            case "describeServiceJob":
                queue, status, execution, now = self.jobs[given["JobId"]]
                again = given["JobId"] in self.looked
                self.looked.append(given["JobId"])
                tags = {EXECUTION_TAG: EXECUTION.format("Ours-Train", execution)} if execution else {"team": "vision"}
                described = {**self._named(given["JobId"]), "Status": now if again else status, "Tags": tags}
                return Answered(call.at, {**described, "JobQueue": queue, "ServiceRequestPayload": "{}"})
            case "describeExecution":
                status = STATUSES[given["ExecutionArn"].rpartition(":")[2]]
                return Answered(call.at, {"Status": status}) if status else Failed(call.at, *GONE)
            case "terminateServiceJob":
                assert given["Reason"] == "its execution has ended"
                self.terminated.append(given["JobId"])
                return Answered(call.at, {})
        raise AssertionError(operation)

    @staticmethod
    def _named(id: str) -> dict[str, str]:
        return {"JobId": id, "JobName": f"job-{id}"}


@pytest.mark.parametrize("status", ["SUBMITTED", "PENDING", "RUNNABLE", "SCHEDULED", "STARTING", "RUNNING"])
@pytest.mark.parametrize(
    ("execution", "now", "terminates"),
    [
        ("stopped", "RUNNING", True),
        ("gone", "RUNNABLE", True),
        ("stopped", "FAILED", False),  # the stopper was faster
        ("stopped", "SUCCEEDED", False),
        ("runs", "RUNNING", False),
        ("", "RUNNING", False),  # without the tag
    ],
)
def test_a_service_job_of_any_status_is_terminated_whose_execution_has_ended_and_no_other(
    status: str, execution: str, now: str, terminates: bool
) -> None:
    queues = Queues({"1": (SECOND, status, execution, now)})
    ended = queues.run()
    assert queues.terminated == ["1"] * terminates
    assert ended.status == ("FAILED" if terminates else "SUCCEEDED")
    if terminates:
        told = [f"job-1 ran after the end of {EXECUTION.format('Ours-Train', execution)}"]
        assert (ended.error, json.loads(ended.cause)) == ("TrainingJobGuard", [told])


def test_a_status_that_ends_a_service_job_is_none_of_those_that_are_listed() -> None:
    model = ServiceModel(Loader().load_service_model("batch", "service-2"), "batch")
    items = reconciling_definition([], [QUEUE], [OURS], "aws")["States"]["Items"]["Result"]["Items"]
    listed = [one["Status"] for one in items]
    assert {*listed, "SUCCEEDED", "FAILED"} == set(model.shape_for("ServiceJobStatus").enum)


def test_all_pages_of_all_queues_are_looked_at_though_one_could_not_be() -> None:
    of_one = {str(one): (QUEUE, "RUNNABLE", "runs", "RUNNABLE") for one in range(3)}
    last = {"3": (QUEUE, "RUNNABLE", "stopped", "RUNNABLE"), "4": (SECOND, "RUNNING", "late", "RUNNING")}
    queues = Queues({**of_one, **last})
    assert (queues.run().status, queues.terminated) == ("FAILED", ["3", "4"])
    ended = Queues({**of_one, **last}, "describeServiceJob").run()
    errors = [one[0] for one in json.loads(ended.cause)]
    error = "Batch.BatchException: Too Many Requests"
    assert errors == [f"{QUEUE}: RUNNABLE: {error}", f"{SECOND}: RUNNING: {error}"]


def test_a_guard_looks_at_the_queues_of_its_stack_from_which_a_workflow_was_taken_out_too() -> None:
    stack = UserStack()
    used, emptied = (TrainingQueue(stack, id, capacity=8) for id in ("Used", "Emptied"))
    stack.workflow("InQueue", queue=used)
    stack.workflow("Out")
    machines = stack.machines().items()
    [stopper] = [one for name, one in machines if name.startswith(f"{GUARD}Stopper")]
    [reconciler] = [one for name, one in machines if name.startswith(f"{GUARD}Reconciler")]
    assert len(stopper["States"]["First"]["Choices"]) == 1
    items = reconciler["States"]["Items"]["Result"]["Items"]
    queues = dict.fromkeys(one["Queue"] for one in items if "Queue" in one)
    assert sorted(queues) == sorted(resolved(stack.resolve(queue.queue_arn)) for queue in (used, emptied))


def test_a_guarded_task_adds_the_executions_of_its_machine_to_what_the_guard_may_describe_and_stop() -> None:
    stack = UserStack()
    task = stack.task()
    guard = task.guard(stack.machine_of(task))
    assert guard is task.guard(next(one for one in stack.node.find_all() if one.node.id == "Machine"))
    template = stack.template()
    assert len(guards(template, "AWS::StepFunctions::StateMachine")) == 2
    statements = stack.statements("SageMakerTrainingJobsGuardRole")
    [describing] = [one for one in statements if one["Action"] == "states:DescribeExecution"]
    [stopping] = [one for one in statements if "Condition" in one]
    assert len(describing["Resource"]) == 2
    assert stopping["Condition"]["StringLike"][f"aws:ResourceTag/{EXECUTION_TAG}"] == describing["Resource"]


def of_guard(change: Any) -> Change:
    return states("SageMakerTrainingJobsGuardReconciler", change)


def of_each_job(state: str, **members: Any) -> Change:
    def change(found: dict[str, Any]) -> None:
        of_workflows = found["OfEach"]["ItemProcessor"]["States"]
        of_workflows["OfEachJob"]["ItemProcessor"]["States"][state].update(members)

    return of_guard(change)


def guard_rule(**members: Any) -> Change:
    return lambda template: resource(template, "AWS::Events::Rule", "SageMakerTrainingJobsGuardSchedule").update(
        members
    )


MUTANTS: tuple[tuple[str, Change, str], ...] = (
    ("a schedule that is disabled", guard_rule(State="DISABLED"), "left-running"),
    ("a guard of other names", of_guard(sets("Items", Result={"Items": []})), "left-running"),
    ("a guard that takes each job for another's", of_each_job("IsOurs", Default="Well", Choices=[
        {"Variable": "$.Tagged.Execution[0]", "StringMatches": "*:Other-*", "Next": "HasEnded"}]), "left-running"),
    ("a guard that reads another tag", of_each_job("IsTagged", Choices=[
        {"Variable": "$.Tagged.Name[0]", "IsPresent": True, "Next": "IsOurs"}]), "left-running"),
    ("a guard that takes ABORTED for running", of_each_job("HasEnded", Default="Well", Choices=[
        {"Variable": "$.Execution.Status", "StringEquals": "FAILED", "Next": "WaitForStopper"}]), "left-running"),
    ("a guard that looks but does not stop", of_each_job("IsLeft", Choices=[
        {"Variable": "$.Now.Status", "StringEquals": "Stopping", "Next": "Stop"}]), "left-running"),
    ("a guard that stops each job", of_each_job("HasEnded", Choices=[
        {"Variable": "$.Execution.Status", "StringEquals": "PENDING_REDRIVE", "Next": "Well"}]), "stopped-well"),
)  # fmt: skip


# Each takes one and a half seconds; the others are the soak's.
OFTEN = {"a guard that looks but does not stop"}


@pytest.mark.parametrize(
    ("change", "property"),
    [
        pytest.param(change, found, id=name, marks=() if name in OFTEN else pytest.mark.soak)
        for name, change, found in MUTANTS
    ],
)
def test_prove_finds_a_mutant_of_the_guard(change: Change, property: str) -> None:
    mutant = deepcopy(default())
    change(mutant)
    assert property in broken(mutant, 1)
