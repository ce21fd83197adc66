"""One state of a user's own state machine that runs a training job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Unpack, cast

import jsii
from aws_cdk import Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.express import check_not_express
from cdk_sagemaker_training.guard.deletion import stop_executions_on_deletion
from cdk_sagemaker_training.guard.guard import Guard
from cdk_sagemaker_training.lifecycle.direct import machine_policies
from cdk_sagemaker_training.lifecycle.job_set import JobSet
from cdk_sagemaker_training.props import jsonata, jsonpath
from cdk_sagemaker_training.props.prop import IN_INPUT, Prop
from cdk_sagemaker_training.props.prop_types import annotations_of, checked, did_you_mean
from cdk_sagemaker_training.props.query_language import QueryLanguage
from cdk_sagemaker_training.request.overrides import OVERRIDES
from cdk_sagemaker_training.request.props import TrainingProps, table
from cdk_sagemaker_training.request.sync import check_sync_takes
from cdk_sagemaker_training.workflow.job_network import in_vpc

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2


# What distinguishes one run of the state from all others, in the context object.
_IDS = ("Execution.Id", "State.Name", "Execution.RedriveCount", "State.RetryCount")
# The props of states in one query language, with what the other has in their place.
_OF_JSONPATH = dict.fromkeys(
    ("input_path", "output_path", "result_path", "result_selector"), "outputs='{% $states.result %}'"
)
_OF_JSONATA = {"outputs": "result_path='$.job'"}


class StateProps(TrainingProps, total=False):
    """The props of a job, and those of every task state of CDK's (``aws_stepfunctions.TaskStateBaseProps``)."""

    comment: str
    state_name: str
    assign: Mapping[str, Any]
    task_timeout: sfn.Timeout
    heartbeat_timeout: sfn.Timeout
    credentials: sfn.Credentials


class TaskProps(StateProps, total=False):
    """The props of a state in JSONPath."""

    input_path: str
    output_path: str
    result_path: str
    result_selector: Mapping[str, Any]


class JsonataTaskProps(StateProps, total=False):
    """The props of a state in JSONata."""

    outputs: Any


# CDK's own task for any call renders what all tasks have (result paths, retries, timeouts, credentials). Its base class
# does too, but only where a method is implemented that jsii does not show to Python.
class TrainingTask(tasks.CallAwsService):
    """A Task state that runs one training job and waits for its end; its result is the job's description.

    It is a state in JSONPath; ``TrainingTask.jsonata`` makes one in JSONata, which AWS recommends for new state machines.

    It takes of ``TrainingProps`` what the optimised integration `createTrainingJob.sync` is known to take; for a job with more,
    such as instance groups, a warm pool or ``max_pending``, use ``TrainingWorkflow(...).as_task(...)``, which also repeats calls
    that AWS did not answer, and stops the job of an execution that ends before it.

    A job's name is ``job_name_prefix`` and a hash of the execution, the state and the numbers of redrives and retries, so that
    ``add_retry`` and a redrive of the execution start a new job after a failed one, while a call whose answer was lost finds its
    name in use. Checkpoints lie below ``checkpoints`` in folders of the task, the execution, the state and ``unique_by``, which
    retries share.

    Attributes:
        role: The jobs' role.
        network: The jobs' network; None for SageMaker's own.
        image: The jobs' image.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        unique_by: Annotated[str | None, Prop(known=IN_INPUT, example="sfn.JsonPath.string_at('$.index')")] = None,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
        request_overrides: Annotated[Mapping[str, Any] | None, OVERRIDES] = None,
        query_language: Annotated[
            sfn.QueryLanguage, Prop(example="sfn.QueryLanguage.JSONATA")
        ] = sfn.QueryLanguage.JSON_PATH,
        **props: Unpack[TaskProps],
    ) -> None:
        """Create the state, and what its job needs.

        Args:
            scope: The construct that the state is part of.
            id: Its id among that construct's children, and its name unless ``state_name`` is given.
            unique_by: What distinguishes the jobs of a Map, or of a state that an execution enters again: a place in the state's
                input, like ``sfn.JsonPath.string_at("$.index")`` where the Map's ``item_selector`` puts the item's index
                there. Default: the execution runs the state once.
            vpc: An existing VPC for the job's hosts, in place of ``network``. Default: ``network``.
            vpc_subnets: Selects among the subnets of ``vpc``, which need a route to S3. Default: the private ones.
            security_groups: Existing security groups in ``vpc``, 1 to 5, all of which each host has. Default: a new one.
            request_overrides: Members of CreateTrainingJob that are no props yet, by their paths, such as
                ``{"ModelPackageConfig.ModelPackageGroupArn": group_arn}``; `.sync` must be known to take them. They are checked
                against the service's model, but for those whose path is ``unlisted``. Default: none.
            query_language: The state's query language. Default: JSONPath.
            props: The props of the job (``TrainingProps``), and those of every task state, such as ``comment`` and
                ``result_path``.

        Raises:
            TypeError: For a prop that is not there, and for one that is missing.
            ValueError: For a prop that breaks a rule, with its name.
        """
        given = cast(dict[str, Any], props)
        language = jsonata if query_language is sfn.QueryLanguage.JSONATA else jsonpath
        _check_state(language, unique_by, given)
        of_job = cast(TrainingProps, {name: value for name, value in given.items() if name in table()})
        super().__init__(
            scope,
            id,
            service="sagemaker",
            action="createTrainingJob",
            iam_resources=["*"],  # of policies that are not used: `_task_policies` has narrower ones
            query_language=query_language,
            **{name: value for name, value in given.items() if name not in of_job},
        )
        self._in_jsonata = language is jsonata
        of_job = in_vpc(self, of_job, vpc, vpc_subnets, security_groups)
        launch = JobSet(self, of_job, overrides=request_overrides, language=language)
        if len(launch.job_requests) != 1:
            raise must(
                "job",
                "be one that makes one request",
                "DataParallelJob(InstanceGroup('ml.g5.xlarge'))",
                f"{type(props['job']).__name__} with {len(launch.job_requests)}: use TrainingWorkflow(...).as_task(...)",
            )
        name, folder = (_jsonata_names if self._in_jsonata else _jsonpath_names)(launch.prefix, unique_by)
        self._request = launch.request(launch.job_requests[0], job_name=name, checkpoint_folder=folder)
        check_sync_takes(self._request, "TrainingWorkflow(...).as_task(...)", props)
        check_not_express(self)
        # As text, since what `to_state_json` returns reaches CDK as JSON, in which jsii has no objects.
        self._tags = Token.as_string(launch.tags.listed(self._request["Tags"]))
        self._resource = f"arn:{launch.partition}:states:::sagemaker:createTrainingJob.sync"
        self._policies = list(machine_policies(launch, [self._request], sync=True))
        self._jobs = launch
        self.role = launch.role
        self.network = of_job.get("network")
        self.image = props["image"]

    def guard(self, machine: sfn.StateMachine) -> Guard:
        """Have the stack's guard stop the state's jobs that run although their execution has ended, or when the stack is deleted.

        Step Functions stops the job of a state that waits for it, by best effort; what is left, or was created by a call whose
        answer was lost, runs to its ``max_runtime``. The guard looks every 15 minutes, and its alarm tells that it found one.

        Args:
            machine: The state machine that has the state, whose executions own the jobs.

        Returns:
            The guard, with its ``alarm``.
        """
        if self.node.try_find_child("Deletion") is None:
            stop_executions_on_deletion(self, machine, jobs=self._jobs)
        return Guard.of(self).watching_machine(machine, self._jobs)

    @staticmethod
    def json_path(scope: Construct, id: str, **props: Any) -> TrainingTask:
        """Create a state in JSONPath, as the constructor does; CDK's tasks have this method too.

        Args:
            scope: The construct that the state is part of.
            id: Its id among that construct's children, and its name unless ``state_name`` is given.
            props: As of the constructor.
        """
        return TrainingTask(scope, id, **props)

    @staticmethod
    def jsonata(  # type: ignore[override]  # with props of its own
        scope: Construct,
        id: str,
        *,
        unique_by: str | None = None,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
        request_overrides: Mapping[str, Any] | None = None,
        **props: Unpack[JsonataTaskProps],
    ) -> TrainingTask:
        """Create a state in JSONata, with the same job.

        What an execution decides is an expression in text, whole or within it, like
        ``hyperparameters={"steps": "{% $states.input.steps %}"}``; a number is ``Token.as_number("{% $states.input.count %}")``.
        An expression is one that has a variable, so that a hyperparameter with a template such as Jinja's is sent as it is.
        ``sfn.JsonPath`` is refused.

        Args:
            scope: The construct that the state is part of.
            id: Its id among that construct's children, and its name unless ``state_name`` is given.
            unique_by: As of the constructor, like ``"{% $states.input.index %}"``.
            vpc: As of the constructor.
            vpc_subnets: As of the constructor.
            security_groups: As of the constructor.
            request_overrides: As of the constructor.
            props: The props of the job (``TrainingProps``), and those of a task state in JSONata: ``assign``, ``outputs``, such
                as ``"{% $states.result.ModelArtifacts %}"``, ``comment`` and the like.

        Raises:
            TypeError: For a prop that is not there, and for one that is missing.
            ValueError: For a prop that breaks a rule, or of a JSONPath, with its name.
        """
        return TrainingTask(
            scope,
            id,
            unique_by=unique_by,
            vpc=vpc,
            vpc_subnets=vpc_subnets,
            security_groups=security_groups,
            request_overrides=request_overrides,
            query_language=sfn.QueryLanguage.JSONATA,
            **cast(TaskProps, props),
        )

    @jsii.member(jsii_name="toStateJson")
    def to_state_json(self, top_level_query_language: sfn.QueryLanguage | None = None) -> Mapping[Any, Any]:
        """The state in the Amazon States Language, which CDK calls when it renders the state machine.

        Args:
            top_level_query_language: The query language of the state machine; the state has its own.
        """
        state = super().to_state_json(top_level_query_language)
        request = {**self._request, "Tags": self._tags}
        return {**state, "Resource": self._resource, "Arguments" if self._in_jsonata else "Parameters": request}

    @property
    @jsii.member(jsii_name="taskPolicies")
    def _task_policies(self) -> list[iam.PolicyStatement]:
        return self._policies


def _jsonpath_names(prefix: str, unique_by: str | None) -> tuple[str, str]:
    """The expressions in JSONPath of the job's name and of the folder of its checkpoints."""
    unique = [] if unique_by is None else [jsonpath.expression(unique_by)]
    ids = [f"$$.{name}" for name in _IDS]
    name = f"States.Format('{prefix}-{{}}', States.Hash({_joined('-', [*ids, *unique])}, 'MD5'))"
    return name, _joined("/", ["$$.Execution.Name", "$$.State.Name", *unique])


def _joined(separator: str, expressions: list[str]) -> str:
    return f"States.Format('{separator.join(['{}'] * len(expressions))}', {', '.join(expressions)})"


def _jsonata_names(prefix: str, unique_by: str | None) -> tuple[str, str]:
    """The same in JSONata, of which `$hash` is Step Functions' own (guide, "Transforming data with JSONata")."""
    unique = [] if unique_by is None else [jsonata.expression(unique_by)]
    ids = [f"$states.context.{name}" for name in _IDS]
    hashed = " & '-' & ".join([*ids, *unique])
    folder = " & '/' & ".join(["$states.context.Execution.Name", "$states.context.State.Name", *unique])
    return f"'{prefix}-' & $hash({hashed}, 'MD5')", folder


def _check_state(language: QueryLanguage, unique_by: str | None, props: Mapping[str, Any]) -> None:
    if language.is_other(unique_by):
        rule = f"be in {language.NAME}, as the state is"
        raise must("unique_by", rule, language.EXAMPLE, "one of another language")
    for name in props:
        if name not in (known := {**annotations_of(TaskProps), **annotations_of(JsonataTaskProps)}):
            near = did_you_mean(name, {*known, *annotations_of(TrainingTask.__init__)})
            raise TypeError(f"TrainingTask got an unexpected keyword argument {name!r}{near}")
    for name, instead in (_OF_JSONPATH if language is jsonata else _OF_JSONATA).items():
        if name in props:
            raise must(name, f"be left out of a state in {language.NAME}", instead, repr(props[name]))
