"""Which statements of identity-based policies allowed what principals called: least privilege, measured.

Each call that was allowed is held against the Allow statements of its caller.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sagemaker_local_account.iam.policies import Call, Document, UnsupportedCondition, applies, matches_of, statements

_MOST_EXAMPLES = 3  # resources of a pattern that are kept


@dataclass
class Use:
    """What a statement allowed.

    Args:
        actions: for each of its actions, as the statement has it, the actions that were called.
        resources: for each of its resources, as the statement has it, some resources that were called.
        alone: whether it was the only statement of the caller that allowed one of the calls.
    """

    actions: dict[str, set[str]] = field(default_factory=dict)
    resources: dict[str, list[str]] = field(default_factory=dict)
    alone: bool = False


class PermissionUse:
    """What the statements of each principal's policies allowed since the account started."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, str], Use] = {}
        self._lock = threading.Lock()

    def record(self, principal: str, policies: Iterable[Document], call: Call) -> None:
        """Holds a call that was allowed against the Allow statements of its caller.

        Args:
            principal: the ARN of the role or user.
            policies: its identity-based policies.
            call: the call with its context.
        """
        allowing = [
            statement for document in policies for statement in statements(document) if _allows(statement, call)
        ]
        with self._lock:
            for statement in allowing:
                use = self._uses.setdefault((principal, _key(statement)), Use())
                actions, resources = matches_of(statement, call)
                for text in actions:
                    use.actions.setdefault(text, set()).add(call.action)
                for text in resources:
                    examples = use.resources.setdefault(text, [])
                    if call.resource not in examples and len(examples) < _MOST_EXAMPLES:
                        examples.append(call.resource)
                use.alone |= len(allowing) == 1

    def report(self, principal: str, policies: Mapping[str, Document]) -> list[dict[str, Any]]:
        """Returns each Allow statement of a principal with what it allowed.

        Args:
            principal: the ARN of the role or user.
            policies: its identity-based policies by name.

        Returns:
            For each statement the policy's name, the statement's Sid or number, its ``actions`` and ``resources``, each with what
            was called by it, and whether it was ``needed``: the only statement that allowed one of the calls. A statement
            with NotAction or NotResource has none of these by name.
        """
        rows = []
        with self._lock:
            for name, document in policies.items():
                for number, statement in enumerate(statements(document), 1):
                    if statement.get("Effect") != "Allow":
                        continue
                    use = self._uses.get((principal, _key(statement)), Use())
                    rows.append(
                        {
                            "policy": name,
                            "statement": statement.get("Sid") or str(number),
                            "actions": {
                                text: sorted(use.actions.get(text, ())) for text in _listed(statement, "Action")
                            },
                            "resources": {text: use.resources.get(text, []) for text in _listed(statement, "Resource")},
                            "used": bool(use.actions),
                            "needed": use.alone,
                        }
                    )
        return rows


def _allows(statement: Mapping[str, Any], call: Call) -> bool:
    try:
        return statement.get("Effect") == "Allow" and applies(statement, call)
    except UnsupportedCondition:
        return False


def _key(statement: Mapping[str, Any]) -> str:
    return json.dumps(statement, sort_keys=True)


def _listed(statement: Mapping[str, Any], element: str) -> Sequence[str]:
    value = statement.get(element, statement.get(f"Not{element}", []))
    return value if isinstance(value, list) else [value]
