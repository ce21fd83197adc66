"""What ``prove`` says of a small state machine, and of its mutants, each a mistake that a careful person makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import part
from typer.testing import CliRunner

from training_jobs.cli.main import app
from training_jobs.prove.environment import Job, Run, World
from training_jobs.prove.evaluator import Ended, start, step
from training_jobs.prove.explorer import Proof, prove
from training_jobs.prove.facts import FACTS
from training_jobs.prove.properties import PROPERTIES
from training_jobs.prove.properties import broken as broken_by
from training_jobs.prove.replay import commands
from training_jobs.prove.values import UnsupportedError

PAGE = Path(__file__).parents[2] / "docs" / "prove.md"
SDK = "arn:aws:states:::aws-sdk:sagemaker:"
NAME = {"TrainingJobName": "a-job"}
RETRY = [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 2}]
RUNS = {"Variable": "$.Job.TrainingJobStatus", "StringEquals": "InProgress", "Next": "Wait"}


def guarded() -> dict[str, Any]:
    """A machine that creates a job once, polls it for ever, and stops it when a call fails; with its guard."""
    to_stop = [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.Error", "Next": "Stop"}]
    in_use = [{"ErrorEquals": ["SageMaker.ResourceInUseException"], "ResultPath": None, "Next": "Wait"}]
    poll = {"Type": "Task", "Resource": f"{SDK}describeTrainingJob", "Parameters": NAME, "ResultPath": "$.Job"}
    completed = {"Variable": "$.Job.TrainingJobStatus", "StringEquals": "Completed", "Next": "Done"}
    states = {
        "Create": {
            "Type": "Task",
            "Resource": f"{SDK}createTrainingJob",
            "Parameters": {**NAME, "Tags": [{"Key": "Execution", "Value.$": "$$.Execution.Id"}]},
            "ResultPath": None,
            "Retry": [
                {"ErrorEquals": ["SageMaker.SageMakerException", "SageMaker.SdkClientException"], "MaxAttempts": 2}
            ],
            "Catch": [*in_use, *to_stop],
            "Next": "Wait",
        },
        "Wait": {"Type": "Wait", "Seconds": 60, "Next": "Describe"},
        "Describe": {**poll, "Retry": RETRY, "Catch": to_stop, "Next": "Ended"},
        "Ended": {"Type": "Choice", "Choices": [dict(RUNS), completed], "Default": "Failed"},
        "Stop": {
            "Type": "Task",
            "Resource": f"{SDK}stopTrainingJob",
            "Parameters": NAME,
            "ResultPath": None,
            "Retry": RETRY,
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Failed"}],
            "Next": "Failed",
        },
        "Done": {"Type": "Succeed"},
        "Failed": {"Type": "Fail", "Error": "TrainingJobFailed", "Cause": "it failed"},
    }
    stop = {
        **states["Stop"],
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": "Again"}],
        "Next": "Again",
    }
    again = {
        "Type": "Choice",
        "Choices": [{"Variable": "$.Twice", "IsPresent": True, "Next": "Done"}],
        "Default": "Late",
    }
    guard = {
        "Stop": stop,
        "Again": again,
        "Late": {"Type": "Wait", "Seconds": 60, "Next": "Twice"},
        "Twice": {"Type": "Pass", "Result": True, "ResultPath": "$.Twice", "Next": "Stop"},
        "Done": {"Type": "Succeed"},
    }
    pattern = {"stateMachineArn": [{"Ref": "Machine"}], "status": ["ABORTED", "FAILED", "TIMED_OUT"]}
    rule = {
        "EventPattern": {"source": ["aws.states"], "detail": pattern},
        "Targets": [{"Id": "Target0", "Arn": {"Ref": "Guard"}, "InputPath": "$.detail"}],
    }
    machines = {"Machine": {"StartAt": "Create", "States": states}, "Guard": {"StartAt": "Stop", "States": guard}}
    return {"machines": machines, "rule": rule}


def template(parts: dict[str, Any]) -> dict[str, Any]:
    resources: dict[str, Any] = {
        name: {
            "Type": "AWS::StepFunctions::StateMachine",
            "Properties": {"DefinitionString": {"Fn::Join": ["", [json.dumps(one)]]}},
        }
        for name, one in parts["machines"].items()
    }
    if parts.get("rule"):
        resources["Rule"] = {"Type": "AWS::Events::Rule", "Properties": parts["rule"]}
    deletion = {"StateMachineArn": {"Ref": "Machine"}, "TaggedJobNamePrefix": "a", **parts.get("deletion", {})}
    resources["Deletion"] = {"Type": "Custom::SageMakerTrainingJobs", "Properties": deletion}
    return {"Resources": resources}


def proof_of(parts: dict[str, Any], faults: int = 1) -> Proof:
    [proof] = prove(template(parts), faults=faults, most_states=30_000)
    return proof


def broken(proof: Proof) -> set[str]:
    return {one.property for one in proof.violations}


def states(parts: dict[str, Any], machine: str = "Machine") -> dict[str, Any]:
    return dict(parts["machines"][machine]["States"])


def test_a_guarded_machine_without_faults_keeps_every_property() -> None:
    proof = proof_of(guarded(), faults=0)
    assert (broken(proof), proof.complete, proof.jobs) == (set(), True, 1)


def test_one_fault_finds_the_lost_event_and_the_read_whose_failure_stops_a_well_job() -> None:
    assert broken(proof_of(guarded())) == {"left-running", "stopped-well"}


def test_a_story_is_a_shortest_one_in_plain_words() -> None:
    [found] = [one for one in proof_of(guarded()).violations if one.property == "stopped-well"]
    assert [step.text for step in found.story] == [
        "the execution, Create: CreateTrainingJob starts a job",
        "the execution has waited in Wait",
        "the execution, Describe: DescribeTrainingJob fails for as long as its retriers last",
        "the execution, Stop: StopTrainingJob stops the job",
    ]


def test_a_story_has_the_commands_that_replay_it() -> None:
    [found] = [one for one in proof_of(guarded()).violations if one.property == "stopped-well"]
    throttling = "local-account break throttling DescribeTrainingJob --times 12 --caller assumed-role"
    assert commands(found)[:4] == [
        "# stopped-well of Machine",
        throttling,
        "training-jobs start  # the state machine, where there are several",
        "# 1. the execution, Create: CreateTrainingJob starts a job",
    ]


def test_an_event_is_lost_by_a_fault_that_comes_before_the_execution_ends() -> None:
    [found] = [one for one in proof_of(guarded()).violations if one.property == "left-running"]
    _, first, *others = commands(found)
    assert first == "local-account break lost-event --machine Machine"
    assert 'aws stepfunctions stop-execution --execution-arn "$EXECUTION"' in others


def _no_rule(parts: dict[str, Any]) -> None:
    parts["rule"] = None


def _rule_without(status: str) -> Callable[[dict[str, Any]], None]:
    return lambda parts: parts["rule"]["EventPattern"]["detail"]["status"].remove(status)


def _one_look(parts: dict[str, Any]) -> None:
    parts["machines"]["Guard"]["States"]["Again"]["Default"] = "Done"


def _short_second_look(parts: dict[str, Any]) -> None:
    parts["machines"]["Guard"]["States"]["Late"]["Seconds"] = 10


def _guard_stops_another(parts: dict[str, Any]) -> None:
    parts["machines"]["Guard"]["States"]["Stop"]["Parameters"] = {"TrainingJobName": "another"}


def _guard_is_another_rule(parts: dict[str, Any]) -> None:
    parts["rule"]["EventPattern"]["detail"]["stateMachineArn"] = [{"Ref": "Guard"}]


def _timeout_without_guard(parts: dict[str, Any]) -> None:
    parts["machines"]["Machine"]["TimeoutSeconds"] = 100
    parts["rule"]["EventPattern"]["detail"]["status"].remove("TIMED_OUT")


def _end_without_looking(parts: dict[str, Any]) -> None:
    states(parts)["Create"]["Next"] = "Done"


def _success_of_any_end(parts: dict[str, Any]) -> None:
    states(parts)["Ended"]["Default"] = "Done"


def _no_wait_for_the_end(parts: dict[str, Any]) -> None:
    states(parts)["Ended"]["Choices"][0]["Next"] = "Done"


def _polls_for_ever(parts: dict[str, Any]) -> None:
    states(parts)["Ended"]["Default"] = "Wait"


def _another_name_each_time(parts: dict[str, Any]) -> None:
    """Each failed job is followed by one of another name, without a bound."""
    of = parts["machines"]["Machine"]
    named = {"TrainingJobName.$": "States.Format('a-{}', $.n)"}
    for name in ("Create", "Describe", "Stop"):
        of["States"][name]["Parameters"] = named
    add = {"Type": "Pass", "Parameters": {"n.$": "States.MathAdd($.n, 1)"}, "Next": "Create"}
    of["States"] |= {"First": {"Type": "Pass", "Result": {"n": 0}, "Next": "Create"}, "Next": add}
    of["StartAt"] = "First"
    of["States"]["Ended"]["Default"] = "Next"


def _retry_with_another_name(parts: dict[str, Any]) -> None:
    """A lost answer of Create is followed by a job of another name."""
    of = parts["machines"]["Machine"]["States"]
    of["Create"]["Retry"] = []
    of["Create"]["Catch"] = [{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": "Second"}]
    of["Second"] = {**of["Create"], "Parameters": {"TrainingJobName": "another"}, "Catch": [], "Next": "Wait"}


def _no_retry(state: str) -> Callable[[dict[str, Any]], None]:
    return lambda parts: states(parts)[state].pop("Retry") and None


def _no_retry_of_lost_answers(parts: dict[str, Any]) -> None:
    states(parts)["Create"]["Retry"][0]["ErrorEquals"].remove("SageMaker.SdkClientException")


def _name_in_use_is_an_error(parts: dict[str, Any]) -> None:
    states(parts)["Create"]["Catch"].pop(0)


def _error_without_a_name(parts: dict[str, Any]) -> None:
    parts["machines"]["Machine"]["States"]["Failed"] = {"Type": "Fail"}


# A mutant, the number of faults, and a property that it breaks and the machine itself, with as many, does not.
MUTANTS: tuple[tuple[str, Callable[[dict[str, Any]], None], int, str], ...] = (
    ("no guard", _no_rule, 0, "left-running"),
    ("a rule without ABORTED", _rule_without("ABORTED"), 0, "left-running"),
    ("a rule of another machine", _guard_is_another_rule, 0, "left-running"),
    ("a rule without TIMED_OUT", _timeout_without_guard, 0, "left-running"),
    ("one look", _one_look, 0, "left-running"),
    ("a second look that is too early", _short_second_look, 0, "left-running"),
    ("a guard that stops another name", _guard_stops_another, 0, "left-running"),
    ("an end without looking at the job", _end_without_looking, 0, "left-running"),
    ("success, though the job failed", _success_of_any_end, 0, "false-success"),
    ("success, though the job runs", _no_wait_for_the_end, 0, "false-success"),
    ("polls a job that has failed for ever", _polls_for_ever, 0, "no-end"),
    ("retries without a bound", _another_name_each_time, 0, "unbounded"),
    ("another name after a lost answer", _retry_with_another_name, 1, "two-at-once"),
    ("no retry of Create", _no_retry("Create"), 1, "one-failed-call"),
    ("no retry of Describe", _no_retry("Describe"), 1, "one-failed-call"),
    ("no retry of a lost answer of Create", _no_retry_of_lost_answers, 1, "one-failed-call"),
    ("a name in use is an error", _name_in_use_is_an_error, 1, "one-failed-call"),
    ("an error without a name", _error_without_a_name, 0, "lost-cause"),
)


@pytest.mark.parametrize(
    ("change", "faults", "property"),
    # A second of a processor with a fault, and more.
    [pytest.param(*one[1:], id=one[0], marks=[pytest.mark.soak] * (one[2] > 0)) for one in MUTANTS],
)
def test_a_mutant_breaks_a_property(change: Callable[[dict[str, Any]], None], faults: int, property: str) -> None:
    mutant = guarded()
    change(mutant)
    assert property in broken(proof_of(mutant, faults)) - broken(proof_of(guarded(), faults))


def test_each_fact_of_the_model_has_a_source_and_a_name_of_its_own() -> None:
    assert all(one.source and one.text for one in FACTS)
    assert len({one.name for one in FACTS}) == len(FACTS)


@pytest.mark.parametrize(("status", "outlives"), [("InProgress", True), ("Completed", False)])
def test_an_execution_that_was_started_outlives_another_only_with_a_job_that_runs(status: str, outlives: bool) -> None:
    waiting = start({"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": 1, "End": True}}}, {}, {})
    first = Run("first", "Machine", "workflow", step(waiting, Ended("ABORTED")))
    world = World((first, Run("child-1", "Machine", "child", waiting)), (Job("a-job", status, "child-1", (), "[]"),))
    assert ("outlives" in broken_by(world)) is outlives


def test_the_page_has_every_fact_and_every_property() -> None:
    facts = "\n".join(
        [
            "| what may happen | of | in words | as a fault | source |",
            "|---|---|---|---|---|",
            *(
                f"| {one.name} | {one.service} | {one.text} | {'counts' if one.fault else 'always possible'} | {one.source} |"
                for one in FACTS
            ),
        ]
    )
    assert part(PAGE, "facts", facts) == facts
    properties = "\n".join(
        ["| property | which says |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in PROPERTIES.items())]
    )
    assert part(PAGE, "properties", properties) == properties


def test_the_command_exits_with_1_and_names_what_is_broken(tmp_path: Path) -> None:
    file = tmp_path / "Stack.template.json"
    file.write_text(json.dumps(template(guarded())))
    result = CliRunner().invoke(app, ["prove", str(tmp_path), "--faults", "0"])
    assert (result.exit_code, "every property holds" in result.output) == (0, True)
    result = CliRunner().invoke(app, ["prove", str(tmp_path)])
    assert (result.exit_code, "left-running, stopped-well" in result.output) == (1, True)


def test_a_search_that_ends_at_its_bound_says_so() -> None:
    [proof] = prove(template(guarded()), most_states=10)
    assert (proof.complete, proof.states) == (False, 10 + 10)  # of the search without and with a deletion


@pytest.mark.parametrize(
    ("machines", "message"),
    [
        ({}, "the app must have a state machine that starts training jobs; its state machines: none"),
        ({"A": {"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}}, "its state machines: A"),
        ({"A": {"StartAt": "B", "States": {"A": {"Type": "Succeed"}}}}, "A: StartAt must name one of States, got 'B'"),
    ],
)
def test_an_app_without_such_machines_is_refused(machines: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        prove(template({"machines": machines}))


def test_a_proof_of_executions_that_start_no_job_is_refused() -> None:
    parts = guarded()
    states(parts)["Create"]["Parameters"] = {"TrainingJobName.$": "$.Missing"}
    with pytest.raises(
        UnsupportedError, match=r"an execution of Machine must start a job .* States.Runtime: the JSONPath"
    ):
        prove(template(parts))


def test_a_call_that_the_model_does_not_know_is_refused_by_name() -> None:
    parts = guarded()
    states(parts)["Stop"]["Resource"] = "arn:aws:states:::lambda:invoke"
    with pytest.raises(
        UnsupportedError, match=r"Machine: the state 'Stop' must make a call .*got 'arn:aws:states:::lambda:invoke'"
    ):
        prove(template(parts))


def test_a_story_of_a_deletion_is_replayed_by_the_cdks_command() -> None:
    parts = guarded()
    parts["deletion"] = {"TaggedJobNamePrefix": "another"}
    [found] = [one for one in proof_of(parts, 0).violations if one.property == "left-by-deletion"]
    assert [line for line in commands(found) if not line.startswith("#")] == [
        "training-jobs start  # the state machine, where there are several",
        "cdk destroy --force",
    ]


def test_every_property_has_a_text_that_docs_and_stories_use() -> None:
    assert {one[3] for one in MUTANTS} <= PROPERTIES.keys()


def test_a_proof_has_the_most_instance_hours_that_an_execution_can_be_billed_for() -> None:
    parts = guarded()
    request = states(parts)["Create"]["Parameters"]
    request["ResourceConfig"] = {"InstanceGroups": [{"InstanceCount": 2}, {"InstanceCount": 3}]}
    request["StoppingCondition"] = {"MaxRuntimeInSeconds": 7_200}
    assert proof_of(parts).instance_hours == 10
    request["ResourceConfig"] = {"InstanceCount": 4}
    del request["StoppingCondition"]  # a day
    assert proof_of(parts).instance_hours == 96
    request["ResourceConfig"] = {}
    assert proof_of(parts).instance_hours is None


@pytest.mark.parametrize(
    ("place", "shared"),
    [
        ({"S3Uri": "s3://bucket/checkpoints/"}, True),
        ({"S3Uri.$": "States.Format('s3://bucket/{}/', $$.Execution.Name)"}, False),
    ],
)
def test_two_executions_of_one_machine_that_write_to_one_place_are_found(place: dict[str, str], shared: bool) -> None:
    parts = guarded()
    states(parts)["Create"]["Parameters"]["CheckpointConfig"] = place
    assert ("shared-place" in broken(proof_of(parts, faults=0))) is shared


def test_two_machines_whose_executions_of_one_name_write_to_one_place_are_found() -> None:
    parts = guarded()
    place = {"S3Uri.$": "States.Format('s3://bucket/{}/', $$.Execution.Name)"}
    states(parts)["Create"]["Parameters"]["CheckpointConfig"] = place
    parts["machines"]["Second"] = parts["machines"]["Machine"]
    _, second = prove(template(parts), faults=0, most_states=30_000)
    [found] = [one for one in second.violations if one.property == "shared-place"]
    assert found.story[0].text == (
        "an execution, and one of Machine with the same name, write their checkpoints to s3://bucket/workflow/"
    )


def test_a_proof_is_printed_as_json_with_the_places_of_checkpoints(tmp_path: Path) -> None:
    parts = guarded()
    states(parts)["Create"]["Parameters"]["CheckpointConfig"] = {"S3Uri": "s3://bucket/checkpoints/"}
    (tmp_path / "one.template.json").write_text(json.dumps(template(parts)))
    result = CliRunner().invoke(app, ["prove", str(tmp_path), "--faults", "0", "--json"])
    [proof] = json.loads(result.output)
    assert (proof["checkpoints"], proof["jobs"]) == (["s3://bucket/checkpoints/"], 1)
    assert [one["property"] for one in proof["violations"]] == ["shared-place"]
