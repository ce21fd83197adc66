"""What policy documents say about calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sagemaker_local_account.iam.authorizer import Caller, why_denied
from sagemaker_local_account.iam.policies import Call, UnsupportedCondition, effect_of


def allow(**statement: Any) -> dict[str, Any]:
    return {"Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*", **statement}]}


def deny(**statement: Any) -> dict[str, Any]:
    return allow(**{"Effect": "Deny", **statement})


READ = Call("s3:GetObject", "arn:aws:s3:::bucket/images/1.png", {"aws:principalaccount": ("123456789012",)})


def test_what_no_statement_is_about_is_not_allowed() -> None:
    assert effect_of([], READ) is None
    assert effect_of([allow(Action="s3:PutObject")], READ) is None


def test_a_deny_beats_every_allow() -> None:
    assert effect_of([allow(), deny(Resource="arn:aws:s3:::bucket/images/*")], READ) == "Deny"


@pytest.mark.parametrize(
    ("statement", "applies"),
    [
        ({"Action": "S3:getobject"}, True),
        ({"Action": ["s3:List*", "s3:Get*"]}, True),
        ({"Action": "s3:Get?bject"}, True),
        ({"NotAction": "s3:GetObject"}, False),
        ({"NotAction": "s3:Put*"}, True),
        ({"Resource": "arn:aws:s3:::bucket/*"}, True),
        ({"Resource": "arn:aws:s3:::BUCKET/*"}, False),
        ({"Resource": "arn:aws:s3:::bucket"}, False),
        ({"Resource": ["arn:aws:s3:::other/*", "arn:aws:s3:::bucket/images/?.png"]}, True),
        ({"NotResource": "arn:aws:s3:::bucket/images/*"}, False),
        ({"NotResource": "arn:aws:s3:::bucket/secret/*"}, True),
        ({"Resource": "arn:aws:s3:::bucket/${aws:PrincipalAccount}/*"}, False),
        ({"Resource": "arn:aws:s3:::bucket/images/${*}.png"}, False),
    ],
)
def test_actions_and_resources_match_as_iam_documents_it(statement: dict[str, Any], applies: bool) -> None:
    document = allow(**statement)
    if "NotAction" in statement:
        del document["Statement"][0]["Action"]
    if "NotResource" in statement:
        del document["Statement"][0]["Resource"]
    assert (effect_of([document], READ) == "Allow") is applies


@pytest.mark.parametrize(
    ("condition", "context", "holds"),
    [
        ({"StringEquals": {"s3:prefix": "a"}}, {"s3:prefix": ("a",)}, True),
        ({"StringEquals": {"s3:prefix": ["b", "a"]}}, {"s3:prefix": ("a",)}, True),
        ({"StringEquals": {"s3:prefix": "a"}}, {"s3:prefix": ("A",)}, False),
        ({"StringEquals": {"S3:Prefix": "a"}}, {"s3:prefix": ("a",)}, True),
        ({"StringEqualsIgnoreCase": {"s3:prefix": "a"}}, {"s3:prefix": ("A",)}, True),
        ({"StringLike": {"s3:prefix": "images/*"}}, {"s3:prefix": ("images/1",)}, True),
        ({"StringLike": {"s3:prefix": "images/*"}}, {}, False),
        ({"StringLikeIfExists": {"s3:prefix": "images/*"}}, {}, True),
        ({"StringNotLike": {"s3:prefix": "images/*"}}, {"s3:prefix": ("images/1",)}, False),
        ({"StringNotEquals": {"s3:prefix": "a"}}, {}, True),
        ({"Null": {"s3:prefix": True}}, {}, True),
        ({"Null": {"s3:prefix": "true"}}, {"s3:prefix": ("a",)}, False),
        ({"Bool": {"aws:SecureTransport": False}}, {"aws:securetransport": ("true",)}, False),
        ({"NumericLessThanEquals": {"sagemaker:MaxRuntimeInSeconds": 3600}}, {}, False),
        ({"NumericLessThan": {"sagemaker:MaxRuntimeInSeconds": 9}}, {"sagemaker:maxruntimeinseconds": ("10",)}, False),
        ({"ArnLike": {"aws:SourceArn": "arn:aws:states:*:*:stateMachine:*"}}, {}, False),
        (
            {"DateLessThan": {"aws:CurrentTime": "2030-01-01T00:00:00Z"}},
            {"aws:currenttime": ("2026-01-01T00:00:00Z",)},
            True,
        ),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a", "b"]}}, {"aws:tagkeys": ("a",)}, True),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a"]}}, {"aws:tagkeys": ("a", "c")}, False),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a"]}}, {}, True),
        ({"ForAnyValue:StringEquals": {"aws:TagKeys": ["a"]}}, {"aws:tagkeys": ("a", "c")}, True),
        ({"ForAnyValue:StringEquals": {"aws:TagKeys": ["a"]}}, {}, False),
        ({"StringNotEquals": {"s3:prefix": ["a", "b"]}}, {"s3:prefix": ("a",)}, False),
        ({"ForAllValues:StringNotEquals": {"aws:TagKeys": ["a"]}}, {"aws:tagkeys": ("a", "c")}, False),
        ({"ForAllValues:StringNotEquals": {"aws:TagKeys": ["a"]}}, {"aws:tagkeys": ("b", "c")}, True),
        ({"ForAnyValue:StringNotEquals": {"aws:TagKeys": ["a"]}}, {"aws:tagkeys": ("a", "c")}, True),
        ({"StringEquals": {"s3:prefix": "a", "s3:delimiter": "/"}}, {"s3:prefix": ("a",)}, False),
        ({"StringEquals": {"aws:RequestTag/team": "ml"}}, {"aws:requesttag/team": ("ml",)}, True),
    ],
)
def test_conditions_hold_as_iam_documents_it(
    condition: dict[str, Any], context: dict[str, tuple[str, ...]], holds: bool
) -> None:
    call = Call("s3:GetObject", "arn:aws:s3:::bucket", context)
    assert (effect_of([allow(Condition=condition)], call) == "Allow") is holds


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ({"Condition": {"StringEquals": {"aws:SourceVpc": "vpc-1"}}}, "the condition key aws:SourceVpc"),
        ({"Condition": {"BinaryEquals": {"s3:prefix": "YQ=="}}}, "the condition operator BinaryEquals"),
        ({"Resource": "arn:aws:s3:::bucket/${aws:username}/*"}, "the policy variable ${aws:username}"),
    ],
)
def test_what_is_not_evaluated_is_said(statement: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedCondition) as error:
        effect_of([allow(**statement)], READ)
    assert str(error.value) == said


def test_a_condition_that_is_not_evaluated_does_not_matter_to_a_statement_about_something_else() -> None:
    condition = {"StringEquals": {"aws:SourceVpc": "vpc-1"}}
    assert effect_of([allow(), deny(Action="s3:PutObject", Condition=condition)], READ) == "Allow"


SESSION, ROLE = "arn:aws:sts::123456789012:assumed-role/Role/session", "arn:aws:iam::123456789012:role/Role"
USER = "arn:aws:iam::123456789012:user/person"
ON_MODELS = "arn:aws:s3:::models/a"


def granted_to(principal: str) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Principal": {"AWS": principal}, "Action": "s3:GetObject", "Resource": ON_MODELS}
    return {"Statement": statement}


@pytest.mark.parametrize(
    ("caller", "principal", "why"),
    [
        (Caller(USER, USER, "User"), USER, None),
        (Caller(SESSION, ROLE, "AssumedRole"), SESSION, None),
        (Caller(SESSION, ROLE, "AssumedRole"), ROLE, "because no permissions boundary allows the s3:GetObject action"),
        (Caller(USER, USER, "User"), "*", "because no permissions boundary allows the s3:GetObject action"),
    ],
    ids=["a user", "a session", "a role", "everyone"],
)
def test_what_a_resource_grants_a_user_or_session_by_its_arn_passes_by_what_a_boundary_leaves_out(
    caller: Caller, principal: str, why: str | None
) -> None:
    elsewhere = {"Statement": {"Effect": "Allow", "Action": "sns:*", "Resource": "*"}}
    bounded = replace(caller, boundary=[elsewhere])
    call = Call("s3:GetObject", ON_MODELS)
    assert why_denied(bounded, call, [granted_to(principal)]) == why
    denies = {"Statement": {"Effect": "Deny", "Action": "s3:*", "Resource": "*"}}
    denied = why_denied(replace(caller, boundary=[denies]), call, [granted_to(principal)])
    assert denied == "with an explicit deny in a permissions boundary"
    sessions = replace(caller, session=[elsewhere])
    assert (
        why_denied(sessions, call, [granted_to(principal)])
        == "because no session policy allows the s3:GetObject action"
    )
    both = why_denied(replace(bounded, session=[elsewhere]), call, [granted_to(principal)])
    assert both == (why or "because no session policy allows the s3:GetObject action")
