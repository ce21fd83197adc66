"""The engine of CloudFormation: stacks and change sets with AWS's order, rollback and events.

moto has no events of resources in change sets, no rollback, ignores DependsOn, and deletes in any order, which fails for VPCs.
Here resources are created in the order of their dependencies and deleted in the reverse order; a failed resource rolls its stack
back, with the reason in the stack's events; and a template with an unsupported resource type is rejected before any resource is
created, with type and logical id.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from moto.cloudformation import models
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack, cloudformation_backends
from moto.cloudformation.parsing import OutputMap
from moto.cloudformation.utils import generate_stack_id
from moto.core.utils import utcnow
from typing_extensions import override

from sagemaker_local_account.aws.cloudformation import (
    change_sets,
    deployable,
    descriptions,
    exports,
    intrinsics,
    parameter_values,
    resource_registry,
    stack_requests,
    templates,
)
from sagemaker_local_account.aws.cloudformation.provisioner import ResourceFailed, Resources, reason
from sagemaker_local_account.aws.resource_types import ServiceResources
from sagemaker_local_account.core import background
from sagemaker_local_account.core.patches import patch

_log = logging.getLogger(__name__)


def install(services: Iterable[ServiceResources]) -> None:
    """Patches moto's CloudFormation; to be called before its first use in an account.

    Args:
        services: the resource types of each service.
    """
    resource_registry.install(services)
    exports.install()
    intrinsics.install()
    patch(models, "ResourceMap", Resources)
    patch(Stack, "parse_template", staticmethod(templates.parsed), "template")
    patch(Stack, "stack_resources", property(lambda stack: stack.resource_map.existing()))
    patch(Stack, "stack_parameters", property(_given_parameters))
    patch(cloudformation_backends, "backend", Backend)
    change_sets.install()
    stack_requests.install()
    descriptions.install()


_DONE = ("CREATE_COMPLETE", "UPDATE_COMPLETE")


class Backend(CloudFormationBackend):
    """moto's CloudFormation with AWS's final statuses: COMPLETE, ROLLBACK_COMPLETE or FAILED, with the reason in the events."""

    @property
    def _url_module(self) -> Any:
        # moto derives this from the class's own module.
        import moto.cloudformation.urls

        return moto.cloudformation.urls

    def find_stack(self, name_or_id: str) -> Stack | None:
        """Returns a stack by its name, or by its id also one that was deleted; None if there is none."""
        if name_or_id in self.deleted_stacks:
            return self.deleted_stacks[name_or_id]
        return next((one for one in self.stacks.values() if name_or_id in (one.name, one.stack_id)), None)

    @override
    def execute_change_set(
        self, change_set_name: str, stack_name: str | None = None, disable_rollback: bool = False
    ) -> None:
        change_set: Any = self.change_sets[change_set_name]
        stack: Any = self.stacks[change_set.stack_id]
        _refuse_while_in_progress(stack)
        stack.change_set_id, stack.last_updated_time = change_set.change_set_id, utcnow()
        stack.capabilities = change_set.capabilities or None
        stack.disable_rollback = disable_rollback
        if change_set.notification_arns is not None:
            stack.notification_arns = change_set.notification_arns
        stack.role_arn = change_set.role_arn or stack.role_arn

        def execute() -> None:
            if change_set.change_set_type == "CREATE":
                stack._add_stack_event("CREATE_IN_PROGRESS", resource_status_reason="User Initiated")
                _apply_template(stack, change_set.template, change_set.parameters, change_set.tags)
                _create(stack)
            else:
                self._update(stack, change_set.template, change_set.parameters, change_set.tags)
            change_set.execution_status = "EXECUTE_COMPLETE" if stack.status in _DONE else "EXECUTE_FAILED"

        change_set.execution_status = "EXECUTE_IN_PROGRESS"
        background.begin(execute)

    def begin_creation(self, stack: Stack) -> None:
        """Creates a new stack in the background."""
        self.stacks[stack.stack_id] = stack
        stack._add_stack_event("CREATE_IN_PROGRESS", resource_status_reason="User Initiated")
        background.begin(lambda: _create(stack))

    def begin_update(
        self, stack: Stack, template: str, parameters: dict[str, Any], tags: dict[str, str] | None
    ) -> None:
        """Updates a stack in the background."""
        background.begin(lambda: self._update(stack, template, parameters, tags))

    def begin_rollback(self, stack: Stack) -> None:
        """Returns a stack whose last operation failed, and was not rolled back, to what it was before, in the background."""
        background.begin(
            lambda: _undo_creation(stack) if stack.status.startswith("CREATE") else self._undo_update(stack)
        )

    def _update(self, stack: Stack, template: str, parameters: dict[str, Any], tags: dict[str, str] | None) -> None:
        former, former_parameters, former_tags = str(stack.template), dict(stack.parameters), stack.tags
        _status(stack, "UPDATE_IN_PROGRESS", "User Initiated")
        resource_map: Any = stack.resource_map

        def outputs() -> None:
            _apply_template(stack, template, parameters, tags)
            stack.output_map = _outputs(stack)
            exports.publish(self, stack)
            _status(stack, "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")

        try:
            resource_map.change(Stack.parse_template(template), parameters, outputs)
            _status(stack, "UPDATE_COMPLETE")
        except Exception as error:
            if stack.disable_rollback:
                _status(stack, "UPDATE_FAILED", _failure_reason(error))
                return
            self._undo_update(stack, (former, former_parameters, former_tags), _failure_reason(error))
        finally:
            resource_map.close()

    def _undo_update(
        self, stack: Stack, former: tuple[str, dict[str, Any], dict[str, str]] | None = None, why: str | None = None
    ) -> None:
        """Rolls a stack back to the template, parameters and tags of before, by default those that it has."""
        template, parameters, tags = former or (str(stack.template), dict(stack.parameters), stack.tags)
        resource_map: Any = stack.resource_map
        _status(stack, "UPDATE_ROLLBACK_IN_PROGRESS", why)
        try:
            resource_map.change(
                Stack.parse_template(template),
                parameters,
                lambda: _status(stack, "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS"),
                rollback=True,
            )
            _apply_template(stack, template, parameters, tags)
            exports.publish(self, stack)
            _status(stack, "UPDATE_ROLLBACK_COMPLETE")
        except Exception as error:
            _status(stack, "UPDATE_ROLLBACK_FAILED", _failure_reason(error))
        finally:
            resource_map.close()

    @override
    def delete_stack(self, name_or_stack_id: str, retain: Collection[str] = ()) -> None:
        for stack in [s for s in self.stacks.values() if name_or_stack_id in (s.name, s.stack_id)]:
            _refuse_while_in_progress(stack)
            if stack.enable_termination_protection:
                raise ValidationError(
                    message=f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled"
                )
            if reason := exports.why_not_deleted(self, stack):
                _status(stack, stack.status, reason)
                continue
            _status(stack, "DELETE_IN_PROGRESS", "User Initiated")
            background.begin(partial(self._delete, stack, retain))

    def _delete(self, stack: Stack, retain: Collection[str] = ()) -> None:
        resource_map: Any = stack.resource_map
        failures = resource_map.remove_all(retain=retain)
        if failures:
            _status(stack, "DELETE_FAILED", "; ".join(failures))
            return
        _status(stack, "DELETE_COMPLETE")
        stack.deletion_time = utcnow()
        stack.output_map = OutputMap(stack.resource_map, {}, stack.stack_id)
        exports.withdraw(self, stack)
        change_sets.withdraw(self, stack)
        self.deleted_stacks[stack.stack_id] = self.stacks.pop(stack.stack_id)

    def create_nested(self, name: str, template: str, parameters: dict[str, Any], tags: dict[str, str]) -> Stack:
        """Creates a stack within the creation or update of another one; its status says whether it succeeded."""
        deployable.check(self, name, template, parameters, None)
        id = generate_stack_id(name, self.region_name, self.account_id)
        stack = Stack(id, name, template, parameters, self.account_id, self.region_name, tags=tags)
        self.stacks[id] = stack
        stack._add_stack_event("CREATE_IN_PROGRESS", resource_status_reason="User Initiated")
        _create(stack)
        return stack

    def update_nested(self, stack: Stack, template: str, parameters: dict[str, Any], tags: dict[str, str]) -> None:
        """Updates such a stack."""
        deployable.check(self, stack.name, template, parameters, None)
        self._update(stack, template, parameters, tags)

    def delete_nested(self, stack: Stack) -> None:
        """Deletes such a stack."""
        reason = exports.why_not_deleted(self, stack)
        _status(stack, "DELETE_FAILED" if reason else "DELETE_IN_PROGRESS", reason)
        if reason is None:
            self._delete(stack)


def _given_parameters(stack: Stack) -> dict[str, Any]:
    """A stack's parameters as given; moto's has values of SSM parameters, which its next update treats as names."""
    return parameter_values.given_or_default(stack.template_dict, stack.parameters)


def _create(stack: Stack) -> None:
    stack.status = "CREATE_IN_PROGRESS"
    resource_map: Any = stack.resource_map
    # There are no outputs until all resources are created.
    stack.output_map = OutputMap(resource_map, {}, stack.stack_id)
    backend = cloudformation_backends[stack.account_id][stack.region_name]
    resource_map.cross_stack_resources = backend.exports
    try:
        resource_map.open(stack.template_dict, stack.parameters)
        resource_map.make_all()
        stack.output_map = _outputs(stack)
        exports.publish(backend, stack)
        _status(stack, "CREATE_COMPLETE")
    except Exception as error:
        stack.output_map = OutputMap(resource_map, {}, stack.stack_id)
        if stack.disable_rollback:
            _status(stack, "CREATE_FAILED", _failure_reason(error))
            return
        _undo_creation(stack, _failure_reason(error))
    finally:
        resource_map.close()


def _undo_creation(stack: Any, why: str | None = None) -> None:
    _status(stack, "ROLLBACK_IN_PROGRESS", why)
    # New resources are deleted on rollback whatever their DeletionPolicy, since they are empty.
    failures = stack.resource_map.remove_all(retained_too=True)
    _status(stack, "ROLLBACK_FAILED" if failures else "ROLLBACK_COMPLETE", "; ".join(failures) or None)


def _apply_template(stack: Stack, template: str, parameters: dict[str, Any], tags: dict[str, str] | None) -> None:
    """Sets a stack's template, parameters and outputs; moto's change sets do not set outputs."""
    stack.template = template
    stack._parse_template()
    stack.description = stack.template_dict.get("Description")
    stack.parameters = parameters
    if tags is not None:
        stack.tags = tags
    stack.output_map = OutputMap(stack.resource_map, stack.template_dict, stack.stack_id)


def _outputs(stack: Stack) -> OutputMap:
    """The outputs of a stack, evaluated: one that has no value fails it."""
    outputs = OutputMap(stack.resource_map, stack.template_dict, stack.stack_id)
    for name in outputs.outputs:
        outputs[name]
    return outputs


def _status(stack: Stack, status: str, reason: str | None = None) -> None:
    stack.status = status
    stack.status_reason = reason
    stack._add_stack_event(status, resource_status_reason=reason)


def _failure_reason(error: Exception) -> str:
    """The reason of a stack's failure, also for a defect, so that the stack reaches a final status."""
    if not isinstance(error, ResourceFailed):
        _log.exception("a stack failed with an unexpected error")
    return reason(error)


def _refuse_while_in_progress(stack: Stack) -> None:
    if stack.status.endswith("_IN_PROGRESS") and stack.status != "REVIEW_IN_PROGRESS":
        raise ValidationError(
            message=f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated or deleted until that has ended"
        )
