"""What has executions end with their parents, those of a machine of the user's own that starts them."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.guard.deletion import stop_executions_on_deletion
from cdk_sagemaker_training.guard.guard import Guard


def stop_with(machine: sfn.StateMachine, started: Construct, state_machine: sfn.IStateMachine) -> None:
    """Stop executions with those of a machine that starts them and waits for them, and those first when the stack is deleted.

    Args:
        machine: The machine.
        started: The workflow, pipeline or sweep that it starts.
        state_machine: That one's state machine.

    Raises:
        ValueError: The machine is of another stack, or imported.
    """
    stack = Stack.of(started)
    if not isinstance(machine, sfn.StateMachine) or Stack.of(machine) is not stack:
        raise must(
            "machine",
            f"be one that the stack of {started.node.path} defines, whose guard looks at both",
            "sfn.StateMachine(stack, 'Machine', definition_body=sfn.DefinitionBody.from_chainable(train))",
            machine.node.path,
        )
    id = f"StopWith{machine.node.addr}"
    if started.node.try_find_child(id) is None:
        stop_executions_on_deletion(Construct(started, id), machine, [started])
        Guard.of(stack).watching_parent(machine, state_machine)
