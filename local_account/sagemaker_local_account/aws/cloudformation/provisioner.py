"""The provisioner: creates a stack's resources in the order of their dependencies, updates them, and deletes them in reverse."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.models import Event, cloudformation_backends
from moto.cloudformation.parsing import ResourceMap, parse_and_create_resource, parse_and_update_resource
from moto.ec2.models import ec2_backends
from moto.ec2.models.core import TaggedEC2Resource
from moto.stepfunctions import models as stepfunctions_models

from sagemaker_local_account.aws.cloudformation import (
    intrinsics,
    parameter_values,
    resource_registry,
    resource_schemas,
)
from sagemaker_local_account.aws.log_failures import log_failure

_log = logging.getLogger(__name__)


class ResourceFailed(Exception):
    """A resource could not be created, updated or deleted."""


def _why(error: Exception, name: str, definition: dict[str, Any]) -> str:
    """The reason of an error, of a property that moto has looked up and that the resource lacks in CloudFormation's sentence."""
    [looked_up, *_] = error.args or ("",)
    if type(error) is not KeyError or looked_up in (definition.get("Properties") or {}):
        return reason(error)
    return f"Properties validation failed for resource {name} with message: [#: required key [{looked_up}] not found]"


@dataclass(frozen=True)
class _Former:
    """A resource that another took the place of, with its definition and the properties that it was given."""

    name: str
    resource: Any
    definition: dict[str, Any]
    given: dict[str, Any]


class Resources(ResourceMap):
    """A stack's resources, in the order of their creation."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._making: list[str] = []
        # What an update has yet to modify.
        self._pending: dict[str, None] = {}
        # What former templates have and the current one has not, until it is deleted.
        self._left: dict[str, Any] = {}
        # The resources that refer to an attribute, by the resource that has it and the attribute.
        self._users: dict[str, dict[str, set[str]]] = {}
        self._looked_at: set[str] = set()
        self._former: dict[str, Any] = {}
        # The properties that templates gave to resources, as they were evaluated when these were made or modified.
        self.given: dict[str, dict[str, Any]] = {}
        # What an update replaced, and what took the place of that before a rollback; deleted once all else is done.
        self._replaced: list[_Former] = []
        self._discarded: list[_Former] = []
        # The thread that creates or updates the stack, in which looking a resource up creates it; None otherwise.
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
            self._before(definition)
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
            log_failure(_log, error, "%s was not created", key)
            why = _why(error, key, definition)
            self._event(key, None, "CREATE_FAILED", why)
            raise ResourceFailed(f"{key} ({definition['Type']}): {why}") from error
        self._parsed_resources[key] = resource
        self.given[key] = self._properties(definition)
        tags = {**self.tags, "aws:cloudformation:logical-id": key}
        if isinstance(resource, TaggedEC2Resource):
            ec2_backends[self._account_id][self._region_name].create_tags([resource.physical_resource_id], tags)
        elif definition["Type"] == "AWS::StepFunctions::StateMachine":
            stepfunctions_models.stepfunctions_backends[self._account_id][self._region_name].tag_resource(
                resource.arn, tags
            )
        self._event(key, resource, "CREATE_COMPLETE")
        return resource

    def load_parameters(self) -> None:
        """Sets the values of the parameters by their types, also of those that have their defaults."""
        slots = self._template.get("Parameters", {})
        self.no_echo_parameter_keys = [
            name for name, slot in slots.items() if str(slot.get("NoEcho")).lower() == "true"
        ]
        for name, value in parameter_values.given_or_default(self._template, self.input_parameters).items():
            self.resolved_parameters[name] = parameter_values.typed(
                slots[name], value, self._account_id, self._region_name
            )
        self._parsed_resources.update(self.resolved_parameters)

    def load_conditions(self) -> None:
        """Evaluates the conditions, each when it is asked for."""
        self.lazy_condition_map = parsing.LazyDict()
        for name, condition in self._template.get("Conditions", {}).items():
            self.lazy_condition_map[name] = functools.partial(intrinsics.holds, condition, self)
        for name in [*self.lazy_condition_map]:
            self.lazy_condition_map[name]

    def existing(self) -> list[Any]:
        """Returns the resources that there are, those among them that an update has yet to delete."""
        return [resource for resource in self._parsed_resources.values() if hasattr(resource, "logical_resource_id")]

    def open(self, template: dict[str, Any], parameters: dict[str, Any]) -> None:
        """Sets the template and its parameters; from now on looking a resource up creates it, until `close`."""
        self._template = template
        self._resource_json_map = template["Resources"]
        self.input_parameters = parameters
        self.tags["aws:cloudformation:stack-name"] = self._parsed_resources["AWS::StackName"]
        self.tags["aws:cloudformation:stack-id"] = self.stack_id
        self.resolved_parameters: dict[str, Any] = {}
        self.load()
        self._maker = threading.get_ident()

    def close(self) -> None:
        """Ends the creation of resources."""
        self._maker = None

    def make_all(self) -> None:
        """Creates the missing resources one after the other.

        CloudFormation creates resources concurrently as soon as their dependencies exist. Types whose creation on AWS can
        precede that of related resources, and then fails, are created first.
        """
        for name in sorted(self._resource_json_map, key=self._is_made_later):
            self[name]

    def _is_made_later(self, name: str) -> bool:
        return not resource_registry.is_created_first(self._resource_json_map[name]["Type"])

    def change(
        self,
        template: dict[str, Any],
        parameters: dict[str, Any],
        before_removal: Callable[[], None],
        *,
        rollback: bool = False,
    ) -> None:
        """Updates the resources to another template: adds, modifies, calls what may refuse the update, then removes.

        What an update that failed, and was not rolled back, did not come to is modified by the next one.
        """
        if rollback:
            self._pending = {}
            self._restore_replaced()
        for definition in template["Resources"].values():
            definition.setdefault("Properties", {})  # as of what is made; else one without them would count as modified
        former = self._former = {**self._left, **self._resource_json_map}
        again = [name for name, one in self._left.items() if template["Resources"].get(name, one) != one]
        self._left = {name: one for name, one in former.items() if name not in template["Resources"]}
        modified = [name for name in self._pending if name in template["Resources"]]
        modified += again + self.build_resource_diff(template, parameters)["Modify"]
        conditions, values = self._conditions(), dict(self.resolved_parameters)
        mappings = self._template.get("Mappings")
        self.open(template, parameters)
        self._users = users_of_attributes(self._resource_json_map)
        other = {name for name, holds in self._conditions().items() if conditions.get(name) != holds}
        # Also by another default, and by another value of a parameter in Systems Manager.
        changed = {name for name, value in self.resolved_parameters.items() if values.get(name) != value}
        mapped = mappings != template.get("Mappings")
        modified += [
            name
            for name, one in template["Resources"].items()
            if other & conditions_of(one) or changed & references(one) or (mapped and _has_lookup(one))
        ]
        self._pending, self._looked_at = {name: None for name in modified if name in self._parsed_resources}, set()
        while self._pending:
            self._modify(next(iter(self._pending)))
        self.make_all()
        before_removal()
        self._clean_up()
        wanted = self.wanted()
        gone = [name for name in self._made(former) if name not in wanted]
        self._remove(gone, former, retained_too=False)
        for name in gone:  # also what could not be deleted is no longer the stack's
            self._parsed_resources.pop(name, None)
        self._left = {}

    def _before(self, definition: dict[str, Any]) -> None:
        """Creates or modifies what a resource refers to, as CloudFormation does before the resource itself.

        So is what a resource refers to that stays as it is.
        """
        referred = references(definition)
        for name in [one for one in self._resource_json_map if one in referred]:
            if name in self._pending:
                self._modify(name)
            elif self._pending and name in self._parsed_resources:
                if name not in self._looked_at:
                    self._looked_at.add(name)
                    self._before(self._resource_json_map[name])
            else:
                self[name]

    def wanted(self) -> dict[str, Any]:
        """Returns the definitions of the template whose condition holds, by their names."""
        return {
            name: one
            for name, one in self._resource_json_map.items()
            if self.lazy_condition_map.get(one.get("Condition"), True)
        }

    def _modify(self, name: str) -> None:
        """Updates or replaces a resource; those that refer to its id, or to an attribute, that changed are modified too."""
        del self._pending[name]
        try:
            self._modify_after_others(name)
        except Exception:
            self._pending[name] = None
            raise

    def _modify_after_others(self, name: str) -> None:
        original = self._parsed_resources[name]
        definition = self._resource_json_map[name]
        self._before(definition)
        id, attributes = original.physical_resource_id, self._attributes(name)
        self._event(name, original, "UPDATE_IN_PROGRESS")
        try:
            changed = self._updated(name, original, definition)
        except ResourceFailed:
            raise
        except Exception as error:
            log_failure(_log, error, "%s was not updated", name)
            why = _why(error, name, definition)
            self._event(name, original, "UPDATE_FAILED", why)
            raise ResourceFailed(f"{name} ({definition['Type']}): {why}") from error
        self._parsed_resources[name] = changed
        self._event(name, changed, "UPDATE_COMPLETE")
        stale: set[str] = set()
        for attribute, value in self._attributes(name).items():
            if value != attributes[attribute]:
                stale |= self._users[name][attribute]
        if changed.physical_resource_id != id:
            stale |= {other for other, its in self._resource_json_map.items() if name in references(its)}
        stale &= {*self._parsed_resources}
        self._pending |= {other: None for other in self._resource_json_map if other in stale}

    def _conditions(self) -> dict[str, bool]:
        """The conditions of the template, and whether they hold."""
        return {name: bool(self.lazy_condition_map[name]) for name in self._template.get("Conditions", {})}

    def validate_outputs(self) -> None:
        """Does nothing: outputs are checked before a stack is made (`deployable.py`)."""

    def _properties(self, definition: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = intrinsics.evaluated(definition.get("Properties") or {}, self)
        return found

    def _retained(self, definition: dict[str, Any], policy: str) -> bool:
        """Whether a resource stays by its policy, which may be a function."""
        return intrinsics.evaluated(definition.get(policy), self) in ("Retain", "RetainExceptOnCreate", "Snapshot")

    def _attributes(self, name: str) -> dict[str, Any]:
        """The attributes of a resource that others refer to; None for one that it has not."""
        found: dict[str, Any] = {}
        for attribute in self._users.get(name, ()):
            try:
                found[attribute] = intrinsics.evaluated({"Fn::GetAtt": [name, attribute]}, self)
            except Exception:
                found[attribute] = None
        return found

    def _updated(self, name: str, original: Any, definition: dict[str, Any]) -> Any:
        former = self._former[name]
        given, properties = self.given.get(name, {}), self._properties(definition)
        fixed = resource_schemas.create_only(definition["Type"])
        if definition["Type"] != former["Type"] or any(given.get(one) != properties.get(one) for one in fixed):
            return self._replacement(name, original, definition, later=True)
        try:
            changed = parse_and_update_resource(
                name, definition, self, account_id=self._account_id, region_name=self._region_name
            )
        except NotImplementedError:
            changed = None
        if changed is None:
            # A type that cannot be updated here is replaced, and the former does not stand beside it, as it would not on AWS.
            return self._replacement(name, original, definition, later=False)
        self.given[name] = properties
        return changed

    def _replacement(self, name: str, original: Any, definition: dict[str, Any], *, later: bool) -> Any:
        """The resource in place of another, which is deleted at once, or ``later``, when the update can no longer fail."""
        given = self.given.get(name, {})
        del self._parsed_resources[name]
        try:
            changed = self._make(name, definition)
        except ResourceFailed:
            self._parsed_resources[name] = original
            raise
        if later:
            self._replaced.append(_Former(name, original, self._former[name], given))
        elif not self._retained(self._former[name], "UpdateReplacePolicy"):
            self._delete(name, original, self._former[name])
        return changed

    def _clean_up(self) -> None:
        """Deletes what was replaced; what cannot be deleted does not fail the update."""
        kept = [one for one in self._replaced if self._retained(one.definition, "UpdateReplacePolicy")]
        for one in [one for one in self._replaced if one not in kept] + self._discarded:
            try:
                self._delete(one.name, one.resource, one.definition)
            except Exception as error:
                log_failure(_log, error, "%s was not deleted", one.name)
                self._event(one.name, one.resource, "DELETE_FAILED", reason(error), definition=one.definition)
        self._replaced, self._discarded = [], []

    def _restore_replaced(self) -> None:
        """Takes back the resources that an update replaced, in place of the new ones, whose users are modified."""
        for one in reversed(self._replaced):
            self._discarded.append(replace(one, resource=self._parsed_resources[one.name]))
            self._parsed_resources[one.name], self.given[one.name] = one.resource, one.given
            self._resource_json_map[one.name] = one.definition
            users = [name for name, its in self._resource_json_map.items() if one.name in references(its)]
            self._pending |= dict.fromkeys(users)
        self._replaced = []

    def remove_all(self, *, retained_too: bool = False, retain: Collection[str] = ()) -> list[str]:
        """Deletes all resources but ``retain`` in reverse order; returns the reasons of failures."""
        definitions = {**self._left, **self._resource_json_map}
        return self._remove(self._made(definitions), definitions, retained_too=retained_too, retain=retain)

    def _made(self, definitions: dict[str, Any]) -> list[str]:
        return [name for name in self._parsed_resources if name in definitions]

    def _remove(
        self, names: list[str], definitions: dict[str, Any], *, retained_too: bool, retain: Collection[str] = ()
    ) -> list[str]:
        failures: list[str] = []
        kept: set[str] = set()
        for name in reversed(names):
            resource = self._parsed_resources[name]
            definition = definitions[name]
            if any(name in references(definitions[other]) for other in kept):
                # A resource that refers to it could not be deleted.
                kept.add(name)
                continue
            retained = name in retain or self._retained(definition, "DeletionPolicy")
            if retained and not retained_too:
                self._event(name, resource, "DELETE_SKIPPED", definition=definition)
                del self._parsed_resources[name]
                continue
            try:
                self._delete(name, resource, definition)
            except Exception as error:
                log_failure(_log, error, "%s was not deleted", name)
                self._event(name, resource, "DELETE_FAILED", reason(error), definition=definition)
                failures.append(f"{name} ({definition['Type']}): {reason(error)}")
                kept.add(name)
            else:
                del self._parsed_resources[name]
        return failures

    def _delete(self, name: str, resource: Any, definition: dict[str, Any]) -> None:
        self._event(name, resource, "DELETE_IN_PROGRESS", definition=definition)
        delete = resource_registry.deletion_of(resource)
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


def references(value: Any) -> set[str]:
    """Returns the logical ids that a definition, or a part of one, refers to."""
    depends = _listed(value.get("DependsOn")) if isinstance(value, dict) else ()
    return {*depends, *(name for name, _ in intrinsics.targets(value))}


def conditions_of(value: Any) -> set[str]:
    """Returns the conditions by which a definition chooses values."""
    if isinstance(value, list):
        return set().union(*map(conditions_of, value))
    if not isinstance(value, dict):
        return set()
    own = {str(item[0]) for name, item in value.items() if name == "Fn::If"}
    return own.union(*map(conditions_of, value.values()))


def _has_lookup(value: Any) -> bool:
    """Whether a definition takes a value of a map."""
    if isinstance(value, list):
        return any(map(_has_lookup, value))
    return isinstance(value, dict) and ("Fn::FindInMap" in value or any(map(_has_lookup, value.values())))


def users_of_attributes(definitions: dict[str, Any]) -> dict[str, dict[str, set[str]]]:
    """Returns the resources that refer to attributes, by the resource that has one and the attribute."""
    users: dict[str, dict[str, set[str]]] = {}
    for name, definition in definitions.items():
        for resource, attribute in intrinsics.targets(definition):
            if attribute:
                users.setdefault(resource, {}).setdefault(attribute, set()).add(name)
    return users


def reason(error: Exception) -> str:
    """Returns an error's message, or its class."""
    return str(getattr(error, "message", None) or error) or type(error).__name__


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)
