"""Which permissions were used since the account started, and why a call is denied."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attacks import Refused, World
from running_account import Running
from test_enforced import ACCOUNT, TRUST, Role, allow, code_and_message, document
from typer.testing import CliRunner

from sagemaker_local_account.cli import app
from sagemaker_local_account.cli_permissions import lines, unused
from sagemaker_local_account.control_api import call_operation
from sagemaker_local_account.core.state import AccountError

BUCKET = "arn:aws:s3:::permission-use"


@pytest.fixture(scope="module", autouse=True)
def bucket(running: Running) -> str:
    running.client("s3").create_bucket(Bucket="permission-use")
    return "permission-use"


def rows_of(running: Running, role: str) -> list[dict[str, Any]]:
    return running.account.permissions()[f"arn:aws:iam::{ACCOUNT}:role/{role}"]


def explained(running: Running, *arguments: str, **context: str) -> dict[str, Any]:
    principal, action, resource = arguments
    call = {"principal": principal, "action": action, "resource": resource, "context": context}
    return dict(call_operation(running.account.description, "ExplainCall", {"call": call}))


def test_a_statement_has_the_actions_and_resources_that_were_called_by_it(running: Running) -> None:
    write = {"Sid": "Write", **allow("s3:PutObject", f"{BUCKET}/*"), "Action": ["s3:PutObject", "s3:DeleteObject"]}
    read = allow("s3:Get*", f"{BUCKET}/in/*")
    client = Role(running, "writes", write, read, allow("sns:*")).client("s3")
    for key in ("a", "b", "c", "d"):
        client.put_object(Bucket="permission-use", Key=key, Body=b"")
    first, second, third = rows_of(running, "writes")
    assert first == {
        "policy": "p",
        "statement": "Write",
        "actions": {"s3:PutObject": ["s3:PutObject"], "s3:DeleteObject": []},
        "resources": {f"{BUCKET}/*": [f"{BUCKET}/a", f"{BUCKET}/b", f"{BUCKET}/c"]},  # examples
        "used": True,
        "needed": True,
    }
    assert (second["statement"], second["actions"], second["used"]) == ("2", {"s3:Get*": []}, False)
    assert third["resources"] == {"*": []}


def test_a_call_that_was_denied_uses_nothing(running: Running) -> None:
    role = Role(
        running,
        "denied",
        allow("s3:PutObject", f"{BUCKET}/*"),
        {"Effect": "Deny", "Action": "s3:PutObject", "Resource": f"{BUCKET}/secret/*"},
    )
    code_and_message(lambda: role.client("s3").put_object(Bucket="permission-use", Key="secret/a", Body=b""))
    [only] = rows_of(running, "denied")
    assert not only["used"]


def test_a_statement_is_not_needed_where_others_allow_all_that_it_does(running: Running) -> None:
    wide, narrow = allow("s3:PutObject", f"{BUCKET}/*"), allow("s3:PutObject", f"{BUCKET}/models/*")
    client = Role(running, "twice", wide, narrow).client("s3")
    client.put_object(Bucket="permission-use", Key="models/a", Body=b"")
    assert [row["needed"] for row in rows_of(running, "twice")] == [False, False]  # of two, either could go
    client.put_object(Bucket="permission-use", Key="other/a", Body=b"")
    assert [(row["used"], row["needed"]) for row in rows_of(running, "twice")] == [(True, True), (True, False)]


def test_a_statement_that_was_changed_counts_from_then_on(running: Running) -> None:
    role = Role(running, "changed", allow("s3:PutObject", f"{BUCKET}/*"))
    role.client("s3").put_object(Bucket="permission-use", Key="a", Body=b"")
    changed = document(allow("s3:PutObject", f"{BUCKET}/b*"))
    running.client("iam").put_role_policy(RoleName="changed", PolicyName="p", PolicyDocument=changed)
    assert [row["used"] for row in rows_of(running, "changed")] == [False]


def test_a_managed_policy_has_its_arn(running: Running) -> None:
    arn = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
    iam = running.client("iam")
    iam.create_role(RoleName="managed", AssumeRolePolicyDocument=document(TRUST))
    iam.attach_role_policy(RoleName="managed", PolicyArn=arn)
    assert {row["policy"] for row in rows_of(running, "managed")} == {arn}


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (allow("s3:GetObject", f"{BUCKET}/in/*"), f"its Resource is {BUCKET}/in/*, and that of the call {BUCKET}/key"),
        (
            {"Effect": "Allow", "Action": "s3:GetObject", "NotResource": f"{BUCKET}/k*"},
            f"its NotResource is {BUCKET}/k*, and that of the call {BUCKET}/key",
        ),
        (
            {**allow("s3:GetObject"), "Condition": {"StringEquals": {"aws:RequestedRegion": ["eu-west-1"]}}},
            "StringEquals of aws:RequestedRegion wants eu-west-1, and the call has us-east-1",
        ),
        (
            {**allow("s3:GetObject"), "Condition": {"StringEquals": {"aws:SourceVpce": "vpce-1"}}},
            "the condition key aws:SourceVpce is not evaluated here",
        ),
    ],
)
def test_an_explanation_says_what_a_statement_about_the_action_lacks(
    running: Running, statement: dict[str, Any], said: str, request: pytest.FixtureRequest
) -> None:
    name = f"lacks-{abs(hash(request.node.name))}"
    Role(running, name, statement)
    found = explained(running, name, "s3:GetObject", f"{BUCKET}/key")
    assert found["decision"] == "denied"
    assert [(row["policy"], row["statement"], row["lacks"]) for row in found["statements"]] == [("p", "1", [said])]


def test_an_explanation_has_what_denies_and_what_the_resources_policy_allows(running: Running) -> None:
    role = Role(running, "explained", allow("s3:*", f"{BUCKET}/*"))
    s3 = running.client("s3")
    denies = {
        "Sid": "No",
        "Effect": "Deny",
        "Principal": {"AWS": role.arn},
        "Action": "s3:GetObject",
        "Resource": f"{BUCKET}/x",
    }
    s3.put_bucket_policy(Bucket="permission-use", Policy=document(denies))
    try:
        found = explained(running, "explained", "s3:GetObject", f"{BUCKET}/x")
        assert found["why"] == "with an explicit deny in a resource-based policy"
        matching = [(row["effect"], row["statement"]) for row in found["statements"] if not row["lacks"]]
        assert matching == [("Allow", "1"), ("Deny", "No")]
        assert explained(running, "explained", "s3:GetObject", f"{BUCKET}/y")["decision"] == "allowed"
    finally:
        s3.delete_bucket_policy(Bucket="permission-use")


def test_an_explanation_takes_the_condition_keys_of_the_call(running: Running) -> None:
    tagged = {**allow("sqs:CreateQueue"), "Condition": {"StringEquals": {"aws:RequestTag/team": "vision"}}}
    Role(running, "tagged", tagged)
    arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:queue"
    assert explained(running, "tagged", "sqs:CreateQueue", arn)["decision"] == "denied"
    allowed = explained(running, "tagged", "sqs:CreateQueue", arn, **{"aws:RequestTag/team": "vision"})
    assert allowed["decision"] == "allowed"


def test_without_a_call_the_last_one_that_was_denied_is_explained_by_the_policies_as_they_are_now(
    running: Running,
) -> None:
    role = Role(running, "last", allow("s3:GetObject", f"{BUCKET}/in/*"))
    code_and_message(lambda: role.client("s3").put_object(Bucket="permission-use", Key="k", Body=b""))
    found = call_operation(running.account.description, "ExplainCall", {})
    assert (found["principal"], found["action"], found["resource"]) == (role.arn, "s3:PutObject", f"{BUCKET}/k")
    assert (found["decision"], found["statements"]) == ("denied", [])
    mended = document(allow("s3:PutObject", f"{BUCKET}/*"))
    running.client("iam").put_role_policy(RoleName="last", PolicyName="p", PolicyDocument=mended)
    assert call_operation(running.account.description, "ExplainCall", {})["decision"] == "allowed"


def test_a_principal_that_is_not_there_is_named(running: Running) -> None:
    with pytest.raises(AccountError, match="the account has no role 'arn:aws:iam::123456789012:role/nobody'"):
        explained(running, "nobody", "s3:GetObject", "*")


def test_a_role_of_the_account_cannot_ask_for_either(running: Running) -> None:
    world = World(running)
    keys = world.signing(world.keys(Role(running, "curious", allow("*"))))
    for operation in ("ListPermissionUse", "ExplainCall"):
        target = {"X-Amz-Target": f"LocalAccount.{operation}", "Content-Type": "application/x-amz-json-1.1"}
        with pytest.raises(Refused, match="only the account's root"):
            world.send("local-account", "{}", target, keys=keys)


def typed(running: Running, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["--state", str(running.account.state), *arguments])
    if isinstance(done.exception, AccountError):
        return 1, str(done.exception)
    return done.exit_code, done.output


def test_the_command_shows_what_was_never_used_and_can_fail_by_it(running: Running) -> None:
    role = Role(running, "shown", allow("s3:PutObject", f"{BUCKET}/*"), allow("sns:Publish"))
    role.client("s3").put_object(Bucket="permission-use", Key="a", Body=b"")
    code, text = typed(running, "permissions", "role/shown", "--check", "--wildcards")
    assert (code, text.splitlines()) == (
        1,
        [
            "role/shown: 1 of 2 statements used whole",
            "  p",
            f"    statement 1 {BUCKET}/* was {BUCKET}/a",
            "    statement 2 never used: sns:Publish on *",
        ],
    )
    narrowed = document(allow("s3:PutObject", f"{BUCKET}/*"))
    running.client("iam").put_role_policy(RoleName="shown", PolicyName="p", PolicyDocument=narrowed)
    assert typed(running, "permissions", "role/shown", "--check") == (0, "role/shown: 1 of 1 statements used whole\n")
    assert json.loads(typed(running, "permissions", "role/shown", "--json")[1]).keys() == {role.arn}
    assert typed(running, "permissions", "no-such-role") == (1, "no role or user has 'no-such-role' in its ARN")


def test_the_command_explains_a_call_in_lines(running: Running) -> None:
    Role(running, "lines", allow("s3:GetObject", f"{BUCKET}/in/*"))
    arn = f"arn:aws:iam::{ACCOUNT}:role/lines"
    assert typed(running, "explain", "lines", "s3:GetObject", f"{BUCKET}/k")[1].splitlines() == [
        arn,
        f"s3:GetObject on {BUCKET}/k",
        "denied because no identity-based policy allows the s3:GetObject action",
        f"  Allow, statement 1 of p: its Resource is {BUCKET}/in/*, and that of the call {BUCKET}/k",
    ]
    assert typed(running, "explain", "lines", "s3:PutObject", f"{BUCKET}/k")[1].splitlines()[-1] == (
        "  no statement is about the action, in p"
    )
    assert typed(running, "explain", "lines")[1].startswith("explain takes PRINCIPAL ACTION [RESOURCE]")
    assert "--context must be KEY=VALUE" in typed(running, "explain", "lines", "s3:GetObject", "--context", "x")[1]


def test_an_action_of_several_of_which_one_was_called_is_not_used_whole() -> None:
    row = {"policy": "p", "statement": "1", "used": True, "needed": True}
    row |= {"actions": {"s3:GetObject": ["s3:GetObject"], "s3:PutObject": []}, "resources": {"*": ["*"]}}
    assert unused(row)
    assert "actions never used: s3:PutObject" in list(lines({"arn:aws:iam::1:role/r": [row]}))[-1]
