"""What executions on AWS were recorded to do, they do here; and of a changed interpreter fewer of these facts hold."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.stepfunctions.parser.asl.component.common.catch.catch_decl import CatchDecl
from moto.stepfunctions.parser.asl.component.common.catch.catch_outcome import CatchOutcome
from moto.stepfunctions.parser.asl.component.common.error_name.error_equals_decl import ErrorEqualsDecl
from moto.stepfunctions.parser.asl.component.common.path.input_path import InputPath
from moto.stepfunctions.parser.asl.component.common.path.result_path import ResultPath
from moto.stepfunctions.parser.asl.component.common.retry.max_attempts_decl import MaxAttemptsDecl
from moto.stepfunctions.parser.asl.component.common.retry.retry_decl import RetryDecl
from moto.stepfunctions.parser.asl.component.state.choice.comparison.comparison import (
    ComparisonCompositeAnd,
    ComparisonCompositeNot,
    ComparisonCompositeOr,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_map.item_selector import ItemSelector
from moto.stepfunctions.parser.asl.component.state.exec.state_parallel.branches_decl import BranchesDecl
from running_account import Running
from state_machines import Machines

from sagemaker_local_account.account import LocalAccount

FACTS = json.loads((Path(__file__).parent / "recorded" / "executions.json").read_text())["facts"]


class Facts:
    """State machines of the recorded executions, in an account of its own, whose clock passes their retries' intervals."""

    def __init__(self, account: LocalAccount) -> None:
        self._account, self._machines = account, Machines(Running(account), "recorded")
        client, role = self._machines.client, self._machines.role
        self._arns = [
            client.create_state_machine(name=f"fact-{n}", definition=json.dumps(fact["definition"]), roleArn=role)
            for n, fact in enumerate(FACTS)
        ]

    def unequal(self) -> list[str]:
        """The facts that do not hold: their sources, and what is here instead."""
        client = self._machines.client
        executions = [
            client.start_execution(stateMachineArn=made["stateMachineArn"], input=json.dumps(fact.get("input", {})))
            for made, fact in zip(self._arns, FACTS, strict=True)
        ]
        found = [self._found(started["executionArn"], fact) for started, fact in zip(executions, FACTS, strict=True)]
        return [text for text in found if text]

    def _found(self, execution: str, fact: dict[str, Any]) -> str:
        client = self._machines.client
        limit = time.monotonic() + 60
        while (described := client.describe_execution(executionArn=execution))["status"] == "RUNNING":
            self._account.clock.advance(10)
            if time.monotonic() > limit:
                client.stop_execution(executionArn=execution)
            time.sleep(0.02)
        history = client.get_execution_history(executionArn=execution, maxResults=1000)["events"][1:]
        events = [event["type"] for event in history]
        end = {name: described[name] for name in ("error", "cause") if name in described}
        if "output" in described:
            end["output"] = json.loads(described["output"])
        names = [event["stateEnteredEventDetails"]["name"] for event in history if event["type"].endswith("Entered")]
        if fact.get("other_cause"):  # the account's text is its own
            end.pop("cause", None)
        same = (events, end, names) == (fact.get("events", events), fact["end"], fact.get("entered", names))
        return "" if same else f"{fact.get('recorded') or fact['documented']}: {names} {events} {end}"


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Facts]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield Facts(account)


def test_executions_do_what_they_were_recorded_to_do_on_aws(facts: Facts) -> None:
    assert facts.unequal() == []


def one_attempt_more(self: MaxAttemptsDecl, env: Any) -> None:
    COUNT(self, env)
    env.stack[-1] = type(env.stack[-1])(self._access_attempt_number(env=env) <= self.attempts)


def only_the_first(retriers_or_catchers: str, evaluate: Callable[..., None]) -> Callable[..., None]:
    """Of several retriers or catchers only the first is looked at."""

    def evaluated(self: Any, env: Any) -> None:
        first = type(self)(getattr(self, retriers_or_catchers)[:1])
        evaluate(first, env)

    return evaluated


def backwards(self: CatchDecl, env: Any) -> None:
    CATCH(CatchDecl(self.catchers[::-1]), env)


def results_backwards(self: BranchesDecl, env: Any) -> None:
    BRANCHES(self, env)
    env.stack[-1].reverse()


COUNT, CATCH, RETRY = MaxAttemptsDecl._eval_body, CatchDecl._eval_body, RetryDecl._eval_body
BRANCHES = BranchesDecl._eval_body


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("changed", "method"),
    [
        pytest.param(MaxAttemptsDecl, one_attempt_more, id="a retrier makes one attempt more"),
        pytest.param(RetryDecl, only_the_first("retriers", RETRY), id="only the first retrier is looked at"),
        pytest.param(ErrorEqualsDecl, lambda self, env: env.stack.__setitem__(-1, True), id="any error is meant"),
        pytest.param(CatchDecl, lambda self, env: env.stack.append(CatchOutcome.NotCaught), id="nothing is caught"),
        pytest.param(CatchDecl, backwards, id="the last catcher is the first"),
        pytest.param(BranchesDecl, results_backwards, id="results of branches are in another order"),
        pytest.param(ComparisonCompositeAnd, ComparisonCompositeOr._eval_body, id="And is Or"),
        pytest.param(ComparisonCompositeNot, lambda self, env: self.rule.eval(env), id="Not is left out"),
        pytest.param(ItemSelector, lambda self, env: env.stack.append({}), id="an item selector selects nothing"),
        pytest.param(InputPath, lambda self, env: env.stack.append(env.states.get_input()), id="no InputPath"),
        pytest.param(ResultPath, lambda self, env: None, id="no ResultPath"),
    ],
)
def test_of_a_changed_interpreter_fewer_facts_hold(
    facts: Facts, monkeypatch: pytest.MonkeyPatch, changed: type, method: Callable[..., None]
) -> None:
    monkeypatch.setattr(changed, "_eval_body", method)
    assert facts.unequal() != []
