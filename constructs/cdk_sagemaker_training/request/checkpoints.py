"""Where a job's checkpoints are: in S3, and on its hosts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cdk_sagemaker_training.core.checks import check_directory
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.capacity import CHECKPOINTS
from cdk_sagemaker_training.data.s3 import S3Prefix, check_no_subfolder
from cdk_sagemaker_training.jobs.advice import Advice
from cdk_sagemaker_training.jobs.kinds import JobRequest
from cdk_sagemaker_training.props.jsonpath import expression

if TYPE_CHECKING:
    from cdk_sagemaker_training.request.props import TrainingProps


def checkpoints_of(props: TrainingProps) -> S3Prefix | None:
    """The place in S3 below which each execution has a folder for its checkpoints.

    Args:
        props: The props of a job, which name the place in ``checkpoints`` or in ``spot``.

    Returns:
        The place, whose prefix is empty or ends in a slash; None where there are no checkpoints.

    Raises:
        ValueError: For a place that an execution chooses, and for two different ones.
    """
    checkpoints, spot = props.get("checkpoints"), props.get("spot")
    for prefix in (checkpoints, None if spot is None else spot.checkpoints):
        if prefix is not None:
            check_no_subfolder("checkpoints", prefix)
    if spot is not None and spot.checkpoints is not None and checkpoints not in (None, spot.checkpoints):
        raise ValueError(
            f"checkpoints must be left out if spot has checkpoints, like checkpoints=None, "
            f"got {checkpoints.prefix!r} beside {spot.checkpoints.prefix!r}"
        )
    place = spot.checkpoints if spot is not None and spot.checkpoints is not None else checkpoints
    if place is None or not place.prefix or place.prefix.endswith("/"):
        return place
    return S3Prefix(place.bucket, f"{place.prefix}/")


def local_path_of(props: TrainingProps) -> str | None:
    """The directory on a host whose files are the checkpoints.

    Args:
        props: The props of a job, which name the directory in ``checkpoint_local_path`` or in ``spot``.

    Returns:
        An absolute path; None for SageMaker's default, ``/opt/ml/checkpoints`` (API, CheckpointConfig).

    Raises:
        ValueError: For no absolute path, for a path without checkpoints, and for one beside that of ``spot``.
    """
    path, spot = props.get("checkpoint_local_path"), props.get("spot")
    of_spot = spot.local_path if spot is not None else None
    if path is None:
        return of_spot
    check_directory("checkpoint_local_path", path, CHECKPOINTS)
    if checkpoints_of(props) is None:
        raise ValueError(
            "checkpoint_local_path must be used with checkpoints, like checkpoints=S3Prefix(bucket, 'checkpoints/'), "
            f"got {path!r} without"
        )
    if of_spot is not None:
        raise ValueError(
            "checkpoint_local_path must be left out if spot has a local_path, like Spot(..., local_path=...), "
            f"got {path!r} beside {of_spot!r}"
        )
    return path


def checkpoint_folder(resume_from: str | None, checkpoints: S3Prefix | None) -> str:
    """The folder of an execution's checkpoints, below ``checkpoints``.

    Args:
        resume_from: The name of an older execution whose folder it is, if any, or a token of JSONPath.
        checkpoints: The place of the folders; None where there are no checkpoints.

    Returns:
        An expression of JSONPath.

    Raises:
        ValueError: For an older execution without checkpoints, and for what is no execution's name.
    """
    if resume_from is None:
        return "$$.Execution.Name"
    if checkpoints is None:
        raise ValueError(
            "resume_from must come with checkpoints, like checkpoints=S3Prefix(bucket, 'checkpoints/'), "
            f"got {resume_from!r} without"
        )
    if not is_unresolved(resume_from) and not re.fullmatch(r"[^/\s]{1,80}", resume_from):
        raise ValueError(
            f"resume_from must be the name of an execution, like 'monday' or sfn.JsonPath.string_at('$.resume_from'), "
            f"got {resume_from!r}"
        )
    return expression(resume_from)


def lost_files_advice(job_request: JobRequest, props: TrainingProps) -> list[Advice]:
    """Warn of files outside of the checkpoints that a job needs again when it is restarted.

    Args:
        job_request: One request of the job, whose ``kept`` are the directories of such files.
        props: The props of the job.
    """
    local_path = local_path_of(props) or CHECKPOINTS
    lost = [path for path in job_request.kept if not f"{path}/".startswith(f"{local_path.rstrip('/')}/")]
    if checkpoints_of(props) is None or not lost:
        return []
    return [
        Advice(
            "cdk-sagemaker-training:not-among-checkpoints",
            f"{lost[0]} is not below {local_path}, where checkpoints are, so a job that restarts compiles again; "
            f"set it like TorchCompile(cache_directory='{local_path.rstrip('/')}/compiler-cache').",
        )
    ]
