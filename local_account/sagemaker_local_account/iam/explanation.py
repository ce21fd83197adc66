"""Why a call of a principal is allowed or denied: the statements that are about its action, and what each of them lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sagemaker_local_account.iam.policies import Call, Document, mismatches, statements


def explanation(named: Mapping[str, Document], call: Call, why: str | None) -> dict[str, Any]:
    """Explains the decision on a call.

    Args:
        named: the policies that count, by name.
        call: the call with its context.
        why: why it was denied, in AWS's words; None where it is allowed.

    Returns:
        The call, the decision, and each statement that is about the action: its policy, Sid or number and effect, and what it
        ``lacks`` to match the call, empty where it does.
    """
    about: Sequence[dict[str, Any]] = [
        {
            "policy": name,
            "statement": statement.get("Sid") or str(number),
            "effect": statement.get("Effect"),
            "lacks": lacks,
        }
        for name, document in named.items()
        for number, statement in enumerate(statements(document), 1)
        if (lacks := mismatches(statement, call)) is not None
    ]
    return {
        "action": call.action,
        "resource": call.resource,
        "decision": "allowed" if why is None else "denied",
        "why": why,
        "statements": about,
        "policies": [*named],
    }
