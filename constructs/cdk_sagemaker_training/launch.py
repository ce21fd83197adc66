"""What TrainingTask and TrainingWorkflow share: from props to a request, the jobs' role, and leave to start them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from aws_cdk import Size, SizeRoundingBehavior, Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_sagemaker_training.checks import check_directory
from cdk_sagemaker_training.data import CHECKPOINTS, S3Prefix, Spot, check_no_subfolder, seconds_of
from cdk_sagemaker_training.grants import grant_channels, grant_members
from cdk_sagemaker_training.image import TrainingImage
from cdk_sagemaker_training.job_names import default_prefix, take_prefix
from cdk_sagemaker_training.jobs import Advice, JobRequest
from cdk_sagemaker_training.jsonpath import path, quoted, render
from cdk_sagemaker_training.props import PROPS, TrainingProps, check_props
from cdk_sagemaker_training.regions import check_regions, region_advice
from cdk_sagemaker_training.request import PROP_NAMES, check_job_name_prefix, create_training_job
from cdk_sagemaker_training.request_advice import request_advice, unlisted_advice, warm_pool_advice
from cdk_sagemaker_training.role import TrainingRole
from cdk_sagemaker_training.rules import instance_types, warm_pool_key
from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import check_listed

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms

# The key of the tag that says which execution started a job; the value is the execution's ARN.
EXECUTION_TAG = "StepFunctionsExecution"

_MOST_TAGS = 49  # TagList of the service model, less the one of the execution
_ONE_DAY = 24 * 3_600  # SageMaker's own limit of a job that says none
_VOLUME_GIB = 30  # as AWS's SDK asks for, where nobody says a size
# Props that reach the request as they are.
_AS_THEY_ARE = PROPS & set(inspect.signature(create_training_job).parameters) - {"tags"} | {"output"}


class Launch:
    """The jobs that a construct starts: their names, role, permissions and request.

    Makes the role below ``scope`` unless there is one, and grants it what the job needs and no more.
    """

    def __init__(self, scope: Construct, props: TrainingProps) -> None:
        check_props(type(scope).__name__, props)
        spot, network, role = props.get("spot"), props.get("network"), props.get("role")
        self.stack = Stack.of(scope)
        self.partition = self.stack.partition
        prefix = props.get("job_name_prefix")
        self.prefix = default_prefix(scope) if prefix is None else prefix
        check_job_name_prefix(self.prefix)
        take_prefix(scope, self.prefix)
        _check_tags(props.get("tags") or {})
        self.checkpoints = _checkpoints(props.get("checkpoints"), spot)
        self._local_path = _local_path(props.get("checkpoint_local_path"), self.checkpoints, spot)
        max_runtime, max_pending = props.get("max_runtime"), props.get("max_pending")
        self.max_runtime_seconds = _ONE_DAY if max_runtime is None else seconds_of("max_runtime", max_runtime)
        self.max_pending_seconds = None if max_pending is None else seconds_of("max_pending", max_pending)
        self.max_wait_seconds = None if spot is None else seconds_of("max_wait", spot.max_wait)
        self.role = role if isinstance(role, TrainingRole) else TrainingRole(scope, "Role", role=role)
        # SageMaker has written the names in its ARNs as they are, and in lower case. IAM tells one from the other.
        self.job_arns = [
            self.stack.format_arn(service="sagemaker", resource="training-job", resource_name=f"{prefix}-*")
            for prefix in sorted({self.prefix, self.prefix.lower()})
        ]
        self.job_requests = tuple(props["job"].requests())
        _check_suffixes(self.job_requests)
        _check_registry(props)
        check_regions(self.stack, props)
        for job_request in self.job_requests:
            _check_image(props["image"], job_request)
        self._scope, self._props, self._advised = scope, props, set[Advice]()
        for one in self.job_requests:
            self.advise((*one.advice, *self._not_kept(one), *request_advice(one, props)))
            self.advise(region_advice(self.stack, instance_types(one), props))
        self._request: dict[str, Any] = {
            **{name: props[name] for name in _AS_THEY_ARE & props.keys()},  # type: ignore[literal-required]
            "image_uri": props["image"].image_uri,
            "role_arn": self.role.role_arn,
            "max_runtime_seconds": self.max_runtime_seconds,
            "volume_size_gb": _gibibytes(props.get("volume_size")),
            "volume_kms_key": _key_arn(props.get("volume_key")),
            "output_kms_key": _key_arn(props.get("output_key")),
            "max_pending_seconds": self.max_pending_seconds,
            "vpc_config": None if network is None else network.vpc_config(),
        }
        self._grant(props)

    def request(self, job_request: JobRequest, *, job_name: str, checkpoint_folder: str) -> Mapping[str, Any]:
        """The Parameters of a state that creates one of ``job_requests``, in ASL's JSONPath.

        ``job_name`` and ``checkpoint_folder`` (a place below ``checkpoints``, without its last slash) are JSONPath
        expressions. Members known only when the state runs have a key that ends in ``.$``.
        """
        request = create_training_job(
            job_request=job_request,
            training_job_name=path(job_name),
            checkpoint_s3_uri=self._checkpoint_uri(checkpoint_folder),
            tags={**(self._props.get("tags") or {}), EXECUTION_TAG: path("$$.Execution.Id")},
            **self._request,
        )
        self.advise(unlisted_advice([request, self._props["image"].base]))
        rendered = render(request)
        if self._props.get("warm_pool") is not None:
            self.advise(warm_pool_advice(warm_pool_key(rendered), PROP_NAMES))
        return rendered

    def job_policy(self, *actions: str) -> iam.PolicyStatement:
        """Leave for these actions of SageMaker, on jobs of this construct only."""
        return iam.PolicyStatement(actions=[f"sagemaker:{action}" for action in actions], resources=list(self.job_arns))

    def pass_role_policy(self) -> iam.PolicyStatement:
        """Leave to hand the jobs' role to SageMaker, and to no other service."""
        return iam.PolicyStatement(
            actions=["iam:PassRole"],
            resources=[self.role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
        )

    def sync_policy(self) -> iam.PolicyStatement:
        """Leave for what `.sync` waits with: an EventBridge rule that Step Functions manages."""
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
        """Warn of what of ``value`` no list of this library is held against."""
        self.advise(unlisted_advice(value))

    def advise(self, advice: Iterable[Advice]) -> None:
        """Warn of each piece of advice, once."""
        for one in advice:
            if one not in self._advised:
                self._advised.add(one)
                Validations.of(self._scope).add_warning(one.id, one.text)

    def _not_kept(self, job_request: JobRequest) -> list[Advice]:
        local_path = self._local_path or CHECKPOINTS
        lost = [path for path in job_request.kept if not f"{path}/".startswith(f"{local_path.rstrip('/')}/")]
        if self.checkpoints is None or not lost:
            return []
        return [
            Advice(
                "cdk-sagemaker-training:not-among-checkpoints",
                f"{lost[0]} does not lie below {local_path}, where checkpoints are, so a job that starts again compiles again; "
                f"say so like TorchCompile(cache_directory='{local_path.rstrip('/')}/compiler-cache').",
            )
        ]

    def _checkpoint_uri(self, folder: str) -> str | None:
        if self.checkpoints is None:
            return None
        return path(f"States.Format('{{}}{{}}/', {quoted(self.checkpoints.uri)}, {folder})")

    def _grant(self, props: TrainingProps) -> None:
        props["image"].grant_pull(self.role.role)
        grant_channels(self.role, props)
        output, network = props["output"], props.get("network")
        self.role.grant_write(output.bucket, output.prefix)
        if self.checkpoints is not None:
            self.role.grant_checkpoints(self.checkpoints.bucket, self.checkpoints.prefix)
        of_scripts = (value for value in (props.get("hyperparameters") or {}).values() if isinstance(value, S3Prefix))
        of_jobs = (place for request in self.job_requests for place in request.storage)
        for place in dict.fromkeys((*of_jobs, *of_scripts)):
            self.role.grant_read_write(place.bucket, place.prefix)
        if network is not None:
            self.role.grant_network(network)
            for request in self.job_requests:
                network.check_addresses(request.resource_config)
            if props.get("inter_container_encryption"):
                network.allow_encrypted_traffic()
        grant_members(self.role, props)


def _gibibytes(size: Size | None) -> int:
    """The size of a volume in GiB, which the request has as a whole number."""
    if size is None:
        return _VOLUME_GIB
    gibibytes = size.to_gibibytes(rounding=SizeRoundingBehavior.NONE)
    if is_unresolved(gibibytes):
        return gibibytes  # type: ignore[return-value]  # a token, which CDK encodes as a float
    if gibibytes != int(gibibytes):
        raise ValueError(f"volume_size must be whole GiB, like Size.gibibytes(100), got {gibibytes:g} GiB")
    return int(gibibytes)


def _key_arn(key: kms.IKey | None) -> str | None:
    return None if key is None else key.key_arn


def _check_suffixes(requests: Sequence[JobRequest]) -> None:
    suffixes = [request.name_suffix for request in requests]
    # A digit would make the first attempt of one job the eleventh of another.
    words = all(re.fullmatch(r"([a-z][a-z0-9]*)?", suffix) for suffix in suffixes)
    if not words or len({suffix[:1] for suffix in suffixes}) != len(suffixes):
        raise ValueError(
            "job must make requests whose name_suffix is a word, or nothing, that begins with a letter of its own, "
            f"like ['compile', ''], got {suffixes}"
        )


def _check_tags(tags: Mapping[str, str]) -> None:
    if EXECUTION_TAG in tags:
        raise ValueError(
            f"tags must leave {EXECUTION_TAG!r} to the library, which finds a job's execution by it, like {{'team': 'vision'}}, "
            f"got {tags[EXECUTION_TAG]!r}"
        )
    if len(tags) > _MOST_TAGS:
        raise ValueError(
            f"tags must be at most {_MOST_TAGS}, since SageMaker takes {_MOST_TAGS + 1} and {EXECUTION_TAG!r} is one of them, "
            f"like {{'team': 'vision'}}, got {len(tags)}"
        )


def _check_registry(props: TrainingProps) -> None:
    """Raise ``ValueError`` for an image outside ECR unless ``private_registry`` says so (API, TrainingImageConfig)."""
    uri = props["image"].image_uri
    if props["image"].repository is None and not is_unresolved(uri) and props.get("private_registry") is None:
        raise ValueError(
            "private_registry must be given for an image that lies in another registry than ECR, like PrivateRegistry(), "
            f"got None with {uri!r}"
        )


def _check_image(image: TrainingImage, request: JobRequest) -> None:
    if not request.images or is_unresolved(image.base):
        return
    check_listed(
        "compiler-images",
        image.base,
        image.base is not None and any(fnmatch(image.base, pattern) for pattern in request.images),
        "image must be a container that the job's compiler and launcher are in, or built from one, "
        f"like {request.images[0]!r} of {list(request.images)}, or with image.base = unlisted('REPOSITORY:TAG')",
    )


def _local_path(path: str | None, checkpoints: S3Prefix | None, spot: Spot | None) -> str | None:
    """Where on a host the checkpoints are, None where that is SageMaker's default."""
    of_spot = spot.local_path if spot is not None else None
    if path is None:
        return of_spot
    check_directory("checkpoint_local_path", path, CHECKPOINTS)
    if checkpoints is None:
        raise ValueError(
            "checkpoint_local_path must come with checkpoints, like checkpoints=S3Prefix(bucket, 'checkpoints/'), "
            f"got {path!r} without"
        )
    if of_spot is not None:
        raise ValueError(
            "checkpoint_local_path must be left out where spot says its checkpoints, like Spot(..., local_path=...), "
            f"got {path!r} beside {of_spot!r}"
        )
    return path


def _checkpoints(checkpoints: S3Prefix | None, spot: Spot | None) -> S3Prefix | None:
    """Where checkpoints are kept, as a folder."""
    for given in (checkpoints, None if spot is None else spot.checkpoints):
        if given is not None:
            check_no_subfolder("checkpoints", given)
    if spot is not None and spot.checkpoints is not None and checkpoints not in (None, spot.checkpoints):
        raise ValueError(
            f"checkpoints must be left out where spot says where they are kept, like checkpoints=None, "
            f"got {checkpoints.prefix!r} beside {spot.checkpoints.prefix!r}"
        )
    place = spot.checkpoints if spot is not None and spot.checkpoints is not None else checkpoints
    if place is None or not place.prefix or place.prefix.endswith("/"):
        return place
    return S3Prefix(place.bucket, f"{place.prefix}/")
