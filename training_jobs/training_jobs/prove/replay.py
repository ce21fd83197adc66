"""The commands that replay a story in the local account, so that nobody has to believe the model."""

from __future__ import annotations

from training_jobs.prove.explorer import Step, Violation
from training_jobs.prove.facts import FACTS

_TIMES = {"throttled": 1, "outage": 12}  # more tries than the longest retrier of a read that can stop a job
_DEPLOYMENTS = {"stack deleted": "cdk destroy --force", "stack updated": "cdk deploy --require-approval never"}
_NO_FAULT = "# the local account has no fault for this step"
_FAULTS = {fact.name for fact in FACTS if fact.fault}


def commands(violation: Violation) -> list[str]:
    """A line a step: a comment that says what happens, or a command before it.

    Faults come before the execution is started, since each meets the first call of its kind that a state machine makes.

    Args:
        violation: What to replay.
    """
    lines = [f"# {violation.property} of {violation.machine}"]
    lines += [fault for step in violation.story if (fault := _fault(step, violation.name))]
    lines.append("training-jobs start  # the state machine, where there are several")
    for at, step in enumerate(violation.story, 1):
        lines.append(f"# {at}. {step.text}")
        if "a person stops" in step.text:
            lines.append('aws stepfunctions stop-execution --execution-arn "$EXECUTION"')
        elif step.fact in _DEPLOYMENTS:
            lines.append(_DEPLOYMENTS[step.fact])
        elif step.fact in _FAULTS and not _fault(step, violation.name):
            lines.append(_NO_FAULT)
    return lines


def _fault(step: Step, machine: str) -> str:
    """The command that injects the fault of a step; empty where it has none."""
    operation = step.api[:1].upper() + step.api[1:]
    of_states = "--caller assumed-role"  # and not of whoever replays the story
    if step.fact in _TIMES:
        return f"local-account break throttling {operation} --times {_TIMES[step.fact]} {of_states}"
    if step.fact == "lost answer":
        return f"local-account break lost-answer {operation} {of_states}"
    if step.fact == "lost event":
        return f"local-account break lost-event --machine {machine}"
    return "local-account break not-cancelled" if step.fact == "not cancelled" else ""
