"""What AWS may do, one row a fact, each with its source; ``environment`` has a rule for each, and `docs/prove.md` prints them."""

from __future__ import annotations

from typing import NamedTuple


class Fact(NamedTuple):
    """A row of the model.

    Attributes:
        name: By which a fault of a story names it.
        service: Whose behaviour it is.
        text: What may happen.
        fault: Whether each occurrence counts against the number of faults.
        source: AWS's page, or "assumed".
    """

    name: str
    service: str
    text: str
    fault: bool
    source: str


FACTS = (
    Fact(
        "throttled",
        "any API",
        "a call fails before its effect, and succeeds when it is repeated",
        True,
        "SageMaker API, Common Errors: ThrottlingException",
    ),
    Fact(
        "lost answer",
        "any API",
        "a call takes effect and its answer is lost",
        True,
        "AWS SDK for Java, SdkClientException",
    ),
    Fact(
        "late", "any API", "a call fails and takes effect later, before a wait of a minute has elapsed", True, "assumed"
    ),
    Fact("outage", "any API", "a call fails for as long as the retriers of its state last", True, "assumed"),
    Fact(
        "schedule",
        "EventBridge",
        "a schedule starts its state machine again and again",
        False,
        "EventBridge's guide, Creating a rule that runs on a schedule",
    ),
    Fact(
        "in flight",
        "Step Functions",
        "an execution is ended while its call is on the way, which may still take effect",
        False,
        "assumed",
    ),
    Fact(
        "name in use",
        "SageMaker",
        "CreateTrainingJob with the name of any earlier job fails",
        False,
        "SageMaker API, CreateTrainingJob: ResourceInUse",
    ),
    Fact(
        "not found",
        "SageMaker",
        "DescribeTrainingJob and StopTrainingJob fail for a job that was not created",
        False,
        "SageMaker API, ResourceNotFound",
    ),
    Fact("listed", "SageMaker", "ListTrainingJobs has each job once it was created", False, "assumed"),
    Fact(
        "token in use",
        "AWS Batch",
        "SubmitServiceJob with the token of an earlier job is rejected",
        False,
        "AWS Batch API, SubmitServiceJob: clientToken",
    ),
    Fact(
        "before a machine",
        "AWS Batch",
        "a service job fails or is terminated before it has a training job, or after",
        False,
        "AWS Batch API, DescribeServiceJob: latestAttempt",
    ),
    Fact(
        "rule broken",
        "the user",
        "a rule of stop_when is broken at any look, or never",
        False,
        "this library, handlers/watch.py",
    ),
    Fact(
        "job ends",
        "SageMaker",
        "a job completes or fails at any time",
        False,
        "SageMaker API, DescribeTrainingJob: TrainingJobStatus",
    ),
    Fact(
        "sync waits",
        "Step Functions",
        ".sync answers when the job has ended, and fails with States.TaskFailed unless it completed",
        False,
        "Step Functions' guide, Discover service integration patterns, Run a Job (.sync)",
    ),
    Fact(
        "sync cancels",
        "Step Functions",
        "what an execution waits for with .sync is stopped with the execution",
        False,
        "Step Functions' guide, Discover service integration patterns, Run a Job (.sync)",
    ),
    Fact(
        "not cancelled",
        "Step Functions",
        'and in rare cases is not ("best-effort")',
        True,
        "Step Functions' guide, Discover service integration patterns, Run a Job (.sync)",
    ),
    Fact(
        "person stops",
        "Step Functions",
        "a person stops the execution, once, in any state",
        False,
        "Step Functions API, StopExecution",
    ),
    Fact(
        "times out",
        "Step Functions",
        "an execution with TimeoutSeconds reaches it, once, in any state",
        False,
        "Amazon States Language, TimeoutSeconds",
    ),
    Fact(
        "event arrives",
        "EventBridge",
        "the event of an execution's end starts the target of each rule that matches",
        False,
        "Step Functions' guide, Automating Step Functions event delivery",
    ),
    Fact(
        "stack deleted",
        "CloudFormation",
        "a stack is deleted while an execution runs: first this library's custom resources stop executions and jobs, late ones "
        "too, then state machines, their executions and guards go",
        False,
        "Step Functions API, DeleteStateMachine; this library, handlers/deletion.py",
    ),
    Fact(
        "stack updated",
        "CloudFormation",
        "a stack is updated while an execution runs, which goes on by its own definition; what the update removes is deleted at "
        "its end, and the jobs of a queue with it",
        False,
        "Step Functions API, UpdateStateMachine; AWS Batch API, DeleteJobQueue",
    ),
    Fact(
        "token",
        "the user",
        "who has the token of a task answers it at any time, that it succeeded or failed",
        False,
        "Step Functions' guide, Discover service integration patterns, Wait for Callback with Task Token",
    ),
    Fact(
        "lost event",
        "EventBridge",
        'and in rare cases is not delivered ("best effort")',
        True,
        "EventBridge's reference, Delivery level for AWS service events",
    ),
    Fact(
        "event twice",
        "EventBridge",
        "and may start it twice",
        True,
        "EventBridge's guide, Troubleshooting: My rule ran more than once in response to one event",
    ),
)
