"""Rejects cryptographic operations with keys that are disabled or pending deletion, which moto performs in any state.

Source: "Key states of AWS KMS keys" in KMS's developer guide.
"""

from __future__ import annotations

import functools
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.kms.models import KmsBackend

from sagemaker_local_account.core.patches import patch


def install() -> None:
    """Patches moto's operations that use a key."""
    patch(KmsBackend, "decrypt", _decrypt, "self, ciphertext_blob, encryption_context, key_id")
    for name, parameters in _OPERATIONS.items():
        patch(KmsBackend, name, _require_enabled_key(name), parameters)


def _require_enabled_key(name: str) -> Any:
    operation = getattr(KmsBackend, name)

    @functools.wraps(operation)
    def checked(self: KmsBackend, key_id: str, *args: Any, **details: Any) -> Any:
        _check(self.keys.get(self.any_id_to_key_id(key_id)))
        return operation(self, key_id, *args, **details)

    return checked


def _decrypt(self: KmsBackend, ciphertext_blob: bytes, *args: Any, **details: Any) -> Any:
    # moto's ciphertext begins with the key's id.
    if ciphertext_blob is not None:
        _check(self.keys.get(ciphertext_blob[:36].decode(errors="replace")))
    return _moto_decrypt(self, ciphertext_blob, *args, **details)


_moto_decrypt = KmsBackend.decrypt
_OPERATIONS = {
    "encrypt": "self, key_id, plaintext, encryption_context",
    "generate_data_key": "self, key_id, encryption_context, number_of_bytes, key_spec",
    "create_grant": "self, key_id, grantee_principal, operations, name, constraints, retiring_principal",
}


def _check(key: Any) -> None:
    if key is None:
        return  # moto itself answers NotFoundException
    if key.key_state == "PendingDeletion":
        raise JsonRESTError("KMSInvalidStateException", f"{key.arn} is pending deletion.")
    if not key.enabled:
        raise JsonRESTError("DisabledException", f"{key.arn} is disabled.")
