"""Service control policies of the organization that the account is in, as a member.

Source: "SCP evaluation" in AWS Organizations' guide: each level, from the root to the account, must allow an action, and a new
level has FullAWSAccess. Their roles and users are bound by them; the account's root user is too on AWS, and is not here, since it
stands for whoever has the machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sagemaker_local_account.core.state import AccountError

_FULL_ACCESS = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


def levels_of(files: Sequence[Path | str]) -> list[list[dict[str, Any]]]:
    """Returns the policies of each level, one for each file, with FullAWSAccess beside a policy that only denies.

    Raises:
        AccountError: a file cannot be read, or is no policy.
    """
    return [_level(Path(file)) for file in files]


def _level(file: Path) -> list[dict[str, Any]]:
    expected = (
        f"scp must be a file with a service control policy in JSON, like org/deny-regions.json, got {str(file)!r}"
    )
    try:
        policy = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise AccountError(f"{expected}: {error}") from None
    statements = policy.get("Statement") if isinstance(policy, dict) else None
    statements = [statements] if isinstance(statements, dict) else statements
    if not isinstance(statements, list) or not statements:
        raise AccountError(f"{expected}, which has no Statement")
    for number, statement in enumerate(statements):
        if not isinstance(statement, dict) or statement.get("Effect") not in ("Allow", "Deny"):
            raise AccountError(f"{expected}, whose Statement[{number}] has no Effect that is Allow or Deny")
        if not {"Action", "NotAction"} & statement.keys() or {"Principal", "NotPrincipal"} & statement.keys():
            raise AccountError(f"{expected}, whose Statement[{number}] must have Action or NotAction, and no Principal")
    allows = any(statement["Effect"] == "Allow" for statement in statements)
    return [policy] if allows else [policy, _FULL_ACCESS]
