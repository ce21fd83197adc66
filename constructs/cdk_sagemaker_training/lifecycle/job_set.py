"""The jobs of a TrainingTask or a TrainingWorkflow: their names, role and permissions, and their requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aws_cdk import Annotations, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.job_names import default_prefix, machines_prefix, reserve_prefix
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.s3 import S3Prefix
from cdk_sagemaker_training.facts.instance_types import is_newer
from cdk_sagemaker_training.jobs.advice import advice, unlisted_advice
from cdk_sagemaker_training.jobs.kinds import Advice, JobRequest
from cdk_sagemaker_training.props import jsonpath
from cdk_sagemaker_training.props.execution_input import is_jsonpath, tokens_in
from cdk_sagemaker_training.props.query_language import QueryLanguage
from cdk_sagemaker_training.request.access import EXECUTION_TAG, check_job_name_prefix
from cdk_sagemaker_training.request.context import CodeLocation, JobContext, RequestContext
from cdk_sagemaker_training.request.create_training_job import create_training_job, request_advice
from cdk_sagemaker_training.request.data import CODE_CHANNEL, below_prefix, checkpoints_of
from cdk_sagemaker_training.request.grants import grant_channels, grant_members
from cdk_sagemaker_training.request.machine import (
    instance_types,
    max_pending_seconds,
    max_runtime_seconds,
    warm_pool_advice,
    warm_pool_key,
)
from cdk_sagemaker_training.request.overrides import overridden
from cdk_sagemaker_training.request.props import TrainingProps, check_props, prop_names
from cdk_sagemaker_training.request.regions import check_regions, region_advice
from cdk_sagemaker_training.resources.code_asset import archives_beside, code_asset
from cdk_sagemaker_training.resources.job_tags import JobTags
from cdk_sagemaker_training.resources.role import TrainingRole


class JobSet:
    """The jobs that a construct starts.

    Makes the role below the construct unless there is one, and grants it what the job needs and no more.

    Attributes:
        stack: The construct's stack.
        partition: The stack's partition, such as ``aws``.
        prefix: How the jobs' names begin.
        first_words: The first words of their names, and of their names by default.
        checkpoints: The folder in which executions have theirs for checkpoints; None without checkpoints.
        max_runtime_seconds: The longest that a job runs.
        max_pending_seconds: The longest that a job waits for its machines; None where SageMaker decides it.
        max_wait_seconds: The longest that a spot job takes; None on other machines.
        role: The jobs' role.
        job_arns: The ARNs of the jobs, with a wildcard after their prefix.
        job_requests: The requests of the job, in the order in which they run.
        language: The query language of the states that create jobs.
        tags: The tags that jobs get from the scopes around the construct.
    """

    def __init__(
        self,
        scope: Construct,
        props: TrainingProps,
        alternatives: Sequence[TrainingProps] = (),
        overrides: Mapping[str, Any] | None = None,
        language: QueryLanguage = jsonpath,
    ) -> None:
        """Check the props, make the role and grant it what the jobs need.

        Args:
            scope: The construct, a TrainingTask or TrainingWorkflow.
            props: Its props of the job.
            alternatives: The props of jobs that run in its place; they differ in ``job``, ``image``, ``hyperparameters`` and
                ``environment`` only, and each makes one request.
            overrides: Members of all requests that are no props, by their paths.
            language: The query language of the states that create jobs.

        Raises:
            TypeError: For a prop that is not there, and for one that is missing.
            ValueError: For a prop that breaks a rule, with its name.
        """
        check_props(type(scope).__name__, props)
        spot, role = props.get("spot"), props.get("role")
        self.stack = Stack.of(scope)
        self.partition = self.stack.partition
        prefix = props.get("job_name_prefix")
        default = default_prefix(scope)
        self.prefix = default if prefix is None else prefix
        # By default the stack's, so that the jobs of all of its workflows are one list; and those from before it had another.
        words = [begins.partition("-")[0] for begins in (self.prefix, default)]
        self.first_words = tuple(dict.fromkeys(form for word in words for form in (word, word.lower())))
        check_job_name_prefix(self.prefix)
        overlapping = reserve_prefix(scope, self.prefix)
        # Each construct has a folder of its own, since executions of two may have one name.
        self.checkpoints = below_prefix(checkpoints_of(props), self.prefix)
        self.max_runtime_seconds = max_runtime_seconds(props.get("max_runtime"))
        self.max_pending_seconds = max_pending_seconds(props.get("max_pending"))
        self.max_wait_seconds = None if spot is None else seconds_of("max_wait", spot.max_wait)
        self.role = role if isinstance(role, TrainingRole) else TrainingRole(scope, "Role", role=role)
        _check_account(self.role, self.stack)
        # SageMaker has written the names in its ARNs as they are, and in lower case. IAM tells one from the other.
        self.job_arns = [
            self.stack.format_arn(service="sagemaker", resource="training-job", resource_name=f"{prefix}-*")
            for prefix in sorted({self.prefix, self.prefix.lower()})
        ]
        self.job_requests = tuple(props["job"].requests())
        _check_suffixes(self.job_requests)
        self._scope, self._props, self._advised = scope, props, set[Advice]()
        self._overrides, self.language = overrides or {}, language
        self.tags = JobTags(scope)
        self._all = [
            (props, self.job_requests),
            *((alternative, tuple(alternative["job"].requests())) for alternative in alternatives),
        ]
        for of_job, requests in self._all:
            check_regions(self.stack, of_job)
            for request in requests:
                self.advise((*request.advice, *request_advice(JobContext(of_job, request))))
                self.advise(region_advice(self.stack, instance_types(request), of_job))
        for path, other in overlapping:
            self.advise(
                advice(
                    "job-name-prefix-overlap",
                    f"job_name_prefix {self.prefix!r} and {other!r} of {path} begin alike, so that each one's state machine may "
                    "describe and stop jobs of the other: choose one that does not begin with the other, like 'train-small'.",
                )
            )
        self._code = self._upload_code(props)
        self._grant(props)

    def alternatives(self, *, job_name: str, checkpoint_folder: str) -> list[Mapping[str, Any]]:
        """Return the Parameters of the states that create the alternatives, with names and folders as of ``request``."""
        return [self._request(of_job, request, job_name, checkpoint_folder) for of_job, [request] in self._all[1:]]

    def request(self, job_request: JobRequest, *, job_name: str, checkpoint_folder: str) -> Mapping[str, Any]:
        """The Parameters of a state that creates a job, or in JSONata its Arguments.

        Args:
            job_request: One of ``job_requests``.
            job_name: The job's name, as an expression of the query language.
            checkpoint_folder: A place below ``checkpoints``, without its last slash, as an expression.

        Returns:
            The request. Members known only when the state runs have a key that ends in ``.$`` in JSONPath.

        Raises:
            ValueError: For a prop that breaks a rule, with its name.
        """
        return self._request(self._props, job_request, job_name, checkpoint_folder)

    def _request(
        self, props: TrainingProps, job_request: JobRequest, job_name: str, checkpoint_folder: str
    ) -> Mapping[str, Any]:
        request = create_training_job(
            RequestContext(
                props=props,
                job_request=job_request,
                job_name=self.language.path(job_name),
                role_arn=self.role.role_arn,
                checkpoint_uri=self._checkpoint_uri(checkpoint_folder),
                tags={EXECUTION_TAG: self.language.path(self.language.EXECUTION_ID)},
                code=self._code,
            )
        )
        newer = frozenset(filter(is_newer, instance_types(job_request)))
        self.advise(unlisted_advice([request, props["image"].base, self._overrides]))
        complete = overridden(request, self._overrides, newer)
        _check_language(complete, self.language)
        rendered = self.language.render(complete)
        if props.get("warm_pool") is not None:
            self.advise(warm_pool_advice(warm_pool_key(rendered), prop_names()))
        return rendered

    def job_policy(self, *actions: str) -> iam.PolicyStatement:
        """An IAM statement that allows actions of SageMaker on this construct's jobs only."""
        return iam.PolicyStatement(actions=[f"sagemaker:{action}" for action in actions], resources=list(self.job_arns))

    def pass_role_policy(self) -> iam.PolicyStatement:
        """An IAM statement that allows passing the jobs' role to SageMaker, and to no other service."""
        return iam.PolicyStatement(
            actions=["iam:PassRole"],
            resources=[self.role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
        )

    def sync_policy(self) -> iam.PolicyStatement:
        """An IAM statement that allows what `.sync` waits with: an EventBridge rule that Step Functions manages."""
        return iam.PolicyStatement(
            actions=["events:DescribeRule", "events:PutRule", "events:PutTargets"],
            resources=[
                self.stack.format_arn(
                    service="events",
                    resource="rule",
                    resource_name="StepFunctionsGetEventsForSageMakerTrainingJobsRule",
                )
            ],
        )

    def advise_unlisted(self, value: Any) -> None:
        """Warn of ``unlisted`` values."""
        self.advise(unlisted_advice(value))

    def advise(self, warnings: Iterable[Advice]) -> None:
        """Add warnings to the construct."""
        for item in warnings:
            if item not in self._advised:
                self._advised.add(item)
                Annotations.of(self._scope).add_warning_v2(item.id, item.text)

    def _checkpoint_uri(self, folder: str) -> str | None:
        if self.checkpoints is None:
            return None
        return self.language.below(self.checkpoints.uri, folder)

    def _upload_code(self, props: TrainingProps) -> CodeLocation | None:
        code = props.get("code")
        if code is None:
            return None
        asset = code_asset(self._scope, code)
        self.role.grant_read(asset.bucket, archives_beside(asset))
        if not props.get("network_isolation"):
            return CodeLocation(code.program, asset.s3_object_url)
        archive = f"/opt/ml/input/data/{CODE_CHANNEL}/{asset.s3_object_key}"
        return CodeLocation(code.program, archive, asset.s3_object_url)

    def _grant(self, props: TrainingProps) -> None:
        images = {id(of_job["image"]): of_job["image"] for of_job, _ in self._all}
        for image in images.values():
            image.grant_pull(self.role.role)
        grant_channels(self.role, props)
        output, network = props["output"], props.get("network")
        self.role.grant_write(output.bucket, output.prefix)
        if self.checkpoints is not None:
            self.role.grant_checkpoints(self.checkpoints.bucket, self.checkpoints.prefix)
        values = (value for of_job, _ in self._all for value in (of_job.get("hyperparameters") or {}).values())
        of_scripts = (value for value in values if isinstance(value, S3Prefix))
        of_jobs = (place for _, requests in self._all for request in requests for place in request.storage)
        for place in dict.fromkeys((*of_jobs, *of_scripts)):
            self.role.grant_read_write(place.bucket, place.prefix)
        if network is not None:
            self.role.grant_network(network)
            for _, requests in self._all:
                for request in requests:
                    network.check_addresses(request.resource_config)
            if props.get("inter_container_encryption"):
                network.allow_encrypted_traffic()
        grant_members(self.role, props)


def machines_of(stack: Stack) -> str:
    """Return the ARN pattern of the state machines of a stack's workflows."""
    return stack.format_arn(service="states", resource=f"stateMachine:{machines_prefix(stack)}*")


def executions_of(stack: Stack) -> str:
    """Return the ARN pattern of the executions of a stack's workflows."""
    return stack.format_arn(service="states", resource=f"execution:{machines_prefix(stack)}*")


def of_executions(stack: Stack, *actions: str) -> iam.PolicyStatement:
    """Return a statement that allows actions on jobs of SageMaker and AWS Batch that such executions created, by their tag.

    IAM has that condition of training jobs and service jobs (service authorization reference, "Amazon SageMaker" and "AWS Batch",
    ``aws:ResourceTag``).
    """
    kinds = {"sagemaker": "training-job/*", "batch": "service-job/*"}
    services = dict.fromkeys(action.partition(":")[0] for action in actions)
    return iam.PolicyStatement(
        actions=list(actions),
        resources=[stack.format_arn(service=service, resource=kinds[service]) for service in services],
        conditions={"StringLike": {f"aws:ResourceTag/{EXECUTION_TAG}": executions_of(stack)}},
    )


def _check_account(role: TrainingRole, stack: Stack) -> None:
    """A service is passed roles of its caller's account alone (IAM guide, "Grant a user permissions to pass a role")."""
    account = role.role.env.account
    if not is_unresolved(account) and not is_unresolved(stack.account) and account != stack.account:
        example = f"iam.Role.from_role_arn(self, 'Role', 'arn:aws:iam::{stack.account}:role/training')"
        raise must("role", f"be one of the stack's account, {stack.account}", example, f"one of {account}")


def _check_suffixes(requests: Sequence[JobRequest]) -> None:
    suffixes = [request.name_suffix for request in requests]
    # A digit would make the first attempt of one job the eleventh of another.
    words = all(re.fullmatch(r"([a-z][a-z0-9]*)?", suffix) for suffix in suffixes)
    if not words or len({suffix[:1] for suffix in suffixes}) != len(suffixes):
        rule = "be lower-case letters and digits, with distinct first letters, or one empty"
        raise must("name_suffix values of a job's requests", rule, "['compile', '']", f"{suffixes}")


def _check_language(request: Mapping[str, Any], language: QueryLanguage) -> None:
    """Check that a request has no expressions of the other language, which would be sent as text."""
    names = prop_names()
    for path, value in _values(request, ()):
        if language.is_other(value):
            lengths = range(len(path), 0, -1)
            prop = next((names[at] for size in lengths if (at := ".".join(path[:size])) in names), ".".join(path))
            got = "a JSONPath" if any(map(is_jsonpath, tokens_in(value))) else repr(value)
            raise must(prop, f"be in {language.NAME}, as the state that creates the job is", language.EXAMPLE, got)


def _values(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _values(item, (*path, name))
    elif isinstance(value, list) and not is_unresolved(value):
        for item in value:
            yield from _values(item, path)
    else:
        yield path, value
