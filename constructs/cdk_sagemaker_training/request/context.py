"""What the members, rules and warnings of props are computed from, beside a prop's own value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cdk_sagemaker_training.jobs.kinds import JobRequest


@dataclass(frozen=True)
class CodeLocation:
    """Where the toolkit of a host finds the training code.

    Args:
        program: Path of the script in the code.
        submit_directory: The archive: an S3 URI, or a path on the host.
        channel_uri: The S3 URI that the host downloads as channel ``code``. Default: None, the toolkit downloads the archive.
    """

    program: str
    submit_directory: str
    channel_uri: str | None = None


@dataclass(frozen=True)
class JobContext:
    """One request of a construct's job.

    Args:
        props: The ``props.TrainingProps`` of the construct, of the right types (``props.check_props``).
        job_request: The one of the job's requests that is made.
    """

    props: Mapping[str, Any]
    job_request: JobRequest


@dataclass(frozen=True)
class RequestContext(JobContext):
    """The same, with what a state knows when it sends the request.

    Args:
        props: The props of the construct.
        job_request: The one of the job's requests that is made.
        job_name: The job's name; a token of JSONPath where the state computes it.
        role_arn: The ARN of the role that the job has, also without the prop ``role``.
        checkpoint_uri: The place in S3 of this execution's checkpoints. Default: None, without checkpoints.
        tags: Tags beside those of ``props``. Default: none.
        code: Where the training code is. Default: None, in the image.
    """

    job_name: str
    role_arn: str
    checkpoint_uri: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    code: CodeLocation | None = None


def optional(of: Callable[[Any], Any]) -> Callable[[Any, RequestContext], Any]:
    """A member that is left out of the request where its prop is None."""
    return lambda value, context: None if value is None else of(value)


def flag(value: bool | None, context: RequestContext) -> bool | None:
    """True, or None to leave out what is False without it."""
    return value or None
