"""The account's evaluation of policies beside an independent implementation of IAM's, @cloud-copilot/iam-simulate.

What it denies, the account denies; where the account denies more, it is for one of the reasons that are listed.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from generated_policies import ACCOUNT, Case, Drawn

from sagemaker_local_account.iam.authorizer import Caller, why_denied
from sagemaker_local_account.iam.policies import Call, UnsupportedCondition, principals

PROGRAM = Path(__file__).with_name("simulate.mjs")


def simulated(cases: list[Case]) -> list[dict[str, Any]]:
    """The other implementation's answers."""
    lines = []
    for case in cases:
        request = {
            "principal": case.principal,
            "action": case.action,
            "resource": {"resource": case.resource, "accountId": ACCOUNT},
            "contextVariables": case.context,
        }
        given = {
            "request": request,
            "identityPolicies": [{"name": str(n), "policy": policy} for n, policy in enumerate(case.identity)],
            "serviceControlPolicies": [
                {
                    "orgIdentifier": str(n),
                    "policies": [{"name": f"{n}-{number}", "policy": policy} for number, policy in enumerate(level)],
                }
                for n, level in enumerate(case.organization)
            ],
            "resourceControlPolicies": [],
            "resourcePolicy": case.of_resource,
            "permissionBoundaryPolicies": [{"name": "boundary", "policy": case.boundary}] if case.boundary else None,
            "sessionPolicy": case.session,
        }
        lines.append(json.dumps({name: value for name, value in given.items() if value is not None}))
    done = subprocess.run(["node", PROGRAM], input="\n".join(lines), stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def ours(case: Case, ignored: list[str]) -> str | None:
    """Why the account denies a case; None where it allows it. Of a key that the action does not have it knows nothing."""
    context = {
        key.lower(): tuple(value) if isinstance(value, list) else (value,)
        for key, value in case.context.items()
        if key not in ignored
    }
    caller = Caller(
        case.principal,
        case.identity_arn,
        "User" if case.is_user else "AssumedRole",
        {str(number): document for number, document in enumerate(case.identity)},
        [case.boundary] if case.boundary else None,
        [case.session] if case.session else None,
        case.organization,
    )
    call = Call(case.action, case.resource, {"aws:resourcetag/": (), **context})
    try:
        return why_denied(caller, call, [case.of_resource] if case.of_resource else [])
    except UnsupportedCondition as error:
        return f"unsupported: {error}"


def _is_for_everyone(statement: dict[str, Any]) -> bool:
    return ("AWS", "*") in principals(statement.get("Principal"))


def reason(case: Case, why: str) -> str:
    """Why the account may deny what the other implementation allows; "" for no reason."""
    if "has not the six parts of an ARN" in why:
        return "a condition's pattern has fewer parts than an ARN, of which no page says what it matches"
    statements = case.of_resource["Statement"] if case.of_resource else []
    if "explicit deny in a resource-based policy" in why and any("NotPrincipal" in one for one in statements):
        return (
            'a NotPrincipal that names the account, or everyone, exempts nobody: "all principals except" whom it names'
        )
    if "session policy" in why and any(one["Effect"] == "Allow" for one in statements):
        return "what a resource's policy grants a session by its own ARN passes by its session policy on AWS"
    if "boundary" in why and any(one["Effect"] == "Allow" and _is_for_everyone(one) for one in statements):
        return (
            "what a resource's policy grants everyone is bounded: IAM's guide says so of roles, and nothing of sessions"
        )
    return ""


def compared(number: int, seed: int) -> Counter[str]:
    """How many cases there are of each reason for a difference, and of none."""
    drawn = Drawn(seed)
    cases = [drawn.case() for _ in range(number)]
    found: Counter[str] = Counter()
    opened, closed = [], []
    for case, answer in zip(cases, simulated(cases), strict=True):
        assert "error" not in answer, (case, answer)
        allowed, why = answer["decision"] == "Allowed", ours(case, answer["ignored"])
        found["allowed" if allowed else "denied"] += 1
        if why is None and not allowed:
            opened.append((case, answer))
        if why is not None and allowed:
            found[reason(case, why)] += 1
            if not reason(case, why):
                closed.append((case, why))
    assert opened == []
    assert closed == []
    return found


def test_what_iam_denies_the_account_denies_and_what_it_allows_too_but_for_reasons() -> None:
    found = compared(3_000, 1)
    # The cases are of both kinds, and the reasons few.
    assert found["allowed"] > 600
    assert found["denied"] > 1_500
    assert found.total() - 3_000 < 60


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 6))
def test_of_twenty_thousand_cases_none_is_allowed_that_iam_denies(seed: int) -> None:
    print(compared(5_000, seed))


def policy(effect: str = "Allow", **members: Any) -> dict[str, Any]:
    statement = {"Effect": effect, "Action": "*", "Resource": "*", **members}
    return {"Version": "2012-10-17", "Statement": [statement]}


def case_of(action: str, *identity: dict[str, Any], **members: Any) -> Case:
    context: dict[str, str | list[str]] = {"aws:PrincipalAccount": ACCOUNT, **members.pop("context", {})}
    given = {"is_user": False, "of_resource": None, "boundary": None, "session": None, **members}
    return Case(action, context=context, identity=[*identity], **given)


EXAMPLES = {
    "a wildcard does not span segments": case_of(
        "states:StartExecution", policy(Resource="arn:aws:states:*:stateMachine:Train")
    ),
    "a wildcard in the last segment matches colons": case_of(
        "states:DescribeExecution", policy(Resource=f"arn:aws:states:us-east-1:{ACCOUNT}:exec*")
    ),
    "an incomplete ARN is completed": case_of("sqs:SendMessage", policy(Resource="arn:aws:sqs")),
    "a variable before the fifth colon matches nothing": case_of(
        "sqs:SendMessage", policy(Resource="arn:aws:sqs:us-east-1:${aws:PrincipalAccount}:queue")
    ),
    "ForAnyValue of a missing key is false": case_of(
        "s3:GetObject", policy(Condition={"ForAnyValue:StringNotEquals": {"aws:TagKeys": ["team"]}})
    ),
    "a NotPrincipal that names a role exempts its sessions": case_of(
        "sqs:SendMessage",
        policy(),
        of_resource=policy("Deny", NotPrincipal={"AWS": f"arn:aws:iam::{ACCOUNT}:role/Role"}),
    ),
    "a NotPrincipal denies whoever has a boundary": case_of(
        "sqs:SendMessage",
        policy(),
        is_user=True,
        boundary=policy(),
        of_resource=policy("Deny", NotPrincipal={"AWS": f"arn:aws:iam::{ACCOUNT}:user/person"}),
    ),
}

ALLOWED = (
    "a wildcard in the last segment matches colons",
    "a NotPrincipal that names a role exempts its sessions",
    "an incomplete ARN is completed",
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_decided_as_iam_decides_it(name: str) -> None:
    [answer] = simulated([EXAMPLES[name]])
    allowed = name in ALLOWED
    assert (answer["decision"] == "Allowed", ours(EXAMPLES[name], answer["ignored"]) is None) == (allowed, allowed)


@pytest.mark.parametrize(
    ("operator", "key", "wanted"),
    [
        ("NumericEquals", "sagemaker:MaxRuntimeInSeconds", "many"),
        ("DateLessThan", "aws:CurrentTime", "tomorrow"),
        ("IpAddress", "aws:SourceArn", "not an address"),
        ("ArnLike", "aws:PrincipalAccount", "arn:aws:*"),
    ],
)
def test_a_condition_that_cannot_be_compared_is_a_deny_with_its_reason(operator: str, key: str, wanted: str) -> None:
    context: dict[str, str | list[str]] = {
        "sagemaker:MaxRuntimeInSeconds": "60",
        "aws:CurrentTime": "2026-11-27T12:00:00Z",
    }
    context |= {"aws:SourceArn": "127.0.0.1"}
    for effect in ("Allow", "Deny"):
        given = policy(effect, Condition={operator: {key: wanted}})
        why = ours(case_of("s3:GetObject", *([policy()] if effect == "Deny" else []), given, context=context), [])
        assert why is not None
        assert f"the condition {operator} of {key} and {wanted}" in why
