"""What has executions end with their parents, those of a machine of the user's own that starts them."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.guard.deletion import stop_executions_on_deletion
from cdk_sagemaker_training.guard.guard import Guard
from cdk_sagemaker_training.lifecycle.state_machine_base import StateMachineBase


class StoppedWithParent(StateMachineBase):
    """What constructs have alike whose executions a machine of the user's own may start by ``as_task``."""

    def stop_with(self, machine: sfn.IStateMachine) -> None:
        """Stop executions with those of a machine that starts them by ``as_task``, always: Step Functions does by best effort.

        The stack's guard looks every 15 minutes, and its alarm tells that it stopped one. It stops what the machine started
        without waiting too, where the input names its execution (CDK's ``associate_with_parent``). When the stack is deleted, the
        executions of a machine that it defines are stopped first, so that none starts another; another stack, which refers to
        this one, is deleted before it. Of a pipeline or sweep the workflows are of its stack.

        Args:
            machine: The state machine that has the state. One of another stack, or an imported one, needs a name that is known at
                synth, such as ``state_machine_name="nightly"``.

        Raises:
            ValueError: Its name is not known, or it is of another account or region.
        """
        assert isinstance(self, Construct)
        stack = Stack.of(self)
        defined = machine if isinstance(machine, sfn.StateMachine) and Stack.of(machine) is stack else None
        # Of another stack not by a reference, since that refers to this one.
        name = _known_name(machine, stack) if defined is None else defined.state_machine_name
        if name is None:
            raise must(
                "machine",
                f"be one that the stack of {self.node.path} defines, or have a name that is known at synth, and be of the "
                "account and region of the stack, whose guard looks at both",
                "sfn.StateMachine(other, 'Machine', state_machine_name='nightly', ...)",
                machine.node.path,
            )
        id = f"StopWith{machine.node.addr}"
        if self.node.try_find_child(id) is None:
            place = Construct(self, id)
            if defined is not None:
                stop_executions_on_deletion(place, defined, [self])
            Guard.of(stack).watching_parent_named(name, self.state_machine)


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
