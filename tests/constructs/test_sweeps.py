"""A sweep's rows, which are checked at synthesis, its state machine against Step Functions' limits, and its table."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from aws_cdk import aws_s3 as s3
from rendered import lint, resolved
from stacks import IMAGE_URI, UserStack, message_of

from cdk_sagemaker_training import (
    ChoiceField,
    DataParallelJob,
    Grid,
    InstanceGroup,
    NumberField,
    Objective,
    Rows,
    RowsFile,
    S3Channel,
    S3Prefix,
    TextField,
    TrainingSweep,
)
from cdk_sagemaker_training.handlers import sweep as sweep_handler
from cdk_sagemaker_training.orchestration.sweep_values import checked_rows, rules_of
from sagemaker_local_account.http.rates import Bucket, rates
from training_jobs.prove.values import Scope, filled

FIELDS = {
    "learning_rate": NumberField(0, 1),
    "machines": ChoiceField([1, 2]),
    "data_set": TextField("images-*"),
}
ROW = {"learning_rate": 0.1, "machines": 1, "data_set": "images-1"}
GRID = Grid({"learning_rate": [0.1, 0.01], "machines": [1], "data_set": ["images-1"]})
RULES = rules_of(FIELDS)

# Step Functions' guide, "Service quotas": an execution's events, the bytes of a state's input or output, of a definition, and the
# child executions of a Map Run.
MOST_EVENTS, MOST_BYTES, MOST_OF_DEFINITION, MOST_CHILDREN = 25_000, 256 * 1024, 1024 * 1024, 10_000
# What a state adds to the history (Step Functions API, HistoryEvent): entered and exited, and of a task that waits for another
# execution scheduled, started, submitted and ended; of a Map in distributed mode its own start and end, and its run's.
EVENTS_OF_A_STATE, EVENTS_OF_A_TASK, EVENTS_OF_A_MAP = 2, 4, 4
EVENTS_OF_A_RETRY = 3


class Sweeps:
    """A workflow in a stack of its own, and sweeps of it."""

    def __init__(self, **props: Any) -> None:
        self.stack = UserStack()
        if "image" in props:
            props["image"] = self.stack.image_from(props["image"])
        if "channels" in props:
            props["channels"] = {
                name: S3Channel(self.stack.bucket, prefix) for name, prefix in props["channels"].items()
            }
        given = {"metric_definitions": {"loss": "loss=(.*)"}, "input_fields": FIELDS, **props}
        self.workflow = self.stack.workflow(**given)

    def make(self, **props: Any) -> TrainingSweep:
        id = f"Sweep{len(self.stack.node.children)}"
        results = self.stack.place(f"sweeps/{id}/")
        given = {"over": GRID, "results": results, "concurrency": 8, "workflow": self.workflow}
        return TrainingSweep(self.stack, id, **{**given, **props})


class Swept:
    """A sweep as its template has it."""

    def __init__(self, **props: Any) -> None:
        sweeps = Sweeps()
        sweeps.make(**props)
        self.template = sweeps.stack.template()
        self.machines = sweeps.stack.machines()
        [self.definition] = [one for one in self.machines.values() if "AnyLeft" in one["States"]]


@pytest.fixture(scope="module")
def sweeps() -> Sweeps:
    return Sweeps()


@pytest.fixture(scope="module")
def swept() -> Swept:
    return Swept(objective=Objective("loss", "Minimize"), tolerated_failure_percentage=5)


def test_each_row_is_an_execution_of_the_workflow_with_the_rows_values(swept: Swept) -> None:
    rows = swept.definition["States"]["Rows"]
    assert (rows["MaxConcurrency"], rows["ToleratedFailurePercentage"]) == (8, 5)
    train = rows["ItemProcessor"]["States"]["Train"]
    assert train["Resource"] == "arn:aws:states:::states:startExecution.sync:2"
    assert train["Parameters"]["Input"] == {
        "learning_rate.$": "$.Row.learning_rate",
        "machines.$": "$.Row.machines",
        "data_set.$": "$.Row.data_set",
        "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID.$": "$$.Execution.Id",
    }


def test_a_row_that_is_redriven_is_another_execution_of_the_workflow_and_a_start_that_is_repeated_the_same(
    swept: Swept,
) -> None:
    """The name of one that was stopped is used up ("StartExecution", ExecutionAlreadyExists)."""
    states = swept.definition["States"]["Rows"]["ItemProcessor"]["States"]

    def name(redriven: int) -> str:
        execution = {"Id": "arn:aws:states:us-east-1:123456789012:execution:Sweep/Rows:1", "RedriveCount": redriven}
        scope = Scope({"Key": "0" * 32}, {"Execution": execution}, {})
        found: dict[str, str] = filled({"Name.$": states["Train"]["Parameters"]["Name.$"]}, scope)
        arn: dict[str, str] = filled(states["Find"]["Parameters"], scope)
        assert arn["ExecutionArn"].endswith(f":{found['Name']}")
        return found["Name"]

    assert name(0) == name(0) != name(1)
    assert len(name(10)) <= 80  # service model of Step Functions, Name


def test_a_sweep_has_its_table_although_rows_failed_and_fails_then(swept: Swept) -> None:
    states = swept.definition["States"]
    assert states["Rows"]["Next"] == "Table"
    assert states["Rows"]["Catch"] == [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.Error", "Next": "Table"}]
    assert states["HasFailed"]["Choices"] == [{"Variable": "$.Error", "IsPresent": True, "Next": "Failed"}]
    assert (states["HasFailed"]["Default"], states["Failed"]["Type"]) == ("Done", "Fail")


def test_a_row_that_failed_names_why_although_that_cannot_be_written(swept: Swept) -> None:
    row = swept.definition["States"]["Rows"]["ItemProcessor"]["States"]
    caught = {
        name: [(one["ResultPath"], one["Next"]) for one in row[name]["Catch"]] for name in ("Train", "WriteFailure")
    }
    assert caught == {
        "Train": [("$.Started", "Find"), ("$.Failure", "WriteFailure")],
        "WriteFailure": [("$.NotWritten", "RowFailed")],
    }
    assert row["RowFailed"] == {"Type": "Fail", "Error": "TrainingSweepRowFailed", "CausePath": "$.Failure.Cause"}


def test_the_machine_passes_the_check_of_amazon_states_language(swept: Swept) -> None:
    assert lint(swept.machines) == []


def test_the_last_value_of_a_grid_changes_fastest() -> None:
    assert Grid({"a": [1, 2], "b": ["x", "y"]}).rows() == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_a_row_of_a_sweep_of_a_thousand_stays_within_the_limits_of_step_functions(swept: Swept) -> None:
    """Of the sweep's own execution all rows are one Map state, whose events do not grow with them."""
    rates = [number / 1_000 for number in range(1_000)]
    lines = checked_rows(Grid({"learning_rate": rates, "machines": [1], "data_set": ["images-1"]}), FIELDS).splitlines()
    assert len(lines) == 1_000
    states = swept.definition["States"]
    of_row = states["Rows"]["ItemProcessor"]["States"]
    assert most_events(states) < MOST_EVENTS
    assert most_events(of_row) < 800 < MOST_EVENTS  # as docs/sweeps.md says
    assert len(json.dumps(swept.definition)) < MOST_OF_DEFINITION
    # The rows are read from S3, so that no state's input has them; a row's output is empty.
    assert "$.Row" not in json.dumps({name: state for name, state in states.items() if name != "Rows"})
    outputs = [state["ResultSelector"] for state in of_row.values() if state.get("End")]
    assert outputs == [{}]
    assert len(json.dumps([{}] * len(lines))) < MOST_BYTES
    assert states["Rows"]["MaxConcurrency"] <= MOST_CHILDREN


def versions(**workflow: Any) -> list[Any]:
    """What the results are kept apart by of a sweep of a workflow of some props, and of one with a version of its own."""
    sweeps = Sweeps(**workflow)
    sweeps.make()
    sweeps.make(version="2")
    found = []
    for definition in (one for one in sweeps.stack.machines().values() if "AnyLeft" in one["States"]):
        plan, table = (definition["States"][name]["Parameters"]["Payload"]["Version"] for name in ("Plan", "Table"))
        assert plan == table
        found.append(plan)
    return sorted(found, key=lambda one: one == ["2"])


@pytest.fixture(scope="module")
def unchanged() -> Any:
    """The version of a sweep of the workflow of which others differ."""
    of_workflow, own = versions()
    assert own == ["2"]
    return of_workflow


@pytest.mark.parametrize(
    ("props", "counts"),
    [
        ({"hyperparameters": {"epochs": 3}}, False),
        ({"environment": {"SEED": "1"}}, False),
        ({"channels": {"letters": "letters/"}}, False),
        ({"metric_definitions": {"loss": "loss: (.*)"}}, False),
        ({"image": "second"}, False),
        ({"job": DataParallelJob(InstanceGroup("ml.g5.12xlarge"))}, True),
        ({"max_runtime": 600, "retries": 2, "integration": "poll"}, True),
    ],
)
def test_a_result_of_before_a_change_counts_where_it_would_be_the_same(
    unchanged: Any, props: dict[str, Any], counts: bool
) -> None:
    of_workflow, own = versions(**props)
    assert (of_workflow == unchanged) is counts
    assert own == ["2"]


def test_a_result_of_an_image_that_is_known_at_deployment_only_counts_for_that_image(swept: Swept) -> None:
    versions = swept.definition["States"]["Plan"]["Parameters"]["Payload"]["Version"]
    assert versions[1:] == [IMAGE_URI]
    assert sweep_handler.key_of({"a": 1}, "first") != sweep_handler.key_of({"a": 1}, "second")


@pytest.mark.parametrize("operation", ["StartExecution", "DescribeExecution"])
def test_ten_thousand_rows_at_once_all_get_an_answer_at_the_lowest_of_awss_rates(swept: Swept, operation: str) -> None:
    """Of the start, and of a poll by `.sync`, each repeated by the retrier of the state that waits for the workflow."""
    retrier = swept.definition["States"]["Rows"]["ItemProcessor"]["States"]["Train"]["Retry"][0]
    now, drawn = 0.0, random.Random(7)
    bucket = Bucket(rates("eu-central-1")["states", operation], lambda: now)
    queue = [(0.0, row, 0) for row in range(MOST_CHILDREN)]
    while queue:
        now, row, tried = heapq.heappop(queue)
        if bucket.take():
            continue
        assert tried < retrier["MaxAttempts"], f"a row gave up after {now:.0f} s"
        most = retrier["IntervalSeconds"] * retrier["BackoffRate"] ** tried
        heapq.heappush(queue, (now + drawn.uniform(0, min(most, retrier["MaxDelaySeconds"])), row, tried + 1))


def most_events(states: Mapping[str, Any]) -> int:
    """The most events of an execution that enters each state once."""
    events = 2
    for state in states.values():
        events += EVENTS_OF_A_STATE
        events += {"Task": EVENTS_OF_A_TASK, "Map": EVENTS_OF_A_MAP}.get(state["Type"], 0)
        events += sum(one["MaxAttempts"] * EVENTS_OF_A_RETRY for one in state.get("Retry", ()))
    return events


def test_a_sweep_may_do_what_its_states_call_and_no_more(swept: Swept) -> None:
    allowed = {
        action
        for name, resource in swept.template["Resources"].items()
        if resource["Type"] == "AWS::IAM::Policy" and name.startswith("Sweep")
        for statement in resolved(resource["Properties"]["PolicyDocument"]["Statement"])
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
        if not action.startswith("logs:")
    }
    assert allowed == {
        *("states:StartExecution", "states:DescribeExecution", "states:StopExecution", "lambda:InvokeFunction"),
        "states:ListExecutions",  # of the function that stops them before the sweep is deleted
        *("events:DescribeRule", "events:PutRule", "events:PutTargets"),
        *("s3:GetObject", "s3:ListBucket", "s3:PutObject"),
    }


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"learning_rate": 2}, "row 1: learning_rate must be a number of at least 0 and at most 1, got 2"),
        ({"learning_rate": "0.1"}, 'row 1: learning_rate must be a number of at least 0 and at most 1, got "0.1"'),
        ({"machines": 3}, "row 1: machines must be one of 1, 2, got 3"),
        ({"data_set": "texts"}, 'row 1: data_set must be text like images-*, got "texts"'),
        (
            {"epochs": 3},
            "row 1: epochs must be one of the workflow's input_fields, learning_rate, machines, data_set, got 3",
        ),
    ],
)
def test_a_row_that_is_not_allowed_is_refused_at_synthesis(row: dict[str, Any], problem: str) -> None:
    message = message_of(lambda: checked_rows(Rows([{**ROW, **row}]), FIELDS))
    assert message.startswith("over must be rows of the workflow's input_fields, like Grid(")
    assert message.endswith(f"got {problem}")


def test_a_row_must_have_all_fields_and_be_there_once() -> None:
    lacking = message_of(lambda: checked_rows(Grid({"learning_rate": [0.1], "machines": [1]}), FIELDS))
    assert lacking.endswith("got row 1: data_set must be text like images-*, got nothing")
    twice = message_of(lambda: checked_rows(Rows([ROW, {**ROW, "machines": 1.0}]), FIELDS))
    assert "row 2: must differ from those before, got " in twice


def test_a_row_has_the_default_of_a_field_that_it_leaves_out() -> None:
    fields = {"learning_rate": NumberField(0, 1), "machines": ChoiceField([1, 2], default=1)}
    lines = checked_rows(Rows([{"learning_rate": 0.1}, {"learning_rate": 0.1, "machines": 2}]), fields).splitlines()
    assert [json.loads(line)["machines"] for line in lines] == [1, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda sweeps: Grid({}), "values must be at least one for each field, like "),
        (lambda sweeps: Grid({"learning_rate": []}), "values must be at least one for each field, like "),
        (lambda sweeps: Rows([]), "values must be at least one row, like "),
        (lambda sweeps: RowsFile(sweeps.stack.bucket, "rows.parquet"), "key must end with .csv or .jsonl, like "),
        (lambda sweeps: Objective("", "Minimize"), "metric must be text"),
        (lambda sweeps: sweeps.make(concurrency=0), "concurrency must be 1 to 10000, like 8, got 0"),
        (lambda sweeps: sweeps.make(tolerated_failure_count=-1), "tolerated_failure_count must be 0 or more, like 5"),
        (lambda sweeps: sweeps.make(tolerated_failure_percentage=101), "tolerated_failure_percentage must be 0 to 100"),
        (
            lambda sweeps: sweeps.make(results=sweeps.stack.place("sweeps")),
            "results must be a prefix that ends with a slash",
        ),
        (
            lambda sweeps: sweeps.make(objective=Objective("accuracy", "Maximize")),
            "objective.metric must be one of the workflow's metric_definitions, loss, like ",
        ),
        (
            lambda sweeps: sweeps.make(workflow=sweeps.stack.workflow("Fixed")),
            "workflow must have input_fields, of which ",
        ),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(sweeps: Sweeps, make: Any, message: str) -> None:
    assert message_of(lambda: make(sweeps)).startswith(message)


@pytest.mark.parametrize("prefix", ["sweeps/rate/", "sweeps/", "sweeps/rate/more/"])
def test_a_sweep_in_the_place_of_anothers_results_is_refused(prefix: str) -> None:
    sweeps = Sweeps()
    first = sweeps.make(results=sweeps.stack.place("sweeps/rate/"))
    sweeps.make(results=sweeps.stack.place("sweeps/rates/"))
    again = s3.Bucket.from_bucket_name(sweeps.stack, "Again", "bucket")
    said = message_of(lambda: sweeps.make(results=S3Prefix(again, prefix)))
    assert said.startswith("results must be a place of this sweep's own, since each writes its table there, like ")
    assert said.endswith(f"got {prefix!r} beside 'sweeps/rate/' of {first.node.path}")
    other = s3.Bucket(sweeps.stack, "Other")
    sweeps.make(results=S3Prefix(other, prefix))
    sweeps.make(results=S3Prefix(s3.Bucket(sweeps.stack, "Third"), prefix))
    assert "must be a place of this sweep's own" in message_of(lambda: sweeps.make(results=S3Prefix(other, prefix)))


def test_cells_of_a_csv_file_have_the_types_of_their_fields() -> None:
    text = "learning_rate,machines,data_set\n0.1,2,images-7\n"
    assert list(sweep_handler.parsed(text, "rows.csv", RULES)) == [
        {"learning_rate": 0.1, "machines": 2, "data_set": "images-7"}
    ]
    assert list(sweep_handler.parsed("name\n007\n", "rows.csv", rules_of({"name": TextField()}))) == [{"name": "007"}]
    assert list(sweep_handler.parsed("size\n8\n", "rows.csv", rules_of({"size": ChoiceField(["8", "16"])}))) == [
        {"size": "8"}
    ]


@pytest.mark.parametrize(("body", "key"), [("learning_rate,machines\n", "rows.csv"), ("\n", "rows.jsonl")])
def test_a_file_without_rows_is_refused(body: str, key: str) -> None:
    with pytest.raises(sweep_handler.InvalidInput, match=r"there must be at least one row, like .*, got none"):
        sweep_handler.by_key(sweep_handler.parsed(body, key, RULES), RULES)


def test_a_line_that_is_no_object_is_named() -> None:
    with pytest.raises(sweep_handler.InvalidInput, match=r"line 2 must be a JSON object, like .*, got 0\.1"):
        list(sweep_handler.parsed('{"learning_rate": 0.1}\n0.1\n', "rows.jsonl", RULES))


def test_a_rows_key_is_that_of_its_values_whatever_their_order() -> None:
    assert sweep_handler.key_of({"a": 1, "b": "x"}) == sweep_handler.key_of({"b": "x", "a": 1.0})
    assert sweep_handler.key_of({"a": 1}) != sweep_handler.key_of({"a": "1"})


@pytest.mark.parametrize(("goal", "best"), [("Minimize", 0.5), ("Maximize", 2.0)])
def test_the_best_row_is_the_one_with_the_best_metric_of_those_that_have_it(goal: str, best: float) -> None:
    lines = [{"Metrics.loss": 2.0}, {"Metrics.loss": 0.5}, {"Status": "Failed"}, {"Metrics.loss": float("nan")}]
    assert sweep_handler.best(lines, {"MetricName": "loss", "Type": goal}) == {"Metrics.loss": best}
    assert sweep_handler.best(lines[2:], {"MetricName": "loss", "Type": goal}) is None
    assert sweep_handler.best(lines, None) is None


def test_the_reason_of_a_failure_is_that_of_the_workflows_execution() -> None:
    described = json.dumps({"Error": "TrainingJobFailed", "Cause": "job-1: AlgorithmError"})
    assert (
        sweep_handler.reason({"Error": "States.TaskFailed", "Cause": described})
        == "TrainingJobFailed: job-1: AlgorithmError"
    )
    assert sweep_handler.reason({"Error": "States.Timeout", "Cause": ""}) == "States.Timeout: "
