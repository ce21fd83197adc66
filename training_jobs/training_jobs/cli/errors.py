"""Errors of AWS in one line each, which says what to do, and the exit codes of the command line."""

from __future__ import annotations

import json
import re

JOB_FAILED = 1  # the job or the execution failed or was stopped
USAGE = 2  # the command line is wrong, or names what is not there
REFUSED = 3  # a call failed: credentials, permissions, throttling, the network
INTERRUPTED = 130  # Ctrl-C; the job goes on

_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_UNKNOWN_KEY = {
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "403"}
_THROTTLED = {"Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded", "SlowDown"}
_ACTION = re.compile(r"not authorized to perform: (?P<action>[\w-]+:\w+)(?: on resource: (?P<resource>\S+))?")
_LOG_IN = '`aws sso login`, or `export AWS_PROFILE=...`; for the local account, `eval "$(local-account env)"`'


def one_line(error: Exception) -> str | None:
    """Return what an error of boto3 means and what to do, in one line; None for an error that is none of boto3's.

    Args:
        error: What a call raised.
    """
    from botocore import exceptions

    from training_jobs.client.errors import NO_REGION

    if isinstance(error, exceptions.ClientError):
        return _of_client(error)
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return f"no AWS credentials; {_LOG_IN}"
    if isinstance(
        error, exceptions.SSOTokenLoadError | exceptions.UnauthorizedSSOTokenError | exceptions.TokenRetrievalError
    ):
        return f"the credentials have expired; {_LOG_IN}"
    if isinstance(error, exceptions.NoRegionError):
        return NO_REGION
    if isinstance(error, exceptions.ProfileNotFound):
        return f"{error}; `aws configure list-profiles` lists those that are there"
    if isinstance(error, exceptions.EndpointConnectionError | exceptions.ConnectionError | exceptions.HTTPClientError):
        return f"{_first_line(error)}: check the region, the network, and that the local account is running"
    if isinstance(error, exceptions.BotoCoreError):
        return _first_line(error)
    return None


def connection_lost(error: Exception) -> bool:
    """Whether a call may succeed later: the network failed, or AWS throttled.

    Args:
        error: What a call raised.
    """
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return code in _THROTTLED or int(status) >= 500
    return isinstance(error, exceptions.ConnectionError | exceptions.HTTPClientError)


def _of_client(error: object) -> str:
    from botocore.exceptions import ClientError

    assert isinstance(error, ClientError)
    details = error.response.get("Error", {})
    code, message = str(details.get("Code", "")), str(details.get("Message", ""))
    if code in _EXPIRED or "expired" in message.lower():
        return f"the credentials have expired; {_LOG_IN}"
    if code in _UNKNOWN_KEY:
        return f"the access key does not exist, or not in this region ({code}); check AWS_PROFILE and --region, or {_LOG_IN}"
    if code in _DENIED:
        return _denied(message, error.operation_name)
    if code in _THROTTLED:
        return f"AWS throttles {error.operation_name}, also after several retries; try again in a minute"
    return f"{error.operation_name} failed with {code}: {' '.join(message.split())}"


def _denied(message: str, operation: str) -> str:
    found = _ACTION.search(message)
    if found is None:
        return f"access denied to {operation}: {' '.join(message.split())}; allow it in the policy of your user or role"
    resource = (found["resource"] or "*").rstrip(".,;")
    statement = {"Effect": "Allow", "Action": found["action"], "Resource": resource}
    return f"access denied to {found['action']}; add to the policy of your user or role: {json.dumps(statement)}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
