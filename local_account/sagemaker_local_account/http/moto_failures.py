"""Requests that moto does not check and fails at: of a resource that does not exist, or with a member that is missing.

AWS answers these with an error of the caller's, which clients do not repeat; moto raises KeyError and the like, which would be a
500 that clients repeat.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING
from xml.parsers.expat import ExpatError

from sagemaker_local_account.core import error_responses

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_log = logging.getLogger(__name__)
_OF_INPUT = (
    ArithmeticError,
    AssertionError,
    ExpatError,
    LookupError,
    AttributeError,
    TypeError,
    ValueError,
    StopIteration,
    UnboundLocalError,
    re.error,  # of a name that moto takes as a regular expression
)
_PACKAGE = __name__.partition(".")[0]


def is_of_input(error: Exception) -> bool:
    """Whether an exception is one that moto's own code raises for input that it does not check."""
    if not isinstance(error, _OF_INPUT) and type(error) is not Exception:
        return False
    files = [frame.filename for frame in reversed(traceback.extract_tb(error.__traceback__))]
    owner = next((file for file in files if "/moto/" in file or f"/{_PACKAGE}/" in file), "")
    return "/moto/" in owner


def answered(
    environ: WSGIEnvironment, start_response: StartResponse, service: str, error: Exception
) -> Iterable[bytes]:
    """Answers such a request as invalid, with the exception in the log.

    Args:
        environ: the WSGI request.
        start_response: WSGI's.
        service: the request's.
        error: moto's exception.
    """
    _log.warning("%s: moto failed at the request's input", environ.get(error_responses.REQUEST_ID), exc_info=error)
    code = "ValidationException" if error_responses.speaks_json(environ) else "ValidationError"
    code = {"ec2": "InvalidParameterValue", "s3": "InvalidArgument"}.get(service, code)
    message = (
        f"the local account cannot answer this request: it names what does not exist, or lacks a member, at which moto failed "
        f"({type(error).__name__}: {' '.join(str(error).split())[:200]})"
    )
    return error_responses.error(environ, start_response, "400 Bad Request", code, message)
