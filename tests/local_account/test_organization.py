"""Service control policies of the organization that the account is in (`--scp`), by which its roles and users are bound."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_account import Running
from test_enforced import Role, allow, code_and_message

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.core.state import AccountError

DENIES = {"Effect": "Deny", "Action": "sns:CreateTopic", "Resource": "*"}
ALLOWS = {"Effect": "Allow", "Action": ["sns:*", "sqs:*"], "Resource": "*"}


def policy_file(folder: Path, name: str, content: Any) -> Path:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("account")
    levels = [
        policy_file(folder, f"{number}.json", {"Version": "2012-10-17", "Statement": it})
        for number, it in enumerate((DENIES, [ALLOWS]))
    ]
    with LocalAccount(state=folder, scp=levels) as account:
        yield Running(account)


def test_what_a_level_denies_and_what_a_level_does_not_allow_nobody_may_do_whatever_their_policies(
    running: Running,
) -> None:
    role = Role(running, "admin", allow("*"))
    role.client("sqs").create_queue(QueueName="queue")
    _, denied = code_and_message(lambda: role.client("sns").create_topic(Name="topic"))
    assert "with an explicit deny in a service control policy" in denied
    _, not_allowed = code_and_message(lambda: role.client("events").list_rules())
    assert "because no service control policy allows the events:ListRules action" in not_allowed


def test_service_control_policies_grant_nothing(running: Running) -> None:
    _, message = code_and_message(lambda: Role(running, "powerless").client("sqs").list_queues())
    assert "because no identity-based policy allows" in message


def test_the_root_user_stands_for_who_has_the_machine_and_is_not_bound(running: Running) -> None:
    running.client("sns").create_topic(Name="topic")


def test_a_denial_is_explained_by_the_policy_of_the_level(running: Running) -> None:
    Role(running, "asked", allow("*"))
    asked = {"principal": "asked", "action": "sns:CreateTopic", "resource": "*"}
    explained = running.account._services.authorizer.explain(asked)
    assert [(it["effect"], it["policy"]) for it in explained["statements"] if it["effect"] == "Deny"] == [
        ("Deny", "service control policy 1 of level 1")
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "must be a file with a service control policy in JSON"),
        ({"Version": "2012-10-17"}, "which has no Statement"),
        ({"Statement": [{"Effect": "deny", "Action": "*"}]}, "has no Effect that is Allow or Deny"),
        ({"Statement": [{**DENIES, "Principal": "*"}]}, "must have Action or NotAction, and no Principal"),
        ({"Statement": [{"Effect": "Deny", "Resource": "*"}]}, "must have Action or NotAction, and no Principal"),
    ],
)
def test_a_file_that_is_no_service_control_policy_is_refused_at_the_start(
    tmp_path: Path, content: Any, said: str
) -> None:
    file = policy_file(tmp_path, "policy.json", content)
    with pytest.raises(AccountError, match=said):
        LocalAccount(state=tmp_path, scp=[file])
