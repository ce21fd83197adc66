"""Other machines, and other values of a job on them, for when AWS has no capacity of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.instance_facts import instance_facts, processor
from cdk_sagemaker_training.jobs.hyperparameters import encode_hyperparameter
from cdk_sagemaker_training.jobs.kinds import JobRequest, TrainingJob
from cdk_sagemaker_training.lifecycle.attempt import FAILED_ATTEMPTS, Attempt, Seam
from cdk_sagemaker_training.lifecycle.causes import Cause
from cdk_sagemaker_training.lifecycle.feature import Feature
from cdk_sagemaker_training.lifecycle.states import DATA, RETRIED, create_name
from cdk_sagemaker_training.props.prop import VALUES_IN_INPUT, Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields
from cdk_sagemaker_training.request.machine import instance_types
from cdk_sagemaker_training.resources.image_advice import accelerator_of

if TYPE_CHECKING:
    from cdk_sagemaker_training.lifecycle.plan import Plan
    from cdk_sagemaker_training.lifecycle.time_limits import Runs
    from cdk_sagemaker_training.request.props import TrainingProps
    from cdk_sagemaker_training.resources.image import TrainingImage

MOST_ALTERNATIVES = 10
_TURN = f"{DATA}.Turn"


@kind("Alternative(DataParallelJob(InstanceGroup('ml.p4d.24xlarge')))")
@dataclass(frozen=True)
class Alternative(Value):
    """A job that runs when AWS has no capacity for the ones before it, with what differs on its machines.

    Args:
        job: The kind of job and its machines, with degrees of its own where it has some.
        hyperparameters: Hyperparameters in place of, and beside, those of the workflow, such as the batch size.
        environment: Environment variables in place of, and beside, those of the workflow.
        image: The image; needed where the machines have other accelerators or processors. None for that of the workflow.

    Raises:
        ValueError: A hyperparameter has no JSON form.
    """

    job: TrainingJob
    hyperparameters: Annotated[
        Mapping[str, Any] | None, Prop(known=Known("execution", "as in hyperparameters"), example="{'epochs': 3}")
    ] = None
    environment: Annotated[Mapping[str, str] | None, Prop(known=VALUES_IN_INPUT, example="{'NCCL_DEBUG': 'INFO'}")] = (
        None
    )
    image: TrainingImage | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name, value in (self.hyperparameters or {}).items():
            encode_hyperparameter(name, value)

    def _props(self, of_workflow: TrainingProps) -> TrainingProps:
        """Return the props of the job."""
        props: dict[str, Any] = {**of_workflow, "job": self.job, "image": self.image or of_workflow["image"]}
        for name, values in (("hyperparameters", self.hyperparameters), ("environment", self.environment)):
            if values:
                props[name] = {**(props.get(name) or {}), **values}
        return cast("TrainingProps", props)


def _check_image(
    number: int, replaced: TrainingProps, request: JobRequest, props: TrainingProps, first: JobRequest
) -> None:
    """Check that the machines of an alternative can run its image."""
    machines, before = instance_types(request), instance_types(first)
    accelerators, base = _accelerators(machines), replaced["image"].base
    needs = set(map(processor, machines)), accelerators
    fits = (
        base is None or is_unresolved(base) or not accelerators or accelerator_of(base) in {None, "cpu", *accelerators}
    )
    got = "" if fits else repr(base)
    if replaced["image"] is props["image"] and needs != (set(map(processor, before)), _accelerators(before)):
        got = f"the image of {', '.join(before)}"
    if got:
        raise must(
            f"alternatives[{number}].image",
            f"be an image for the processors and accelerators of {', '.join(machines)}",
            "TrainingImage.from_dlc(...) of such a tag",
            got,
        )


def _accelerators(machines: Sequence[str]) -> set[str]:
    facts = [instance_facts(name) for name in machines]
    return {fact.kind for fact in facts if fact is not None and fact.kind is not None}


class Alternatives(Feature):
    """Tries one job after the other where there is no capacity: `WhichJob` leads to the call of the job in `$.Training.Turn`."""

    prop = "alternatives"
    by_cause = True
    not_queued = "AWS Batch itself waits for capacity"

    def __init__(self, alternatives: Sequence[TrainingJob | Alternative]) -> None:
        """Remember the prop ``alternatives``, at least one."""
        self.value = alternatives

    def __repr__(self) -> str:
        """The prop."""
        return repr(list(self.value))

    def alternatives(self, props: TrainingProps) -> Sequence[TrainingProps]:
        """Return the props of each, which are those of the workflow with what it changes."""
        if len(self.value) > MOST_ALTERNATIVES:
            rule, example = f"be at most {MOST_ALTERNATIVES}", "[Alternative(DataParallelJob(...))]"
            raise must("alternatives", rule, example, f"{len(self.value)}")
        given = [other if isinstance(other, Alternative) else Alternative(other) for other in self.value]
        found = [alternative._props(props) for alternative in given]
        for number, replaced in enumerate(found):
            first, other = props["job"].requests(), replaced["job"].requests()
            if len(first) > 1 or len(other) > 1:
                raise must(
                    "alternatives",
                    "be of jobs that make one request, and beside one",
                    "DataParallelJob(InstanceGroup('ml.p4d.24xlarge'))",
                    f"{len(other)} of alternatives[{number}] beside {len(first)}",
                )
            _check_image(number, replaced, other[0], props, first[0])
        return found

    def events(self) -> Mapping[str, str]:
        """Return that of a job that is run again."""
        return {"Retries": RETRIED}

    def check(self, plan: Plan) -> None:
        """Check that no job is tried twice."""
        requests = plan.all_requests
        for number, request in enumerate(requests[1:]):
            if request in requests[: number + 1]:
                same = "job" if request == requests[0] else f"alternatives[{requests.index(request) - 1}]"
                rule, example = "differ from the jobs before it", "another instance type"
                raise must(f"alternatives[{number}]", rule, example, f"one equal to {same}")

    def runs(self, runs: Runs) -> None:
        """Add them to each round."""
        runs.jobs_in_a_round += len(self.value)

    def data(self, plan: Plan) -> Mapping[str, Any]:
        """Return whose turn it is: 0 for the first job, 1 for the first alternative."""
        return {"Turn": {"Job": 0}}

    def states(self, attempt: Attempt) -> None:
        """Put `WhichJob` before the call, and `NextJob` after a job without capacity."""
        number, job = len(self.value), f"{_TURN}.Job"
        which = {
            "Type": "Choice",
            "Choices": [
                {"Variable": job, "NumericEquals": turn, "Next": create_name(turn)} for turn in range(1, number + 1)
            ],
            "Default": Seam.CREATE,
        }
        attempt.before(Seam.CREATE, "WhichJob", {"WhichJob": which})
        first = {"Type": "Pass", "Parameters": {"Job": 0}, "ResultPath": _TURN, "Next": Seam.FROM_THE_FIRST}
        attempt.before(Seam.FROM_THE_FIRST, "FirstJob", {"FirstJob": first})
        following = {"Job.$": f"States.MathAdd({job}, 1)"}
        attempt.states["NextJob"] = {
            "Type": "Pass", "Parameters": following, "ResultPath": _TURN, "Next": Seam.AGAIN}  # fmt: skip
        detail = {"Cause": str(Cause.CAPACITY), "WaitSeconds": 0}
        name = attempt.event("TellNextJob", RETRIED, detail, "NextJob")
        attempt.follows(
            Cause.CAPACITY,
            {"Variable": job, "NumericLessThan": number},
            attempt.counts(name, FAILED_ATTEMPTS, str(Cause.CAPACITY)),
        )
