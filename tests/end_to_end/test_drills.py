"""Drills of single faults through deployed state machines, with permissions enforced, for `make soak`."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from counting import BY_A_PERSON, LOST_ANSWERS, OTHER_TYPE, TYPE, Counted, Plan, model
from deployed import wait_until

from sagemaker_local_account.faults import Capacity, Fault, Interruption, Throttling

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("faster", "no_job_left")]

# What one execution meets that enters most of the states.
MUCH = {1: {"quota": 1, "lost answer": 1}, 2: {"server error": 8}}
INTERRUPTIONS = 10


def entered(counted: Counted, execution: str) -> list[str]:
    """The names of the states that an execution has entered."""
    pages = counted.states.get_paginator("get_execution_history").paginate(executionArn=execution)
    events = [event for page in pages for event in page["events"]]
    return [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]


@pytest.mark.parametrize("workflow", ["Sync", "Poll", "Watched"])
def test_an_execution_that_is_stopped_in_any_state_leaves_no_job_running(workflow: str, counted: Counted) -> None:
    def plan(name: str) -> Plan:
        return Plan(workflow, name, attempts=["capacity", "lost host"], others=MUCH)

    whole = counted.start(plan("whole"))
    assert counted.deployed.ended(whole.execution)["status"] == "SUCCEEDED"
    states = list(dict.fromkeys(entered(counted, whole.execution)))
    assert {"Create", "Find", "RetryQuota", "RetryCapacity", "WaitAfterServiceError", "RetryHostLost"} <= set(states)

    def stopped_in(state: str) -> str:
        run = counted.start(plan(f"in-{state}"))
        wait_until(lambda: state in entered(counted, run.execution))
        counted.states.stop_execution(executionArn=run.execution)
        return str(counted.deployed.ended(run.execution)["status"])

    with ThreadPoolExecutor(4) as threads:
        ends = dict(zip(states, threads.map(stopped_in, states), strict=True))
    wait_until(lambda: not counted.running())
    assert {state for state, end in ends.items() if end != "ABORTED"} <= {"FindModel", "HasModel", "Completed"}


@pytest.mark.parametrize("answer", LOST_ANSWERS)
@pytest.mark.parametrize("workflow", ["Sync", "Poll", "Watched"])
def test_an_execution_that_loses_the_answer_of_create_goes_on_with_the_one_job(
    workflow: str, answer: str, counted: Counted
) -> None:
    run = counted.start(Plan(workflow, answer.replace(" ", "-"), others={1: {answer: 1}}))
    ended = counted.deployed.ended(run.execution)
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    [listed] = [one["TrainingJobName"] for one in counted.listed() if run.digest in one["TrainingJobName"]]
    assert json.loads(ended["output"])["TrainingJobName"] == listed
    # The call is repeated with the same name, and rejected since the job is there; then the job is described.
    assert counted.broken.calls[f"{run.digest}-1"] == 2
    assert "Find" in entered(counted, run.execution)
    assert counted.model_of(counted.jobs(run)[0]) == model(run.plan.steps)


@pytest.mark.parametrize("workflow", ["Sync", "Poll"])
def test_a_job_that_could_not_be_stopped_for_an_hour_sets_the_stoppers_alarm_off(
    workflow: str, counted: Counted
) -> None:
    fault = counted.account.faults.add(Throttling("StopTrainingJob", times=None))
    run = counted.start(Plan(workflow, "not-stopped", BY_A_PERSON[1]))
    wait_until(lambda: [job["SecondaryStatus"] for job in counted.jobs(run)] == ["Training"])
    counted.states.stop_execution(executionArn=run.execution)
    alarm = counted.outputs[f"{workflow}Alarm"]

    machine = counted.outputs[f"{workflow}StopperArn"]

    def failed() -> list[str]:
        stoppers = counted.states.list_executions(stateMachineArn=machine, statusFilter="FAILED")["executions"]
        ended = [counted.states.describe_execution(executionArn=one["executionArn"]) for one in stoppers]
        return [one["error"] for one in ended if run.execution in one["input"]]

    def alarmed() -> bool:
        counted.account.clock.advance(60)
        [described] = counted.deployed.client("cloudwatch").describe_alarms(AlarmNames=[alarm])["MetricAlarms"]
        # The stopper is the stack's, so that the alarm may be another execution's.
        return bool(described["StateValue"] == "ALARM" and failed())

    wait_until(alarmed)
    assert failed() == ["TrainingJobMayStillRun"]
    # As the alarm says, the job may still run; then a person stops it.
    [job] = counted.jobs(run)
    assert job["TrainingJobStatus"] == "InProgress"
    counted.account.faults.mend(fault)
    counted.deployed.client("sagemaker").stop_training_job(TrainingJobName=job["TrainingJobName"])
    counted.wait_for_jobs(run)


@pytest.mark.parametrize("workflow", ["SpotSync", "SpotPoll"])
def test_ten_seeded_interruptions_end_in_the_loss_of_the_run_that_nothing_interrupts(
    workflow: str, counted: Counted
) -> None:
    steps = sorted(random.Random(workflow).sample(range(1, 100), INTERRUPTIONS))
    faults: dict[str, Fault] = {f"step {step}": Interruption(f"step {step} ", away=1) for step in steps}
    plan = Plan(workflow, "interrupted", steps=100, failure=f"after {' '.join(map(str, steps))}")
    run = counted.start(plan, **faults)
    ended = counted.deployed.ended(run.execution)
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    [job] = counted.jobs(run)
    statuses = [transition["Status"] for transition in job["SecondaryStatusTransitions"]]
    assert statuses.count("Interrupted") == INTERRUPTIONS
    assert counted.model_of(job) == model(100)


@pytest.mark.parametrize("loss", ["2.5", "nan"])
def test_a_job_whose_loss_is_flat_or_no_number_is_stopped(loss: str, counted: Counted) -> None:
    run = counted.start(Plan("Watched", f"loss-{loss}", failure=f"loss={loss}"))
    ended = counted.deployed.ended(run.execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobStopped")
    assert ended["cause"].endswith(": stopped, since loss has not improved for 600 seconds")
    assert [job["SecondaryStatus"] for job in counted.jobs(run)] == ["Stopped"]


def test_a_job_on_several_types_runs_on_the_second_where_the_first_has_no_capacity(counted: Counted) -> None:
    run = counted.start(Plan("Preferring", "second-type"), capacity=Capacity(TYPE, times=None))
    ended = counted.deployed.ended(run.execution)
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    [job] = counted.jobs(run)
    assert job["ResourceConfig"]["SelectedInstanceType"] == OTHER_TYPE
    assert not [state for state in entered(counted, run.execution) if state.startswith("Retry")]
