"""Temporary credentials with which the account's services assume roles."""

from __future__ import annotations

import re
import secrets
import string
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from moto.core.exceptions import _RESTError
from moto.core.responses import ActionResult, BaseResponse
from moto.core.utils import utcnow
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends
from moto.sts.exceptions import STSClientError, STSValidationError
from moto.sts.models import STSBackend, sts_backends
from moto.sts.responses import TokenResponse

from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.core.state import ACCOUNT_ID, REGION
from sagemaker_local_account.iam.authorizer import MANAGED, Authorizer, document_of

_moto_get_caller_identity = STSBackend.get_caller_identity

_moto_assume_role = TokenResponse.assume_role
_moto_get_access_key = BaseResponse.get_access_key
_moto_get_session_token = TokenResponse.get_session_token
# Hosts get them as variables, where AWS's hosts renew theirs; they are those of this account's process alone.
_SECONDS = 365 * 86_400
_MOST_POLICIES = 10
_MOST_SECONDS_OF_ROOT = 3_600  # STS's API, GetSessionToken, DurationSeconds


class _AccessDenied(_RESTError):  # moto's serializer knows no such error of STS
    code = 403


class RoleSessions:
    """Caches credentials per role and session name."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], dict[str, str]] = {}  # by role and session name

    def credentials(self, role_arn: str, service: str, source_arn: str) -> Mapping[str, str]:
        """Returns the AWS_* variables with a role's credentials.

        Args:
            role_arn: the role.
            service: the service principal that assumes it, like "sagemaker.amazonaws.com".
            source_arn: the job, build, function or state machine for which it is assumed (aws:SourceArn).

        Raises:
            LookupError: the account has no such role, or its trust policy does not allow the service to assume it.
        """
        self._authorizer.check_trust(role_arn, service, source_arn)
        name = session_name(service, source_arn)
        with self._lock:
            if known := self._known.get((role_arn, name)):
                return known
            session = sts_backends[ACCOUNT_ID]["aws"].assume_role(
                region_name=REGION,
                role_session_name=name,
                role_arn=role_arn,
                policy="",
                duration=_SECONDS,
                external_id="",
            )
            keys = {
                "AWS_ACCESS_KEY_ID": session.access_key_id,
                "AWS_SECRET_ACCESS_KEY": session.secret_access_key,
                "AWS_SESSION_TOKEN": session.session_token,
            }
            self._known[role_arn, name] = keys
            return keys


@dataclass(frozen=True)
class SessionToken:
    """The temporary credentials of GetSessionToken.

    Args:
        principal_key: the access key that they stand for, of the root or of a user that called it.
        secret_access_key: their own.
        session_token: their own.
        expiration: when they end.
    """

    principal_key: str
    secret_access_key: str
    session_token: str
    expiration: datetime


class SessionTokens(dict[str, SessionToken]):
    """The temporary credentials of GetSessionToken, by their access key."""

    def issue(self, principal_key: str, expiration: datetime) -> dict[str, str]:
        """Returns the members of Credentials.

        Args:
            principal_key: see `SessionToken`.
            expiration: see `SessionToken`.
        """
        access_key_id = "ASIA" + "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(16))
        secret, token = secrets.token_urlsafe(30), secrets.token_urlsafe(120)
        self[access_key_id] = SessionToken(principal_key, secret, token, expiration)
        return {"AccessKeyId": access_key_id, "SecretAccessKey": secret, "SessionToken": token}

    def principal_key(self, access_key_id: str) -> str:
        """Returns the access key that one stands for, or itself."""
        return self[access_key_id].principal_key if access_key_id in self else access_key_id


def install(root_key_id: str, tokens: SessionTokens) -> None:
    """Patches moto's STS.

    GetCallerIdentity returns the root's ARN for the root key, for which moto returns "user/moto"; AssumeRole takes managed
    session policies, which moto ignores. moto's credentials of GetSessionToken and GetFederationToken are examples, which no
    account has issued: the former are those of ``tokens``, the latter is not supported.

    Args:
        root_key_id: the root's access key.
        tokens: the credentials of GetSessionToken.
    """

    def get_session_token(self: TokenResponse) -> ActionResult:
        caller = _moto_get_access_key(self)
        if caller.startswith("ASIA"):  # an AssumedRole's, or one of these
            raise _AccessDenied("AccessDenied", "Cannot call GetSessionToken with session credentials")
        answer: ActionResult = _moto_get_session_token(self)
        credentials = answer._result["Credentials"]
        if caller == root_key_id:
            longest = utcnow() + timedelta(seconds=_MOST_SECONDS_OF_ROOT)
            credentials["Expiration"] = min(credentials["Expiration"], longest)
        credentials |= tokens.issue(caller, credentials["Expiration"])
        return answer

    def get_federation_token(self: TokenResponse) -> ActionResult:
        raise NotImplementedError("GetFederationToken")

    def get_caller_identity(self: STSBackend, access_key_id: str, region: str) -> tuple[str, str, str]:
        if access_key_id == root_key_id:
            return self.account_id, f"arn:aws:iam::{self.account_id}:root", self.account_id
        known: tuple[str, str, str] = _moto_get_caller_identity(self, access_key_id, region)
        return known

    patch(STSBackend, "get_caller_identity", get_caller_identity, "self, access_key_id, region")
    patch(TokenResponse, "assume_role", _assume_role, "self")
    patch(TokenResponse, "get_session_token", get_session_token, "self")
    patch(TokenResponse, "get_federation_token", get_federation_token, "self")
    patch(BaseResponse, "get_access_key", lambda self: tokens.principal_key(_moto_get_access_key(self)), "self")


def _assume_role(self: TokenResponse) -> ActionResult:
    _check_session(self)
    given = self._get_param("PolicyArns") or []
    if len(given) > _MOST_POLICIES:
        raise STSValidationError(f"policyArns must be at most {_MOST_POLICIES}, got {len(given)}")
    documents = [_managed(self.current_account, it.get("arn", "")) for it in given]
    answer: ActionResult = _moto_assume_role(self)
    setattr(answer._result["Credentials"], MANAGED, documents)
    return answer


def _check_session(request: TokenResponse) -> None:
    """Refuses what AWS refuses of a session: LocalStack's test_sts_invalid_parameters, _assume_role_tag_validation."""
    role_arn, name = request._get_param("RoleArn"), request._get_param("RoleSessionName")
    if role_arn is not None and not re.fullmatch(r"arn:[^:]+:[^:]+:[^:]*:[^:]*:.+", role_arn):
        raise STSValidationError(f"{role_arn} is invalid")
    if name is not None and not re.fullmatch(r"[\w+=,.@-]*", name, re.ASCII):
        raise STSValidationError(
            f"1 validation error detected: Value '{name}' at 'roleSessionName' failed to satisfy constraint: Member must "
            r"satisfy regular expression pattern: [\w+=,.@-]*"
        )
    keys = [tag.get("Key", "").lower() for tag in request._get_param("Tags") or []]
    if len(set(keys)) < len(keys):
        text = "Duplicate tag keys found. Please note that Tag keys are case insensitive."
        raise STSClientError("InvalidParameterValue", text)
    if any(key.lower() not in keys for key in request._get_param("TransitiveTagKeys") or []):
        text = "The specified transitive tag key must be included in the requested tags."
        raise STSClientError("InvalidParameterValue", text)


def _managed(account: str, arn: str) -> str:
    """The document of a managed policy, which must be in the role's account or AWS's (STS's API, AssumeRole, PolicyArns)."""
    try:
        return document_of(iam_backends[account]["aws"].get_policy(arn))
    except NotFoundException:
        raise STSClientError("MalformedPolicyDocument", f"the account has no managed policy {arn}") from None


def session_name(service: str, source_arn: str = "") -> str:
    """Returns the role session name that a service uses.

    SageMaker's is that of AWS, and so is that of a function, its name, which must have two characters (LocalStack's recorded
    test_assume_role).
    """
    if service == "lambda.amazonaws.com":
        name = source_arn.rpartition(":")[2]
        return name if len(name) > 1 else f"{name}@lambda_function"
    return {"sagemaker.amazonaws.com": "SageMaker"}.get(service, service.partition(".")[0])
