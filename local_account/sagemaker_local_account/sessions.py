"""The credentials by which services of the account act as roles: what STS gives for AssumeRole."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from moto.sts.models import STSBackend, sts_backends

from .patches import patch
from .permissions import Permissions
from .state import ACCOUNT_ID, REGION

_moto_get_caller_identity = STSBackend.get_caller_identity

_SECONDS = 12 * 3600
_RENEWED_AFTER = 10 * 3600


class Sessions:
    """Credentials per role and service, renewed before they end."""

    def __init__(self, permissions: Permissions) -> None:
        self._permissions = permissions
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[float, dict[str, str]]] = {}

    def of(self, role_arn: str, service: str, source_arn: str) -> Mapping[str, str]:
        """AWS_* variables that act as a role, as ``service`` (like "sagemaker.amazonaws.com") takes it on.

        ``source_arn`` is the job or state machine that it takes it on for.

        Raises:
            LookupError: the account has no such role, or its trust policy does not let the service assume it.
        """
        self._permissions.check_trust(role_arn, service, source_arn)
        with self._lock:
            since, keys = self._known.get((role_arn, service), (0.0, {}))
            if time.monotonic() - since < _RENEWED_AFTER and keys:
                return keys
            session = sts_backends[ACCOUNT_ID]["aws"].assume_role(
                region_name=REGION,
                role_session_name=session_name(service),
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
            self._known[role_arn, service] = (time.monotonic(), keys)
            return keys


def install(root_key_id: str) -> None:
    """moto calls whom it does not know "user/moto"; the account's root is its root."""

    def get_caller_identity(self: STSBackend, access_key_id: str, region: str) -> tuple[str, str, str]:
        if access_key_id == root_key_id:
            return self.account_id, f"arn:aws:iam::{self.account_id}:root", self.account_id
        known: tuple[str, str, str] = _moto_get_caller_identity(self, access_key_id, region)
        return known

    patch(STSBackend, "get_caller_identity", get_caller_identity, "self, access_key_id, region")


def session_name(service: str) -> str:
    """What a service calls its sessions; SageMaker's are called so on AWS."""
    return {"sagemaker.amazonaws.com": "SageMaker"}.get(service, service.partition(".")[0])
