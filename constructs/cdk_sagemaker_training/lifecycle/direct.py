"""Jobs that are created at once, by SageMaker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.lifecycle.attempt import Attempt, Seam
from cdk_sagemaker_training.lifecycle.job_set import JobSet
from cdk_sagemaker_training.lifecycle.plan import Call, Plan
from cdk_sagemaker_training.lifecycle.states import (
    DATA,
    OF_SAGEMAKER,
    catch,
    create_name,
    forbidden,
    no_such_job,
    retry,
    sdk_task,
)
from cdk_sagemaker_training.request.sync import check_sync_takes, sync_takes

Integration = Literal["sync", "poll"]
# A retrier knows a call's error by its name alone, which is one for throttling and for a request that breaks the service's model.
# Of the latter AWS says "1 validation error detected: Value '...' at '...' failed to satisfy constraint: ..."
# (aws-samples/aws-sagemaker-heart-disease-prediction 1, aws-samples/sagemaker-ml-workflow-with-apache-airflow 3). What else is
# refused may pass: roles and policies are known to all of AWS only after a while (IAM's guide, "Changes that I make are not
# always immediately visible").
_INVALID = {"Variable": f"{DATA}.Error.Cause", "StringMatches": "*validation error* detected:*"}
_UNNAMED = {"Or": [{"Variable": f"{DATA}.Error.Error", "StringEquals": name} for name in OF_SAGEMAKER]}
_LONGEST_WAIT = 16  # after 4 and 8 seconds
# Calls beyond SageMaker's rate are refused with "ThrottlingException ... Rate exceeded" (aws/sagemaker-python-sdk 645). Each is
# repeated after a random part of a time that doubles, for some four hours: at one job a second, 1,000 executions that start
# together have their jobs after 34 minutes (docs/many-jobs.md).
_THROTTLED = {"Variable": f"{DATA}.Error.Cause", "StringMatches": "*Rate exceeded*"}
_LONGEST_SPREAD = 512
_SPREAD_CALLS = 60
_SECONDS_TO_FIND = 60
_ON_JOBS = ("CreateTrainingJob", "DescribeTrainingJob", "StopTrainingJob", "AddTags")


class DirectJobs:
    """Jobs that executions create by CreateTrainingJob, and wait for by `.sync` or by polls; see ``JobService``."""

    error_prefix = "SageMaker."
    job_id = f"{DATA}.JobName"
    describe = Call("sagemaker:describeTrainingJob", {"TrainingJobName.$": "$.JobName"}, "TrainingJobStatus")
    ended: Sequence[str] = ("Completed", "Failed", "Stopped")
    errors: Sequence[str] = ()
    properties: Mapping[str, Any] = {}
    needs: Sequence[Any] = ()

    def __init__(
        self,
        integration: Integration | None,
        requests: Sequence[Mapping[str, Any]],
        props: Mapping[str, Any],
        *,
        watched: bool = False,
    ) -> None:
        """Choose the integration: what is given, if it takes the requests, or else ``"sync"`` where that is known to."""
        if watched and integration not in (None, "poll"):
            rule = "be 'poll' with stop_when, since `.sync` says nothing of a job until it ends"
            raise must("integration", rule, "integration='poll'", repr(integration))
        chosen = "poll" if watched else integration or ("sync" if all(map(sync_takes, requests)) else "poll")
        if chosen == "sync":
            for request in requests:
                check_sync_takes(request, "integration='poll'", props, integration)
        self.integration: Integration = chosen
        self.polls = chosen == "poll"
        self._requests = requests

    @property
    def waits_unbounded(self) -> bool:
        """Whether a job waits for the start of its training plan, which no limit counts."""
        return any(True for request in self._requests for _ in _plans(request["ResourceConfig"]))

    def states(self, attempt: Attempt) -> None:
        """Add `Create`, what repeats it, `Find`, `Describe` and `Stop`."""

        def called(
            operation: str, result: str, times: int, caught: Mapping[str, Any], following: str
        ) -> dict[str, Any]:
            name = {"TrainingJobName.$": f"{DATA}.JobName"}
            path = f"{DATA}.{result}"
            return sdk_task(attempt.partition, f"sagemaker:{operation}", name, path, retry(times), following, caught)

        missing, waited, calls = f"{DATA}.Missing", f"{DATA}.Repeated.Wait", f"{DATA}.Repeated.Calls"
        double = f"States.MathAdd({waited}, {waited})"
        count = f"States.MathAdd({calls}, 1)"
        attempt.begins["Repeated"] = {"Wait": 2, "Seconds": 0, "Calls": 1}
        attempt.states |= {
            **{create_name(number): self._create(attempt, request) for number, request in enumerate(attempt.requests)},
            "IsRefused": {
                "Type": "Choice",
                "Choices": [
                    {"And": [_UNNAMED, _INVALID], "Next": Seam.REFUSED},
                    {
                        "And": [_THROTTLED, {"Variable": waited, "NumericLessThan": _LONGEST_SPREAD}],
                        "Next": "SpreadLonger",
                    },
                    {"And": [_THROTTLED, {"Variable": calls, "NumericLessThan": _SPREAD_CALLS}], "Next": "Spread"},
                    {"And": [_UNNAMED, {"Variable": waited, "NumericLessThan": _LONGEST_WAIT}], "Next": "Repeat"},
                ],
                "Default": "Find",
            },
            "SpreadLonger": _repeated(double, f"States.MathRandom(1, {double})", count),
            "Spread": _repeated(waited, f"States.MathRandom(1, {waited})", count),
            "Repeat": _repeated(double, double, calls),
            "WaitToRepeat": {"Type": "Wait", "SecondsPath": f"{DATA}.Repeated.Seconds", "Next": Seam.CREATE},
            "Find": called("describeTrainingJob", "Job", 3, catch("IsMissing", missing), "IsOver"),
            # To look in vain is to know nothing: the job may run.
            "IsMissing": {
                "Type": "Choice",
                "Choices": [{"Or": [*no_such_job(missing)["Or"], forbidden(missing)], "Next": Seam.REFUSED}],
                "Default": "WaitToFind",
            },
            "WaitToFind": {"Type": "Wait", "Seconds": _SECONDS_TO_FIND, "Next": "Find"},
            "Describe": called("describeTrainingJob", "Job", 10, catch("NotDescribed"), "IsOver"),
            # An outage of any length costs the history no more than the polls in that time.
            "NotDescribed": {
                "Type": "Choice",
                "Choices": [
                    {**no_such_job(f"{DATA}.Error"), "Next": "Error"},
                    {**forbidden(f"{DATA}.Error"), "Next": "Stop"},
                ],
                "Default": attempt.plan.wait_state,
            },
            "Stop": called("stopTrainingJob", "Stopped", 3, catch("Error", f"{DATA}.Stopped"), "Error"),
        }

    def _create(self, attempt: Attempt, request: Mapping[str, Any]) -> dict[str, Any]:
        """The state that creates a job."""
        create = {
            "Type": "Task",
            "Resource": f"arn:{attempt.partition}:states:::aws-sdk:sagemaker:createTrainingJob",
            "Parameters": {**request, "Tags": attempt.plan.jobs.tags.listed(request["Tags"])},
            "ResultPath": f"{DATA}.Created",
            "Catch": [catch("IsRefused")],
            "Next": attempt.plan.wait_state,
        }
        if self.polls:
            return create
        resource = f"arn:{attempt.partition}:states:::sagemaker:createTrainingJob.sync"
        return {**create, "Resource": resource, "ResultPath": f"{DATA}.Job", "Next": "IsOver"}

    def arns(self, jobs: JobSet) -> list[str]:
        """Return the ARN patterns of the jobs."""
        return jobs.job_arns

    def statements(self, plan: Plan) -> Iterator[iam.PolicyStatement]:
        """Yield what creating, describing and stopping jobs needs."""
        return machine_policies(plan.jobs, plan.all_requests, sync=not self.polls)

    def polling_statement(self, jobs: JobSet, *, stops: bool) -> iam.PolicyStatement:
        """Return what describing jobs needs."""
        return jobs.job_policy("DescribeTrainingJob", *(["StopTrainingJob"] if stops else []))


def _repeated(wait: str, seconds: str, calls: str) -> dict[str, Any]:
    """The state before the wait after which a refused call is made again."""
    members = {"Wait.$": wait, "Seconds.$": seconds, "Calls.$": calls}
    return {"Type": "Pass", "Parameters": members, "ResultPath": f"{DATA}.Repeated", "Next": "WaitToRepeat"}


def machine_policies(
    jobs: JobSet, requests: Iterable[Mapping[str, Any]], *, sync: bool
) -> Iterator[iam.PolicyStatement]:
    """Yield the statements that allow a state machine to create, describe and stop jobs.

    `createTrainingJob.sync` also needs its EventBridge rule and ``sagemaker:ListTags`` ("IAM policies for Amazon SageMaker" in
    the guide of Step Functions, and CDK's ``SageMakerCreateTrainingJob``). Both sources grant ListTags on all resources; it
    supports jobs as a resource, so it is granted on the jobs.
    """
    yield jobs.job_policy(*_ON_JOBS, *(["ListTags"] if sync else []))
    if reserved := reserved_capacity(jobs.stack, requests):
        yield iam.PolicyStatement(actions=["sagemaker:CreateTrainingJob"], resources=reserved)
    yield jobs.pass_role_policy()
    if sync:
        yield jobs.sync_policy()


def reserved_capacity(stack: Stack, requests: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the ARNs of training plans and reserved capacity on which CreateTrainingJob must be allowed.

    The names of reserved capacity are random (AmazonSageMakerFullAccess, statement AllowUseOfTrainingPlanResources). A plan that
    comes from an execution's input may be any plan of the stack's account and region.
    """
    found: dict[str, None] = {}
    for request in requests:
        for plan in _plans(request["ResourceConfig"]):
            known = None if plan is None or is_unresolved(plan) else plan.partition(":training-plan/")[0]
            found[plan or _arn(stack, "training-plan")] = None
            found[f"{known}:reserved-capacity/*" if known else _arn(stack, "reserved-capacity")] = None
    return list(found)


def _plans(resource_config: Mapping[str, Any]) -> Iterator[str | None]:
    """Yield the ARNs of training plans in a rendered ResourceConfig; None for one that is a JSONPath."""
    if "TrainingPlanArn" in resource_config:
        yield resource_config["TrainingPlanArn"]
    if "TrainingPlanArn.$" in resource_config:
        yield None
    for preference in resource_config.get("InstancePreferences", ()):
        yield from preference.get("TrainingPlanArns", ())
        if "TrainingPlanArns.$" in preference:
            yield None


def _arn(stack: Stack, resource: str) -> str:
    return stack.format_arn(service="sagemaker", resource=resource, resource_name="*")
