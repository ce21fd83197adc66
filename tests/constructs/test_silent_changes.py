"""What is said reaches the request as it was said, or is refused: nothing vanishes, and nothing becomes another value."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
import pytest
from member_cases import Stack
from stacks import message_of, reads

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_runtime": 0}, "max_runtime must be a Duration or whole seconds, at least 1 ... got 0"),
    (
        {"max_runtime": cdk.Duration.seconds(0)},
        "max_runtime must be a Duration or whole seconds, at least 1 ... got 0 seconds",
    ),
    (
        {"max_runtime": cdk.Duration.millis(1500)},
        "max_runtime must be a Duration or whole seconds, at least 1 ... got 1.5 seconds",
    ),
    ({"timeout": cdk.Duration.millis(2500)}, "timeout must be a Duration or whole seconds, at least 1"),
    ({"volume_size": cdk.Size.gibibytes(1.5)}, "volume_size must be whole GiB ... got 1.5 GiB"),
    (
        {"volume_size": cdk.Size.mebibytes(1500)},
        "volume_size must be whole GiB ... got 1.46484 GiB",
    ),
    (
        {"tags": {"StepFunctionsExecution": "mine"}},
        "tags must not contain 'StepFunctionsExecution', by which this library identifies a job's execution "
        "... got 'mine'",
    ),
    (
        {"tags": {f"t{n}": "" for n in range(50)}},
        "tags must be at most 49, since SageMaker allows 50 and 'StepFunctionsExecution' is one of them ... got 50",
    ),
]


@pytest.fixture(scope="module")
def stack() -> Stack:
    return Stack()


@pytest.mark.parametrize(("props", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_the_request_cannot_hold_as_it_was_said_is_refused(
    props: dict[str, Any], message: str, stack: Stack
) -> None:
    refused = f"Refused{REFUSED.index((props, message))}"
    assert reads(message_of(lambda: stack.workflow(refused, **props)), f"{message} ... ")


def test_what_is_said_of_a_job_is_in_its_request() -> None:
    stack = Stack()
    stack.workflow(
        "Training",
        tags={f"t{n}": "" for n in range(49)},
        hyperparameters={"nothing": [None], "lines": "a\nb", "empty": "", "zero": 0, "off": False, "none": []},
        environment={"EMPTY": ""},
        max_runtime=60,
    )
    request = stack.request()
    assert len(request["Tags"]) == 50
    assert request["HyperParameters"] == {
        "nothing": "[null]",
        "lines": '"a\\nb"',
        "empty": "",
        "zero": "0",
        "off": "false",
        "none": "[]",
    }
    assert request["Environment"]["EMPTY"] == ""
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 60}
