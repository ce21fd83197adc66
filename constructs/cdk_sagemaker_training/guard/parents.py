"""What has executions end with their parents, those of a machine of the user's own that starts them."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.guard.deletion import stop_executions_on_deletion
from cdk_sagemaker_training.guard.guard import Guard


def stop_with(machine: sfn.IStateMachine, started: Construct, state_machine: sfn.IStateMachine) -> None:
    """Stop executions with those of a machine that starts them and waits for them.

    Those of one that the stack defines are stopped first when the stack is deleted; another stack, which refers to this one, is
    deleted before it.

    Args:
        machine: The machine.
        started: The workflow, pipeline or sweep that it starts.
        state_machine: That one's state machine.

    Raises:
        ValueError: The machine is of another stack or app, and its name is not known at synth, or of another account or region.
    """
    stack = Stack.of(started)
    defined = machine if isinstance(machine, sfn.StateMachine) and Stack.of(machine) is stack else None
    # Of another stack not by a reference, since that refers to this one.
    name = _known_name(machine, stack) if defined is None else defined.state_machine_name
    if name is None:
        raise must(
            "machine",
            f"be one that the stack of {started.node.path} defines, or have a name that is known at synth, and be of the account "
            "and region of the stack, whose guard looks at both",
            "sfn.StateMachine(other, 'Machine', state_machine_name='nightly', ...)",
            machine.node.path,
        )
    id = f"StopWith{machine.node.addr}"
    if started.node.try_find_child(id) is None:
        place = Construct(started, id)
        if defined is not None:
            stop_executions_on_deletion(place, defined, [started])
        Guard.of(stack).watching_parent_named(name, state_machine)


def _known_name(machine: sfn.IStateMachine, stack: Stack) -> str | None:
    """The name of a machine of another stack; None where it is not known, or known to be in another account or region."""
    if isinstance(machine, sfn.StateMachine):
        resource, of = machine.node.default_child, Stack.of(machine)
        name = resource.state_machine_name if isinstance(resource, sfn.CfnStateMachine) else None
        region, account = of.region, of.account
    else:
        parts = machine.state_machine_arn.split(":")
        region, account, name = (*parts[3:5], parts[6]) if len(parts) == 7 else ("", "", None)
    differ = any(
        not is_unresolved(there) and not is_unresolved(here) and there != here
        for there, here in ((region, stack.region), (account, stack.account))
    )
    return None if name is None or is_unresolved(name) or differ else name
