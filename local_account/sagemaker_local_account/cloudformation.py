"""CloudFormation: moto's resources, created, changed and deleted as AWS does it.

moto calls a change set executed without an event per resource, has no rollback, ignores DependsOn, and deletes in any
order, which no VPC survives. Here resources are created in the order of their dependencies and deleted in the reverse;
a resource that fails rolls its stack back and its reason is in the stack's events; and a template with a resource type
that does not exist here is refused before anything is made of it, naming type and logical id.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

from moto.cloudformation import models
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import (
    ChangeSet,
    CloudFormationBackend,
    Event,
    Stack,
    cloudformation_backends,
)
from moto.cloudformation.parsing import (
    OutputMap,
    ResourceMap,
    parse_and_create_resource,
    parse_and_update_resource,
)
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.models import ec2_backends
from moto.ec2.models.core import TaggedEC2Resource

from . import background, resources

_log = logging.getLogger(__name__)


def install() -> None:
    """Make moto's CloudFormation this account's; call it before its first use in an account."""
    resources.install()
    models.ResourceMap = Resources
    cloudformation_backends.backend = Backend
    CloudFormationResponse.describe_change_set = _describe_change_set
    CloudFormationResponse.execute_change_set = _execute_change_set
    CloudFormationResponse.delete_change_set = _delete_change_set


class ResourceFailed(Exception):
    """A resource that could not be created, changed or deleted."""


class Resources(ResourceMap):
    """A stack's resources, in the order in which they were made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._making: list[str] = []
        # Only while a stack is made or changed, and by the thread that does it, does looking a resource up make it.
        self._maker: int | None = None

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in [*self._parsed_resources] if name in self._resource_json_map])

    def __getitem__(self, key: str) -> Any:
        if key in self._parsed_resources:
            return self._parsed_resources[key]
        definition = self._resource_json_map.get(key)
        if definition is None or self._maker != threading.get_ident():
            raise KeyError(key)
        if key in self._making:
            raise ResourceFailed(f"Circular dependency between resources: {[*self._making, key]}")
        condition = definition.get("Condition")
        if condition and not self.lazy_condition_map[condition]:
            return None
        self._making.append(key)
        try:
            for dependency in self._references_of(definition):
                self[dependency]
            return self._make(key, definition)
        finally:
            self._making.pop()

    def _make(self, key: str, definition: dict[str, Any]) -> Any:
        self._event(key, None, "CREATE_IN_PROGRESS")
        try:
            resource = parse_and_create_resource(
                key, definition, self, account_id=self._account_id, region_name=self._region_name
            )
        except ResourceFailed:
            raise
        except Exception as error:
            _log.exception("%s was not created", key)
            self._event(key, None, "CREATE_FAILED", _reason(error))
            raise ResourceFailed(f"{key} ({definition['Type']}): {_reason(error)}") from error
        self._parsed_resources[key] = resource
        if isinstance(resource, TaggedEC2Resource):
            tags = {**self.tags, "aws:cloudformation:logical-id": key}
            ec2_backends[self._account_id][self._region_name].create_tags([resource.physical_resource_id], tags)
        self._event(key, resource, "CREATE_COMPLETE")
        return resource

    def open(self, template: dict[str, Any], parameters: dict[str, Any]) -> None:
        """Take a template on; from here on looking a resource up makes it."""
        self._template = template
        self._resource_json_map = template["Resources"]
        self.input_parameters = parameters
        self.tags["aws:cloudformation:stack-name"] = self._parsed_resources["AWS::StackName"]
        self.tags["aws:cloudformation:stack-id"] = self.stack_id
        self.resolved_parameters: dict[str, Any] = {}
        self.load()
        self._maker = threading.get_ident()

    def close(self) -> None:
        self._maker = None

    def make_all(self) -> None:
        for name in self._resource_json_map:
            self[name]

    def change(self, template: dict[str, Any], parameters: dict[str, Any]) -> None:
        """Bring the resources from the template they have to another: add, modify, then remove."""
        former = self._resource_json_map
        modified = [
            name for name in self.build_resource_diff(template, parameters)["Modify"] if name in self._parsed_resources
        ]
        self.open(template, parameters)
        while modified:
            modified += self._modify(modified.pop(0), former)
        self.make_all()
        gone = [name for name in self._made(former) if not self._wanted(name)]
        failures = self._remove(gone, former, retained_too=False)
        if failures:
            raise ResourceFailed("; ".join(failures))

    def _references_of(self, definition: dict[str, Any]) -> list[str]:
        references = _references(definition)
        return [name for name in self._resource_json_map if name in references]

    def _wanted(self, name: str) -> bool:
        definition = self._resource_json_map.get(name)
        if definition is None:
            return False
        condition = definition.get("Condition")
        return not condition or bool(self.lazy_condition_map[condition])

    def _modify(self, name: str, former: dict[str, Any]) -> list[str]:
        """Update or replace a resource; the names of those that refer to it, if it has another id now."""
        original = self._parsed_resources[name]
        definition = self._resource_json_map[name]
        for reference in self._references_of(definition):
            self[reference]
        self._event(name, original, "UPDATE_IN_PROGRESS")
        try:
            changed = self._updated(name, original, definition, former)
        except ResourceFailed:
            raise
        except Exception as error:
            _log.exception("%s was not updated", name)
            self._event(name, original, "UPDATE_FAILED", _reason(error))
            raise ResourceFailed(f"{name} ({definition['Type']}): {_reason(error)}") from error
        self._parsed_resources[name] = changed
        self._event(name, changed, "UPDATE_COMPLETE")
        if changed.physical_resource_id == original.physical_resource_id:
            return []
        return [
            other
            for other, its_definition in self._resource_json_map.items()
            if other in self._parsed_resources and name in _references(its_definition)
        ]

    def _updated(self, name: str, original: Any, definition: dict[str, Any], former: dict[str, Any]) -> Any:
        if definition["Type"] == former[name]["Type"]:
            try:
                changed = parse_and_update_resource(
                    name, definition, self, account_id=self._account_id, region_name=self._region_name
                )
            except NotImplementedError:
                changed = None
            if changed is not None:
                return changed
        # A type that cannot be updated is replaced.
        del self._parsed_resources[name]
        try:
            changed = self._make(name, definition)
        except ResourceFailed:
            self._parsed_resources[name] = original
            raise
        if not _retained(former[name], "UpdateReplacePolicy"):
            self._delete(name, original, former[name])
        return changed

    def remove_all(self, *, retained_too: bool = False) -> list[str]:
        """Delete every resource, the last made first; the reasons why some could not be."""
        return self._remove(self._made(self._resource_json_map), self._resource_json_map, retained_too=retained_too)

    def _made(self, definitions: dict[str, Any]) -> list[str]:
        return [name for name in self._parsed_resources if name in definitions]

    def _remove(self, names: list[str], definitions: dict[str, Any], *, retained_too: bool) -> list[str]:
        failures: list[str] = []
        for name in reversed(names):
            resource = self._parsed_resources[name]
            definition = definitions[name]
            if _retained(definition, "DeletionPolicy") and not retained_too:
                self._event(name, resource, "DELETE_SKIPPED", definition=definition)
                del self._parsed_resources[name]
                continue
            try:
                self._delete(name, resource, definition)
            except Exception as error:
                _log.exception("%s was not deleted", name)
                self._event(name, resource, "DELETE_FAILED", _reason(error), definition=definition)
                failures.append(f"{name} ({definition['Type']}): {_reason(error)}")
            else:
                del self._parsed_resources[name]
        return failures

    def _delete(self, name: str, resource: Any, definition: dict[str, Any]) -> None:
        self._event(name, resource, "DELETE_IN_PROGRESS", definition=definition)
        delete = resources.DELETE.get(type(resource))
        if delete is not None:
            delete(resource, self._account_id, self._region_name)
        elif hasattr(resource, "delete") or not hasattr(
            type(resource).delete_from_cloudformation_json, "__isabstractmethod__"
        ):
            self._delete_resource(resource, definition)
        else:
            raise ResourceFailed(f"the local account cannot delete {definition['Type']}")
        self._event(name, resource, "DELETE_COMPLETE", definition=definition)

    def _event(
        self,
        name: str,
        resource: Any,
        status: str,
        reason: str | None = None,
        definition: dict[str, Any] | None = None,
    ) -> None:
        backend = cloudformation_backends[self._account_id][self._region_name]
        stack = backend.stacks.get(self.stack_id)
        if stack is None:
            return
        definition = definition or self._resource_json_map[name]
        stack.events.append(
            Event(
                stack_id=self.stack_id,
                stack_name=stack.name,
                logical_resource_id=name,
                physical_resource_id=str(getattr(resource, "physical_resource_id", "") or ""),
                resource_type=definition["Type"],
                resource_status=status,
                resource_status_reason=reason,
                resource_properties=None,
            )
        )


class Backend(CloudFormationBackend):
    """moto's CloudFormation with AWS's ends: COMPLETE, ROLLBACK_COMPLETE or FAILED, with the reason in the events."""

    @property
    def _url_module(self) -> Any:
        # moto derives this from the class's own module.
        import moto.cloudformation.urls

        return moto.cloudformation.urls

    def create_stack(self, name: str, template: str, parameters: dict[str, Any], **details: Any) -> Stack:
        _refuse_unknown_types(Stack.parse_template(template))
        stack: Stack = super().create_stack(name=name, template=template, parameters=parameters, **details)
        return stack

    def create_change_set(self, *args: Any, **kwargs: Any) -> tuple[str, str]:
        _refuse_unknown_types(Stack.parse_template(kwargs["template"]))
        created: tuple[str, str] = super().create_change_set(*args, **kwargs)
        return created

    def execute_change_set(self, change_set_name: str, stack_name: str | None = None) -> None:
        change_set: Any = self.describe_change_set(change_set_name)
        stack = self.stacks[change_set.stack_id]
        _refuse_while_in_progress(stack)

        def execute() -> None:
            if change_set.change_set_type == "CREATE":
                stack._add_stack_event("CREATE_IN_PROGRESS", resource_status_reason="User Initiated")
                _take(stack, change_set.template, change_set.parameters, change_set.tags)
                _create(stack)
            else:
                self._update(stack, change_set.template, change_set.parameters, change_set.tags)
            change_set.execution_status = "EXECUTE_COMPLETE"

        change_set.execution_status = "EXECUTE_IN_PROGRESS"
        background.begin(execute)

    def update_stack(
        self,
        name: str,
        template: str,
        role_arn: str | None,
        parameters: list[dict[str, Any]],
        tags: dict[str, str] | None,
    ) -> Stack:
        stack = self.get_stack(name)
        _refuse_unknown_types(Stack.parse_template(template))
        _refuse_while_in_progress(stack)
        resolved = self._resolve_update_parameters(stack, parameters)
        background.begin(lambda: self._update(stack, template, resolved, tags))
        return stack

    def _update(self, stack: Stack, template: str, parameters: dict[str, Any], tags: dict[str, str] | None) -> None:
        former, former_parameters = stack.template, dict(stack.parameters)
        _status(stack, "UPDATE_IN_PROGRESS", "User Initiated")
        resource_map: Any = stack.resource_map
        for export in [export.name for export in stack.exports]:
            self.exports.pop(export, None)
        try:
            resource_map.change(Stack.parse_template(template), parameters)
            _take(stack, template, parameters, tags)
            _publish(stack, self)
            _status(stack, "UPDATE_COMPLETE")
        except ResourceFailed as error:
            _status(stack, "UPDATE_ROLLBACK_IN_PROGRESS", str(error))
            try:
                resource_map.change(Stack.parse_template(str(former)), former_parameters)
                _publish(stack, self)
                _status(stack, "UPDATE_ROLLBACK_COMPLETE")
            except ResourceFailed as second_error:
                _status(stack, "UPDATE_ROLLBACK_FAILED", str(second_error))
        finally:
            resource_map.close()

    def delete_stack(self, name_or_stack_id: str) -> None:
        for stack in [s for s in self.stacks.values() if name_or_stack_id in (s.name, s.stack_id)]:
            _refuse_while_in_progress(stack)
            _status(stack, "DELETE_IN_PROGRESS", "User Initiated")
            exports = [export.name for export in stack.exports]
            failures = stack.resource_map.remove_all()
            if failures:
                _status(stack, "DELETE_FAILED", "; ".join(failures))
                continue
            _status(stack, "DELETE_COMPLETE")
            stack.output_map = OutputMap(stack.resource_map, {}, stack.stack_id)
            for name in exports:
                self.exports.pop(name, None)
            for change_set_id in [i for i, c in self.change_sets.items() if c.stack_id == stack.stack_id]:
                del self.change_sets[change_set_id]
            self.deleted_stacks[stack.stack_id] = self.stacks.pop(stack.stack_id)

    def change_set_of(self, name: str, stack_name: str | None) -> ChangeSet:
        """A change set by its ARN, or by its name and its stack; moto takes the last of that name in any stack."""
        for change_set_id, change_set in self.change_sets.items():
            its_stack = stack_name in (None, change_set.stack_name, change_set.stack_id)
            if name == change_set_id or (name == change_set.change_set_name and its_stack):
                return change_set
        raise ValidationError(message=f"ChangeSet [{name}] does not exist")


def _create_resources(stack: Stack) -> None:
    """What a stack that was made by CreateStack does next."""
    background.begin(lambda: _create(stack))


Stack.create_resources = _create_resources


def _create(stack: Stack) -> None:
    _status(stack, "CREATE_IN_PROGRESS")
    resource_map: Any = stack.resource_map
    # Until all its resources are there, none of its outputs is.
    stack.output_map = OutputMap(resource_map, {}, stack.stack_id)
    try:
        resource_map.open(stack.template_dict, stack.parameters)
        resource_map.make_all()
        stack.output_map = OutputMap(resource_map, stack.template_dict, stack.stack_id)
        _publish(stack, cloudformation_backends[stack.account_id][stack.region_name])
        _status(stack, "CREATE_COMPLETE")
    except ResourceFailed as error:
        _status(stack, "ROLLBACK_IN_PROGRESS", str(error))
        # What was created a moment ago holds nothing yet: it goes, whatever its DeletionPolicy.
        failures = resource_map.remove_all(retained_too=True)
        _status(stack, "ROLLBACK_FAILED" if failures else "ROLLBACK_COMPLETE", "; ".join(failures) or None)
    finally:
        resource_map.close()


def _take(stack: Stack, template: str, parameters: dict[str, Any], tags: dict[str, str] | None) -> None:
    """Make a template a stack's own, outputs and exports with it; moto's change sets leave a stack without outputs."""
    stack.template = template
    stack._parse_template()
    stack.description = stack.template_dict.get("Description")
    stack.parameters = parameters
    if tags is not None:
        stack.tags = tags
    stack.output_map = OutputMap(stack.resource_map, stack.template_dict, stack.stack_id)


def _publish(stack: Stack, backend: CloudFormationBackend) -> None:
    for export in stack.exports:
        backend.exports[export.name] = export


def _status(stack: Stack, status: str, reason: str | None = None) -> None:
    stack.status = status
    stack.status_reason = reason
    stack._add_stack_event(status, resource_status_reason=reason)


def _refuse_while_in_progress(stack: Stack) -> None:
    if stack.status.endswith("_IN_PROGRESS") and stack.status != "REVIEW_IN_PROGRESS":
        raise ValidationError(
            message=f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated or deleted until that has ended"
        )


def _refuse_unknown_types(template: dict[str, Any]) -> None:
    unknown = [
        f"{definition['Type']} ({name})"
        for name, definition in template.get("Resources", {}).items()
        if not resources.supported(definition["Type"])
    ]
    if unknown:
        raise ValidationError(
            message=f"Template format error: the local account does not have these resource types: {', '.join(unknown)}"
        )


def _describe_change_set(self: CloudFormationResponse) -> ActionResult:
    return ActionResult(_change_set(self))


def _execute_change_set(self: CloudFormationResponse) -> EmptyResult:
    self.cloudformation_backend.execute_change_set(_change_set(self).change_set_id)
    return EmptyResult()


def _delete_change_set(self: CloudFormationResponse) -> EmptyResult:
    backend = self.cloudformation_backend
    change_set = _change_set(self)
    del backend.change_sets[change_set.change_set_id]
    return EmptyResult()


def _change_set(response: CloudFormationResponse) -> ChangeSet:
    backend: Any = response.cloudformation_backend
    change_set: ChangeSet = backend.change_set_of(
        response._get_param("ChangeSetName"), response._get_param("StackName")
    )
    return change_set


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def _references(value: Any) -> set[str]:
    """The logical ids that a definition refers to."""
    if isinstance(value, list):
        return set().union(*(_references(item) for item in value))
    if not isinstance(value, dict):
        return set()
    found = set(_listed(value.get("DependsOn")))
    for name, item in value.items():
        if name == "Ref" and isinstance(item, str):
            found.add(item)
        elif name == "Fn::GetAtt":
            found.add(item[0] if isinstance(item, list) else str(item).partition(".")[0])
        elif name == "Fn::Sub":
            text = item[0] if isinstance(item, list) else item
            found |= {part.split("}")[0].split(".")[0] for part in text.split("${")[1:]}
        found |= _references(item)
    return found


def _retained(definition: dict[str, Any], policy: str) -> bool:
    return definition.get(policy) in ("Retain", "RetainExceptOnCreate", "Snapshot")


def _reason(error: Exception) -> str:
    return str(getattr(error, "message", None) or error) or type(error).__name__
