"""State machines of a running account, and their executions."""

from __future__ import annotations

import json
import time
from typing import Any

from running_account import Running

AN_ERROR_RATHER_THAN_A_HANG = 300


class Machines:
    """State machines of a running account."""

    def __init__(self, running: Running, name: str = "machine", *, may_do_all: bool = True) -> None:
        self.running = running
        self.client = running.client("stepfunctions")
        self.role = running.role(f"{name}-role", "states.amazonaws.com", may_do_all=may_do_all)
        self._name, self._count = name, 0

    def create(self, states: dict[str, Any], **top: Any) -> str:
        self._count += 1
        definition = {"StartAt": next(iter(states)), "States": states, **top}
        machine = self.client.create_state_machine(
            name=f"{self._name}-{self._count}", definition=json.dumps(definition), roleArn=self.role
        )
        return str(machine["stateMachineArn"])

    def start(self, states: dict[str, Any], given: Any = None, **top: Any) -> str:
        machine = self.create(states, **top)
        return str(self.client.start_execution(stateMachineArn=machine, input=json.dumps(given or {}))["executionArn"])

    def ended(self, execution: str) -> dict[str, Any]:
        limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
        while time.monotonic() < limit:
            described: dict[str, Any] = self.client.describe_execution(executionArn=execution)
            if described["status"] != "RUNNING":
                return described
            time.sleep(0.05)
        raise AssertionError(self.client.get_execution_history(executionArn=execution)["events"][-1])

    def output(self, states: dict[str, Any], given: Any = None) -> Any:
        described = self.ended(self.start(states, given))
        assert described["status"] == "SUCCEEDED", described
        return json.loads(described["output"])

    def started(self, machine: str, count: int) -> list[str]:
        """The executions of a machine, once there are so many."""
        limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
        while len(found := self.client.list_executions(stateMachineArn=machine)["executions"]) < count:
            assert time.monotonic() < limit, found
            time.sleep(0.05)
        return [str(one["executionArn"]) for one in found]
