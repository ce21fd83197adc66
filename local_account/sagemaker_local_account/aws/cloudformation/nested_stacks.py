"""AWS::CloudFormation::Stack, a stack inside another one."""

from __future__ import annotations

from typing import Any

from moto.cloudformation.models import Stack, cloudformation_backends
from moto.cloudformation.utils import get_stack_from_s3_url
from typing_extensions import override

from sagemaker_local_account.aws.resource_base import Properties, ResourceBase


class EmbeddedStackFailed(Exception):
    """An embedded stack failed; the message is CloudFormation's (aws-amplify/amplify-js 5811)."""


class NestedStack(ResourceBase):
    """AWS::CloudFormation::Stack. Its resources are made, changed and removed within the step of the stack around it."""

    _stack: Stack

    @override
    def attributes(self) -> dict[str, str]:
        outputs = [output for output in self._stack.output_map.values() if output is not None]
        return {f"Outputs.{output.key}": str(output.value) for output in outputs}

    @override
    def create(self) -> None:
        name = self.physical_resource_id
        self._stack = self._backend.create_nested(name, self._template(), self._parameters(), self._tags())
        self.physical_resource_id = self._stack.stack_id
        if self._stack.status != "CREATE_COMPLETE":
            reason = self._reason("ROLLBACK_IN_PROGRESS")
            self._backend.delete_nested(self._stack)
            raise EmbeddedStackFailed(f"Embedded stack {self._stack.stack_id} was not successfully created: {reason}")

    @override
    def update(self, former: Properties) -> None:
        self._backend.update_nested(self._stack, self._template(), self._parameters(), self._tags())
        if self._stack.status != "UPDATE_COMPLETE":
            reason = self._reason("UPDATE_ROLLBACK_IN_PROGRESS")
            raise EmbeddedStackFailed(f"Embedded stack {self._stack.stack_id} was not successfully updated: {reason}")

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_nested(self._stack)
        if self._stack.status != "DELETE_COMPLETE":
            raise EmbeddedStackFailed(
                f"Embedded stack {self._stack.stack_id} was not successfully deleted: {self._stack.status_reason}"
            )

    @property
    def _backend(self) -> Any:  # the engine's, whose folder imports this module
        return cloudformation_backends[self.account_id][self.region_name]

    def _template(self) -> str:
        template: str = get_stack_from_s3_url(self.properties["TemplateURL"], self.account_id, "aws")
        return template

    def _parameters(self) -> dict[str, str]:
        given: dict[str, Any] = self.properties.get("Parameters") or {}
        return {
            name: ",".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in given.items()
        }

    def _tags(self) -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in self.properties.get("Tags") or []}

    def _reason(self, status: str) -> str:
        """Why the stack began to be rolled back, from its newest event of that."""
        return next(
            str(event.resource_status_reason)
            for event in reversed(self._stack.events)
            if event.resource_status == status
        )
