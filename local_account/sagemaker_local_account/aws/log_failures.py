"""Logs failures: in a line for errors of calls and deliveries, with a stack trace for defects of the account."""

from __future__ import annotations

import logging

from sagemaker_local_account.core.image_names import ImageError
from sagemaker_local_account.iam.authorizer import AccessDenied
from sagemaker_local_account.storage.transfer import StorageError


def is_routine(error: BaseException) -> bool:
    """Whether an error is a service's error response, a denied permission, or an unreachable endpoint."""
    import botocore.exceptions
    import requests
    from moto.core.exceptions import ServiceException
    from werkzeug.exceptions import HTTPException

    answers = (botocore.exceptions.ClientError, ServiceException, HTTPException, AccessDenied, ImageError, StorageError)
    # A denied service principal is a LookupError itself; its subclasses KeyError and IndexError are defects.
    return isinstance(error, (*answers, requests.RequestException, ConnectionError)) or type(error) is LookupError


def log_failure(log: logging.Logger, error: BaseException, message: str, *arguments: object) -> None:
    """Logs an error that is being handled.

    Args:
        log: the logger.
        error: the error.
        message: what failed, a %-format string.
        arguments: its arguments.
    """
    if is_routine(error):
        log.warning(f"{message}: %s", *arguments, " ".join(str(error).split()))
    else:
        log.exception(message, *arguments)
