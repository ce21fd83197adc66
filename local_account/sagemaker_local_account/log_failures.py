"""How a failure is logged: in a line where a call or another program brought it about, with its trace where it is a defect."""

from __future__ import annotations

import logging

from .permissions import AccessDenied
from .references import ImageError
from .storage import StorageError


def is_routine(error: BaseException) -> bool:
    """Whether an error is an answer of a service, a refusal, or an endpoint that does not answer."""
    import botocore.exceptions
    import requests
    from moto.core.exceptions import ServiceException
    from werkzeug.exceptions import HTTPException

    answers = (botocore.exceptions.ClientError, ServiceException, HTTPException, AccessDenied, ImageError, StorageError)
    # The permissions of a service are refused by LookupError itself; KeyError and IndexError are defects.
    return isinstance(error, (*answers, requests.RequestException, ConnectionError)) or type(error) is LookupError


def log_failure(log: logging.Logger, error: BaseException, message: str, *arguments: object) -> None:
    """Log that something failed, with why; ``error`` is being handled."""
    if is_routine(error):
        log.warning(f"{message}: %s", *arguments, " ".join(str(error).split()))
    else:
        log.exception(message, *arguments)
