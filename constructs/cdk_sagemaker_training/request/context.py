"""One request of a construct, as far as its props alone do not decide it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdk_sagemaker_training.jobs.kinds import JobRequest

if TYPE_CHECKING:
    from cdk_sagemaker_training.request.props import TrainingProps


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
class RequestContext:
    """What the members and the rules of props are computed from, beside the prop's own value.

    Args:
        props: The props of the construct, of the right types (``props.check_props``).
        job_request: The one of the job's requests that is made.
        job_name: The job's name; a token of JSONPath where the state computes it.
        role_arn: The ARN of the role that the job has, also without the prop ``role``.
        checkpoint_uri: The place in S3 of this execution's checkpoints. Default: None, without checkpoints.
        tags: Tags beside those of ``props``. Default: none.
        code: Where the training code is. Default: None, in the image.
    """

    props: TrainingProps
    job_request: JobRequest
    job_name: str
    role_arn: str
    checkpoint_uri: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    code: CodeLocation | None = None
