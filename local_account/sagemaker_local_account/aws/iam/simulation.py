"""IAM's SimulatePrincipalPolicy, whether policies are enforced or not.

SageMaker's Python SDK calls it for a job's role before it creates the job, and rejects a role without the permissions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moto.core.responses import ActionResult
from moto.iam.exceptions import InvalidInput, NoSuchEntity
from moto.iam.responses import IamResponse

from sagemaker_local_account.core.patches import add
from sagemaker_local_account.iam.authorizer import Authorizer, Caller
from sagemaker_local_account.iam.policies import Call, Document, UnsupportedCondition, effect_of

_MEMBERS = frozenset(
    {"PolicySourceArn", "ActionNames", "ResourceArns", "ContextEntries", "PolicyInputList", "MaxItems", "Marker"}
)


def install(authorizer: Authorizer) -> None:
    """Adds the operation, which moto lacks, to moto's IAM."""

    def simulate_principal_policy(response: Any) -> Any:
        results = simulated(authorizer, response._get_params())
        return ActionResult({"EvaluationResults": results, "IsTruncated": False})

    add(IamResponse, "simulate_principal_policy", simulate_principal_policy)


def simulated(authorizer: Authorizer, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the EvaluationResult of each action on each resource, all in one page.

    Raises:
        InvalidInput: the request uses a member, or a policy a condition, that is not supported.
        NoSuchEntity: the account has no such role or user.
    """
    if unknown := sorted(request.keys() - _MEMBERS - {"Action", "Version"}):
        raise InvalidInput(f"the local account does not evaluate {', '.join(unknown)} in SimulatePrincipalPolicy")
    try:
        principal = authorizer.principal(request["PolicySourceArn"])
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
        return [_result(principal, [*principal.policies.values(), *more], call) for call in calls]
    except UnsupportedCondition as error:
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
    return {"Allow": "allowed", "Deny": "explicitDeny", None: "implicitDeny"}[effect_of(documents, call)]
