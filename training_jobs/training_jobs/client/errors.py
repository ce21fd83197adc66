"""Errors of the client."""

from __future__ import annotations

from typing import Any

NO_REGION = (
    "no region is set: use --region, or `export AWS_REGION=us-east-1`; for an account on this machine, "
    "`training-jobs local up`"
)


class TrainingError(Exception):
    """What was requested is not possible; the message says why and what to do."""


class NotFoundError(TrainingError):
    """No workflow, execution or job has the given name."""


class AmbiguousNameError(NotFoundError):
    """Several jobs, executions or workflows have the name, or the part of one."""


def code_of(error: Any) -> str:
    """Return the error code of a botocore ClientError, such as ``"ValidationException"``.

    Args:
        error: The error.
    """
    return str(error.response.get("Error", {}).get("Code", ""))
