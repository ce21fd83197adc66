"""The attempts of one job as a graph of states with seams, at which features put theirs; it knows none of them.

If `Create` fails, it is repeated unless the request is wrong, and then `Find` describes the job, because the response may have
been lost, the job itself may have failed, or the state may run again after a redrive. From there on all ways to create a job and
to wait for its end are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cdk_sagemaker_training.lifecycle.causes import SIGNS, Cause, Member
from cdk_sagemaker_training.lifecycle.polling import NOT_LOOKED, poll_state
from cdk_sagemaker_training.lifecycle.states import DATA, fail, job_name, put_event, redirected, status_is

if TYPE_CHECKING:
    from cdk_sagemaker_training.lifecycle.plan import Plan

_REFUSAL: tuple[Member, ...] = ("Error", "Message")
_FAILURE: tuple[Member, ...] = ("FailureReason",)
_STOP: tuple[Member, ...] = ("SecondaryStatus",)
# The metric of jobs that did not complete, those that are run again among them.
FAILED_ATTEMPTS = "FailedAttempts"
UNKNOWN = "unknown"  # the cause of a job whose FailureReason has the sign of none

End = Literal["Any", "Completed", "Failed", "Stopped"]


class Seam(StrEnum):
    """A place at which features put states; as ``Next`` it leads to what is there in the end."""

    CREATE = "<create>"  # the call that creates a job
    REFUSED = "<refused>"  # the call was refused, so that there is no job
    OVER = "<over>"  # a job has ended, and is described
    FAILED = "<failed>"
    COMPLETED = "<completed>"
    AGAIN = "<again>"  # a further attempt
    FROM_THE_FIRST = "<from the first>"  # a further attempt, by the first job and not an alternative


class Followed(NamedTuple):
    """How another attempt follows on a job that did not complete for a cause."""

    left: Mapping[str, Any]  # the condition that there is one left
    first: str  # what leads to the states that precede it


class Counted(NamedTuple):
    """A state before which a metric is counted, where jobs have metrics."""

    metric: str
    cause: str | None  # by which it is counted too
    id: str  # the name of the state that counts


class Attempt:
    """The states of one job's attempts.

    Attributes:
        plan: The workflow.
        requests: Requests of the job and of its alternatives, as they are sent.
        is_last: Whether no other job of the execution follows on it.
        states: All states, by name.
        begins: Members of the execution data with which each attempt begins.
        counted: The states before which a metric is counted, by what leads to them.
    """

    def __init__(self, plan: Plan, requests: Sequence[Mapping[str, Any]], suffix: str, *, is_last: bool) -> None:
        """Make the states that all attempts have.

        Args:
            plan: The workflow.
            requests: The rendered requests of the job and of its alternatives.
            suffix: The job's name suffix.
            is_last: Whether no other job of the execution follows on it.
        """
        self.plan, self.is_last, self._suffix = plan, is_last, suffix
        self.requests = [plan.as_sent(request) for request in requests]
        self._watched = any(feature.watch() for feature in plan.features)
        self.counted: dict[str, Counted] = {}
        self.begins: dict[str, Any] = {"Polled": NOT_LOOKED} if self._watched else {}
        self._data = {name: value for feature in plan.features for name, value in feature.data(plan).items()}
        self._kept = {f"{name}.$": f"{DATA}.{name}" for name in self._data}
        self._ends: dict[End, list[Mapping[str, Any]]] = defaultdict(list)
        self._followed: dict[Cause, list[Followed]] = defaultdict(list)
        self._repeated: dict[Cause, int] = {}
        self._heads: dict[str, str] = {}
        stopped = self.counts("Stopped", FAILED_ATTEMPTS, str(Cause.STOPPED))
        self._heads |= {
            Seam.CREATE: "Create",
            Seam.REFUSED: "Stop",
            Seam.OVER: "HowItEnded",
            Seam.FAILED: self.counts("Failed", FAILED_ATTEMPTS, UNKNOWN),
            Seam.COMPLETED: "Completed",
            Seam.AGAIN: "NextAttempt",
            Seam.FROM_THE_FIRST: Seam.AGAIN,
        }
        self._stopped = {**status_is("Stopped"), "Next": stopped}
        self._named = {
            cause: self.counts(f"Failed{cause.state}", FAILED_ATTEMPTS, str(cause))
            for cause in (_causes(_FAILURE) if plan.by_cause else ())
        }
        self.states: dict[str, Any] = {
            "Completed": {"Type": "Pass", "InputPath": f"{DATA}.Job", "End": True},
            "Failed": fail(
                "TrainingJobFailed",
                "{}: unknown cause, not retried: {}" if plan.by_cause else "{}: {}",
                "Job.FailureReason",
            ),
            "Stopped": fail("TrainingJobStopped", "{}: {}", "Job.SecondaryStatus"),
            "Error": {"Type": "Fail", "ErrorPath": f"{DATA}.Error.Error", "CausePath": f"{DATA}.Error.Cause"},
        }

    @property
    def partition(self) -> str:
        """Partition of ARNs."""
        return self.plan.jobs.partition

    def starts(self, seam: Seam, name: str) -> None:
        """Set the state that is at a seam before any feature puts states there.

        Args:
            seam: The seam.
            name: The state.
        """
        self._heads[seam] = name

    def before(self, seam: str, first: str, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Put states in front of what is at a seam, to which the seam leads in them.

        Args:
            seam: A ``Seam``, or what ``counts`` returned.
            first: The first of the states.
            states: The states by name.
        """
        self.states |= redirected(dict(states), {seam: self._heads[seam]})
        self._heads[seam] = first

    def counts(self, name: str, metric: str, cause: str | None = None, id: str = "") -> str:
        """Return what leads to a state, by way of one that counts a metric where jobs have metrics.

        Args:
            name: The state's name.
            metric: The metric's name.
            cause: The cause by which it is counted too; None for none.
            id: The name of the state that counts. Default: `Count` and the name.
        """
        seam = f"<{name}>"
        self._heads[seam] = name
        self.counted[seam] = Counted(metric, cause, id or f"Count{name}")
        return seam

    def ends(self, status: End, rule: Mapping[str, Any]) -> None:
        """Add a rule of what follows on a job's end, before what follows otherwise.

        Args:
            status: The TrainingJobStatus of which it is; ``"Any"`` precedes those of all.
            rule: The rule of a Choice, with its condition of the status.
        """
        self._ends[status].append(rule)

    def follows(self, cause: Cause, left: Mapping[str, Any], first: str, times: int = 0) -> None:
        """Let another attempt follow on a job that did not complete for a cause.

        Args:
            cause: The cause.
            left: The condition that there is an attempt left.
            first: What leads to the states that precede the attempt.
            times: How often, as the cause of an execution's failure says it; 0 to say nothing.
        """
        self._followed[cause].append(Followed(left, first))
        self._repeated[cause] = times or self._repeated.get(cause, 0)

    def following(self, cause: Cause) -> Sequence[Followed]:
        """Return how other attempts follow on jobs that did not complete for a cause.

        Args:
            cause: The cause.
        """
        return self._followed[cause]

    def event(
        self, name: str, detail_type: str, detail: Mapping[str, Any], following: str, result: str | None = None
    ) -> str:
        """Put an event, where events are wanted, and return the state that does it, or else the one that follows.

        Args:
            name: The state's name.
            detail_type: The event's detail type.
            detail: What it says beside the execution, the job and the attempt.
            following: The state after it.
            result: JSONPath of the answer, or of the error. Default: members of the execution data that nothing reads.
        """
        if not self.plan.notifies:
            return following
        about = {
            "Execution.$": "$$.Execution.Id",
            "JobName.$": f"{DATA}.JobName",
            "Attempt.$": f"{DATA}.Attempt",
            **detail,
        }
        paths = (f"{DATA}.Told", f"{DATA}.NotTold") if result is None else (result, result)
        self.states[name] = put_event(self.partition, detail_type, about, following, *paths)
        return name

    def billed(self, following: str, of: str = "") -> dict[str, Any]:
        """Return the states of all features that account for a described job, the first of them first.

        Args:
            following: The state after them.
            of: What their names end with, where there are several.
        """
        states: dict[str, Any] = {}
        for feature in reversed(self.plan.features):
            states = {**feature.billed(next(iter(states), following), of), **states}
        return states

    def render(self) -> dict[str, Any]:
        """Return the states, with all transitions resolved."""
        self.plan.service.states(self)
        self._wait()
        for feature in self.plan.features:
            feature.states(self)
        if self.plan.by_cause:
            self._classify()
        self._decide()
        self.states["FirstAttempt"] = self._begin("1", {"Attempt": 1, **self._data})
        number = f"States.MathAdd({DATA}.Attempt, 1)"
        self.states["NextAttempt"] = self._begin(number, {"Attempt.$": number, **self._kept})
        return _reachable(redirected(self.states, {seam: self._resolved(seam) for seam in self._heads}))

    def _resolved(self, seam: str) -> str:
        name = self._heads[seam]
        return self._resolved(name) if name in self._heads else name

    def _begin(self, number: str, data: Mapping[str, Any]) -> dict[str, Any]:
        name = job_name(self.plan.jobs.prefix, number, self._suffix)
        members = {**data, "JobName.$": name, "Seconds": self.plan.limits.intervals.first}
        return {"Type": "Pass", "Parameters": {**members, **self.begins}, "ResultPath": DATA, "Next": Seam.CREATE}

    def _wait(self) -> None:
        """Add the states between two polls: an execution of the poller, or a wait."""
        plan, intervals = self.plan, self.plan.limits.intervals
        if plan.poller_arn is not None:
            job_id = plan.service.job_id
            self.states["Poll"] = poll_state(self.partition, plan.poller_arn, job_id, watched=self._watched)
            return
        members = {"Attempt.$": f"{DATA}.Attempt", "JobName.$": f"{DATA}.JobName", **self._kept}
        seconds = {"Seconds.$": f"States.MathAdd({DATA}.Seconds, {intervals.step})"}
        self.states["Wait"] = {"Type": "Wait", "SecondsPath": f"{DATA}.Seconds", "Next": "Describe"}
        self.states["WaitLonger"] = {
            "Type": "Pass", "Parameters": {**members, **seconds}, "ResultPath": DATA, "Next": "Wait"}  # fmt: skip

    def _decide(self) -> None:
        """Add the Choices that follow on a description of the job."""
        decision = [
            *self._ends["Any"],
            {**status_is("Completed"), "Next": Seam.COMPLETED},
            *self._ends["Failed"],
            {**status_is("Failed"), "Next": Seam.FAILED},
            *self._ends["Stopped"],
            *self._rules(_STOP, status_is("Stopped")),
            self._stopped,
        ]
        choices: list[Mapping[str, Any]] = decision
        if self._heads[Seam.OVER] != "HowItEnded":
            self.states["HowItEnded"] = {"Type": "Choice", "Choices": decision, "Default": self._stopped["Next"]}
            over = [status_is(status) for status in ("Completed", "Failed", "Stopped")]
            choices = [{"Or": over, "Next": Seam.OVER}]
        if "Poll" not in self.states:
            last = self.plan.limits.intervals.last
            choices = [*choices, {"Variable": f"{DATA}.Seconds", "NumericLessThan": last, "Next": "WaitLonger"}]
        self.states["IsOver"] = {
            "Type": "Choice", "Choices": choices, "Default": self.plan.wait_state}  # fmt: skip

    def _classify(self) -> None:
        """Add the Choices that distinguish causes, and the states that name them."""
        if refusals := list(self._rules(_REFUSAL)):
            if self._followed[Cause.QUOTA]:  # whose error has the same name; the message tells them apart
                refusals.insert(0, {**self._sign(Cause.NOT_AVAILABLE, _REFUSAL), "Next": Seam.REFUSED})
            why = {"Type": "Choice", "Choices": refusals, "Default": Seam.REFUSED}
            self.before(Seam.REFUSED, "WhyRefused", {"WhyRefused": why})
        failures: list[Mapping[str, Any]] = []
        for cause, seam in self._named.items():
            failures += [*self._rules_of(cause, _FAILURE), {**self._sign(cause, _FAILURE), "Next": seam}]
            times = self._repeated.get(cause, 0)
            after = f"after {times} {'retry' if times == 1 else 'retries'}" if times else "not retried"
            self.states[f"Failed{cause.state}"] = fail(
                "TrainingJobFailed", f"{{}}: {cause}, {after}: {{}}", "Job.FailureReason"
            )
        why = {"Type": "Choice", "Choices": failures, "Default": Seam.FAILED}
        self.before(Seam.FAILED, "WhyFailed", {"WhyFailed": why})

    def _rules(self, places: Sequence[Member], *conditions: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the rules by which other attempts follow, in the order of the table of signs."""
        for cause in _causes(places):
            yield from self._rules_of(cause, places, *conditions)

    def _rules_of(
        self, cause: Cause, places: Sequence[Member], *conditions: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        for followed in self._followed[cause]:
            yield {"And": [*conditions, self._sign(cause, places), followed.left], "Next": followed.first}

    def _sign(self, cause: Cause, places: Sequence[Member]) -> dict[str, Any]:
        """The condition that a sign of a cause holds."""
        paths = {
            "Error": f"{DATA}.Error.Error",
            "Message": f"{DATA}.Error.Cause",
            "FailureReason": f"{DATA}.Job.FailureReason",
            "SecondaryStatus": f"{DATA}.Job.SecondaryStatus",
        }
        prefix = self.plan.service.error_prefix
        conditions = [
            {
                "Variable": paths[sign.member],
                "StringMatches" if "*" in sign.pattern else "StringEquals": (
                    sign.pattern.replace("SageMaker.", prefix) if sign.member == "Error" else sign.pattern
                ),
            }
            for sign in SIGNS
            if sign.cause is cause and sign.member in places
        ]
        return conditions[0] if len(conditions) == 1 else {"Or": conditions}


def _causes(places: Sequence[Member]) -> list[Cause]:
    """The causes that have a sign in one of some places, in the order of the table."""
    return list(dict.fromkeys(sign.cause for sign in SIGNS if sign.member in places))


def _reachable(states: Mapping[str, Any]) -> dict[str, Any]:
    """The states to which those of the first attempt lead, in their order."""
    found, left = set[str](), ["FirstAttempt"]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _following(states[name])
    return {name: state for name, state in states.items() if name in found}


def _following(value: Any) -> Iterator[str]:
    """The names of the states to which a state, or a rule or catcher of it, leads."""
    if isinstance(value, list):
        for item in value:
            yield from _following(item)
    elif isinstance(value, Mapping):
        yield from (value[key] for key in ("Next", "Default") if key in value)
        yield from _following([value.get("Choices", []), value.get("Catch", [])])
