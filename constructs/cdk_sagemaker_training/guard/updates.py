"""What refuses an update, before it changes anything of a workflow, that takes from running executions what they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from aws_cdk import CfnElement, CustomResource, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.lazy import at_synthesis

if TYPE_CHECKING:
    from cdk_sagemaker_training.lifecycle.plan import Plan
    from cdk_sagemaker_training.resources.handler_function import StackFunction

BreakingUpdates = Literal["refuse", "stop", "allow"]
_ID = "SageMakerTrainingUpdates"
# One action of each kind of access, since its others are granted with it: to a job's data, its model and its checkpoints, to the
# job, to its role, which an execution passes to the next attempt, to its queue, and to what polls it.
_NEEDED = (
    "s3:GetObject",
    "s3:PutObject",
    "kms:Decrypt",
    "kms:GenerateDataKey*",
    "sagemaker:DescribeTrainingJob",
    "iam:PassRole",
    "batch:DescribeServiceJob",
    "batch:SubmitServiceJob",
    "states:StartExecution",
)


class Updates(Construct):
    """What looks, in an update of a stack, at the permissions that its workflows' roles are about to lose.

    A role has the permissions of the template that is deployed. A job that runs since before an update that narrows its role
    fails at its end, once it uploads its model. So one custom resource of the stack has the permissions of its workflows' roles
    among its properties, and CloudFormation updates it before their policies.
    """

    def __init__(self, scope: Construct, shared: StackFunction) -> None:
        """Create the custom resource."""
        super().__init__(scope, _ID)
        self._workflows: list[tuple[dict[str, Any], list[iam.Policy]]] = []
        self._resource = CustomResource(
            self,
            "Resource",
            resource_type="Custom::SageMakerTrainingUpdates",
            service_token=shared.function.get_att("Arn").to_string(),
            service_timeout=Duration.minutes(16),
            properties={"Workflows": at_synthesis(lambda: [*self._rendered()])},
        )

    @staticmethod
    def of(stack: Stack, shared: StackFunction) -> Updates:
        """Return that of a stack; create it where there is none."""
        existing = stack.node.try_find_child(_ID) or Updates(stack, shared)
        assert isinstance(existing, Updates)
        return existing

    def look_at(
        self, plan: Plan, machine_name: str, machine_role: iam.IRole, breaking: BreakingUpdates, *, retain: bool
    ) -> None:
        """Look at the permissions of a workflow's roles in updates, and whether it is still there.

        Args:
            plan: The workflow.
            machine_name: The name of its state machine, which an update does not change.
            machine_role: That state machine's role.
            breaking: What becomes of an update that takes away one of them while an execution runs.
            retain: Whether executions and jobs go on without the workflow.
        """
        stack = plan.jobs.stack
        policies = [*_policies(machine_role), *_policies(plan.jobs.role.role)]
        for policy in policies:
            if Stack.of(policy) is stack:
                policy.node.add_dependency(self._resource)
        entry = {
            "StateMachineArn": stack.format_arn(service="states", resource=f"stateMachine:{machine_name}"),
            "BreakingUpdates": breaking,
            **({"Retain": "true"} if retain else {}),
            **plan.service.properties,
        }
        self._workflows.append((entry, policies))

    def look_for(self, state_machine: sfn.StateMachine) -> None:
        """Look in updates whether a state machine that is not a workflow's is still there.

        It is known by its logical id, since a reference would be a circle: its role refers to workflows, whose policies are
        updated after this.
        """
        resource = state_machine.node.default_child
        assert isinstance(resource, CfnElement)
        self._workflows.append(({"LogicalId": resource.logical_id, "BreakingUpdates": "refuse"}, []))

    def _rendered(self) -> Iterator[dict[str, Any]]:
        for entry, policies in self._workflows:
            # Not resolved: a reference to another stack becomes an import only where the template has its token.
            documents = [policy.document.to_json() or {} for policy in policies]
            statements = [statement for document in documents for statement in document.get("Statement", [])]
            yield {**entry, "Needs": _needs(statements)}


def _needs(statements: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The resources by those actions whose loss a running execution does not survive."""
    found: dict[str, list[Any]] = {}
    for statement in statements:
        actions, resources = (_listed(statement.get(name, [])) for name in ("Action", "Resource"))
        for action in (name for name in actions if name in _NEEDED and statement["Effect"] == "Allow"):
            found.setdefault(action, []).extend(resource for resource in resources if resource not in found[action])
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _policies(role: iam.IRole) -> list[iam.Policy]:
    """The policy of what was granted to a role."""
    found = role.node.try_find_child("DefaultPolicy") or role.node.try_find_child("Policy")
    return [found] if isinstance(found, iam.Policy) else []
