"""IAM's SimulatePrincipalPolicy: what the policies of a role or user say of an action, whether they are enforced or not.

SageMaker's Python SDK asks it of a job's role before it makes the job, and refuses a role that it denies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moto.core.responses import ActionResult
from moto.iam.exceptions import InvalidInput, NoSuchEntity
from moto.iam.responses import IamResponse

from .patches import add
from .permissions import Caller, Permissions
from .policies import Call, Document, NotEvaluated, verdict

_MEMBERS = frozenset(
    {"PolicySourceArn", "ActionNames", "ResourceArns", "ContextEntries", "PolicyInputList", "MaxItems", "Marker"}
)


def install(permissions: Permissions) -> None:
    """Let moto's IAM answer the operation, which it does not have."""

    def simulate_principal_policy(response: Any) -> Any:
        results = simulated(permissions, response._get_params())
        return ActionResult({"EvaluationResults": results, "IsTruncated": False})

    add(IamResponse, "simulate_principal_policy", simulate_principal_policy)


def simulated(permissions: Permissions, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An EvaluationResult of each action on each resource; all in one page."""
    if unknown := sorted(request.keys() - _MEMBERS - {"Action", "Version"}):
        raise InvalidInput(f"the local account does not evaluate {', '.join(unknown)} in SimulatePrincipalPolicy")
    try:
        principal = permissions.principal(request["PolicySourceArn"])
    except LookupError as error:
        raise NoSuchEntity(str(error)) from None
    more = [json.loads(text) for text in request.get("PolicyInputList", [])]
    context = {
        entry["ContextKeyName"].lower(): tuple(entry.get("ContextKeyValues", ()))
        for entry in request.get("ContextEntries", [])
    }
    calls = [
        Call(action, resource, context)
        for action in request["ActionNames"]
        for resource in request.get("ResourceArns") or ["*"]
    ]
    try:
        return [_result(principal, [*principal.policies, *more], call) for call in calls]
    except NotEvaluated as error:
        raise InvalidInput(f"{error}, which one of the policies uses, is not evaluated here") from None


def _result(principal: Caller, documents: Sequence[Document], call: Call) -> dict[str, Any]:
    result: dict[str, Any] = {
        "EvalActionName": call.action,
        "EvalResourceName": call.resource,
        "EvalDecision": _decision(documents, call),
        "MatchedStatements": [],
        "MissingContextValues": [],
    }
    if principal.boundary is not None:
        within = _decision(principal.boundary, call)
        result["PermissionsBoundaryDecisionDetail"] = {"AllowedByPermissionsBoundary": within == "allowed"}
        if within != "allowed" and result["EvalDecision"] == "allowed":
            result["EvalDecision"] = within
    return result


def _decision(documents: Iterable[Document], call: Call) -> str:
    return {"Allow": "allowed", "Deny": "explicitDeny", None: "implicitDeny"}[verdict(documents, call)]
