"""The states that run a job again, or name the cause for which it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdk_sagemaker_training.workflow.alternatives import AlternativeStates
from cdk_sagemaker_training.workflow.causes import SIGNS, Cause, Member
from cdk_sagemaker_training.workflow.notifying import RETRIED, put_event
from cdk_sagemaker_training.workflow.redirection import redirected
from cdk_sagemaker_training.workflow.retry_policy import REFUSALS, Retry
from cdk_sagemaker_training.workflow.watching import SILENT

_REFUSAL: tuple[Member, ...] = ("Error", "Message")


class RetryStates:
    """The states that follow on a refused CreateTrainingJob, a failed and a stopped job.

    A retried cause has a counter and its waits in the workflow's own data. ``Retry<Cause>`` counts, ``WaitAfter<Cause>`` waits,
    and a state ``Failed<Cause>`` names the cause of a job that is not run again.
    """

    def __init__(
        self,
        retries: Mapping[Cause, Retry],
        alternatives: AlternativeStates,
        own: str,
        event_partition: str | None = None,
        *,
        service: str = "SageMaker",
    ) -> None:
        """Prepare the states.

        Args:
            retries: Retries by cause.
            alternatives: The states that try one job after the other.
            own: JSONPath of the workflow's own data.
            event_partition: Partition of the event bus that receives an event for each retry; None for none.
            service: How the names of errors begin with which a job is refused.
        """
        self._alternatives, self._event_partition, self._service = alternatives, event_partition, service
        self._waits = {cause: retry.waits() for cause, retry in retries.items()}
        self._own = own

    def first(self) -> dict[str, Any]:
        """Return the member of the workflow's own data with which an execution begins."""
        return {
            "Retries": {_name(cause): {"Retries": 0, "Waits": waits, "Wait": 0} for cause, waits in self._waits.items()}
        }

    def kept(self) -> dict[str, Any]:
        """Return the member with which another state keeps the counters."""
        return {"Retries.$": f"{self._own}.Retries"}

    def after_stop(self, stopped: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rules of a Choice for jobs that were stopped and are run again.

        Args:
            stopped: The condition that the job was stopped.
        """
        return [
            {
                "And": [stopped, self._sign(cause, ("SecondaryStatus",)), self._left(cause)],
                "Next": f"Retry{_name(cause)}",
            }
            for cause in _causes(("SecondaryStatus",))
            if cause in self._waits
        ]

    def after_silence(self, stopped: Sequence[Mapping[str, Any]], because: str) -> list[dict[str, Any]]:
        """Return the rules of a Choice for jobs that a rule stopped and that are run again.

        Args:
            stopped: The conditions that a rule stopped the job.
            because: JSONPath of what it was stopped for.
        """
        if Cause.SILENT not in self._waits:
            return []
        silent = {"Variable": because, "StringMatches": f"{SILENT}*"}
        return [{"And": [*stopped, silent, self._left(Cause.SILENT)], "Next": f"Retry{_name(Cause.SILENT)}"}]

    def states(self) -> dict[str, Any]:
        """Return the states from `WhyRefused` and `WhyFailed` on."""
        states: dict[str, Any] = {
            "WhyRefused": {
                "Type": "Choice",
                "Choices": [rule for cause in _causes(_REFUSAL) for rule in self._again(cause, _REFUSAL)],
                "Default": "Stop",
            },
            "WhyFailed": {
                "Type": "Choice",
                "Choices": [
                    rule
                    for cause in _causes(("FailureReason",))
                    for rule in (
                        *self._others(cause),
                        *self._again(cause, ("FailureReason",)),
                        {**self._sign(cause, ("FailureReason",)), "Next": f"Failed{_name(cause)}"},
                    )
                ],
                "Default": "Failed",
            },
            "Failed": self._failed("unknown cause, not retried"),
        }
        if not states["WhyRefused"]["Choices"]:  # a Choice has at least one rule
            del states["WhyRefused"]
        for cause in _causes(("FailureReason",)):
            number = len(self._waits.get(cause, ()))
            after = "not retried" if not number else f"after {number} {'retry' if number == 1 else 'retries'}"
            states[f"Failed{_name(cause)}"] = self._failed(f"{cause}, {after}")
        for cause, waits in self._waits.items():
            states |= self._retried(cause, waits)
        if self._event_partition and self._alternatives.number:
            detail = {**self._detail(Cause.CAPACITY), "WaitSeconds": 0}
            states["TellNextJob"] = put_event(self._event_partition, RETRIED, detail, self._own, "NextJob")
        return states

    def _detail(self, cause: Cause) -> dict[str, Any]:
        return {
            "Execution.$": "$$.Execution.Id",
            "JobName.$": f"{self._own}.JobName",
            "Attempt.$": f"{self._own}.Attempt",
            "Cause": str(cause),
        }

    @property
    def after_refusal(self) -> str:
        """The state that follows on a job that was not created and cannot be described."""
        return "WhyRefused" if any(cause in REFUSALS for cause in self._waits) else "Stop"

    def _others(self, cause: Cause) -> list[dict[str, Any]]:
        if cause is not Cause.CAPACITY:
            return []
        rules = self._alternatives.rules(self._sign(cause, ("FailureReason",)))
        return redirected(rules, {"NextJob": "TellNextJob"}) if self._event_partition else rules

    def _again(self, cause: Cause, members: tuple[Member, ...]) -> list[dict[str, Any]]:
        if cause not in self._waits:
            return []
        return [{"And": [self._sign(cause, members), self._left(cause)], "Next": f"Retry{_name(cause)}"}]

    def _left(self, cause: Cause) -> dict[str, Any]:
        return {"Variable": f"{self._counter(cause)}.Retries", "NumericLessThan": len(self._waits[cause])}

    def _counter(self, cause: Cause) -> str:
        return f"{self._own}.Retries.{_name(cause)}"

    def _sign(self, cause: Cause, members: tuple[Member, ...]) -> dict[str, Any]:
        """The condition that a sign of a cause holds."""
        places = {
            "Error": f"{self._own}.Error.Error",
            "Message": f"{self._own}.Error.Cause",
            "FailureReason": f"{self._own}.Job.FailureReason",
            "SecondaryStatus": f"{self._own}.Job.SecondaryStatus",
        }
        conditions = [
            {
                "Variable": places[sign.member],
                "StringMatches" if "*" in sign.pattern else "StringEquals": (
                    sign.pattern.replace("SageMaker.", f"{self._service}.") if sign.member == "Error" else sign.pattern
                ),
            }
            for sign in SIGNS
            if sign.cause is cause and sign.member in members
        ]
        return conditions[0] if len(conditions) == 1 else {"Or": conditions}

    def _retried(self, cause: Cause, waits: list[int]) -> dict[str, Any]:
        """The states that count a retry and wait."""
        following = self._alternatives.create if cause in REFUSALS else "NextAttempt"
        if cause is Cause.CAPACITY:
            following = self._alternatives.next_round
        wait = f"WaitAfter{_name(cause)}"
        counter = self._counter(cause)
        states: dict[str, Any] = {
            f"Retry{_name(cause)}": {
                "Type": "Pass",
                "Parameters": {
                    "Retries.$": f"States.MathAdd({counter}.Retries, 1)",
                    "Waits.$": f"{counter}.Waits",
                    "Wait.$": f"States.ArrayGetItem({counter}.Waits, {counter}.Retries)",
                },
                "ResultPath": counter,
                "Next": f"Tell{_name(cause)}" if self._event_partition else wait if any(waits) else following,
            }
        }
        if self._event_partition:
            detail = {**self._detail(cause), "WaitSeconds.$": f"{counter}.Wait"}
            states[f"Tell{_name(cause)}"] = put_event(
                self._event_partition, RETRIED, detail, self._own, wait if any(waits) else following
            )
        if any(waits):
            states[wait] = {"Type": "Wait", "SecondsPath": f"{counter}.Wait", "Next": following}
        return states

    def _failed(self, why: str) -> dict[str, Any]:
        return {
            "Type": "Fail",
            "Error": "TrainingJobFailed",
            "CausePath": f"States.Format('{{}}: {why}: {{}}', {self._own}.JobName, {self._own}.Job.FailureReason)",
        }


def _causes(members: tuple[Member, ...]) -> list[Cause]:
    """The causes that have a sign in one of some members, in the order of the table."""
    return list(dict.fromkeys(sign.cause for sign in SIGNS if sign.member in members))


def _name(cause: Cause) -> str:
    """A cause as part of a state's name, such as `OutOfMemory`."""
    return "".join(word.capitalize() for word in cause.split())
