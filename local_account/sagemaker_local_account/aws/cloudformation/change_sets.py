"""Change sets: what CreateChangeSet, DescribeChangeSet, ListChangeSets, DeleteChangeSet and ExecuteChangeSet answer.

moto makes a second stack of a name that exists, finds a stack by its name alone, lists the change sets of all stacks, and
executes one that failed. The answers are those that AWS gave to LocalStack's tests (localstack/localstack at 8b9a79f,
tests/aws/services/cloudformation/api/test_changesets.py).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from moto.cloudformation.exceptions import CloudFormationError, ValidationError
from moto.cloudformation.models import ChangeSet, Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.cloudformation.utils import generate_changeset_id, generate_stack_id
from moto.core.responses import ActionResult, EmptyResult

from sagemaker_local_account.aws.cloudformation import deployable, parameter_values, resource_schemas, templates
from sagemaker_local_account.aws.cloudformation.provisioner import references
from sagemaker_local_account.aws.cloudformation.request_members import (
    constraint,
    parameters_of,
    stack_of,
    tags_of,
    template_of,
)
from sagemaker_local_account.core.patches import patch, patch_item

_NAME = re.compile(r"[a-zA-Z][-a-zA-Z0-9]{0,127}")
_TYPES = ("CREATE", "UPDATE")
# A stack can be updated in these statuses: "Stack status codes" (view-stack-events.html of CloudFormation's guide).
UPDATABLE = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "CREATE_FAILED", "UPDATE_FAILED")
_NO_CHANGES = "The submitted information didn't contain changes. Submit different information to create a change set."


class ChangeSetNotFound(CloudFormationError):
    """There is no such change set; the CDK CLI waits for this error after a deletion. moto's error is about the stack."""

    code = "ChangeSetNotFound"


class InvalidChangeSetStatus(CloudFormationError):
    """A change set cannot be executed: it failed, or was executed."""

    code = "InvalidChangeSetStatus"


class ChangeSetAlreadyExists(CloudFormationError):
    """A stack has a change set of that name, which was not executed."""

    code = "AlreadyExistsException"


def install() -> None:
    """Patches moto's requests."""
    patch(CloudFormationResponse, "create_change_set", _create, "self")
    patch(CloudFormationResponse, "describe_change_set", _describe, "self")
    patch(CloudFormationResponse, "list_change_sets", _list, "self")
    patch(CloudFormationResponse, "delete_change_set", _delete, "self")
    patch(CloudFormationResponse, "execute_change_set", _execute, "self")
    patch_item(CloudFormationResponse.RESPONSE_KEY_PATH_TO_TRANSFORMER, "DescribeChangeSetOutput.Parameters", _listed)
    patch(ChangeSet, "_parse_template", _parse_template, "self")


def _parse_template(self: ChangeSet) -> None:
    self.template_dict = templates.parsed(self.template)


def _listed(parameters: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The parameters of a change set, which has no such member without one."""
    return [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()] or None


def _create(self: CloudFormationResponse) -> ActionResult:
    stack_name, name = self._get_param("StackName"), self._get_param("ChangeSetName")
    kind = self._get_param("ChangeSetType", "UPDATE")
    if not stack_name:
        raise ValidationError(message="StackName is a required parameter.")
    if kind == "IMPORT":
        raise ValidationError(message="the local account does not support change sets that import resources")
    if kind not in _TYPES:
        raise constraint(kind, "changeSetType", "satisfy enum value set: [IMPORT, CREATE, UPDATE]")
    if not _NAME.fullmatch(str(name)):
        raise constraint(name, "changeSetName", "satisfy regular expression pattern: [a-zA-Z][-a-zA-Z0-9]*")
    self.validate_template_and_stack_body()
    backend: Any = self.cloudformation_backend
    stack = _stack_for(self, kind, name)
    template, parameters = template_of(self, stack), parameters_of(self, stack)
    resources = deployable.check(backend, stack_name, template, parameters, self._get_param("Capabilities", []))
    details = {
        "parameters": parameters,
        "notification_arns": self._get_param("NotificationARNs"),
        "tags": tags_of(self),
        "role_arn": self._get_param("RoleARN"),
    }
    if stack is None:
        stack = _reviewed(backend, stack_name)
    if any(one.change_set_name == name and _is_pending(one) for one in _of(backend, stack)):
        raise ChangeSetAlreadyExists(
            f"ChangeSet {name} cannot be created due to a mismatch with existing attribute Template"
        )
    id = generate_changeset_id(name, self.region, self.current_account)
    made: Any = ChangeSet(kind, id, name, stack, template, description=self._get_param("Description"), **details)
    made.capabilities = self._get_param("Capabilities", [])
    made.changes = [*_changes(stack, made, resources)]
    made.status, made.execution_status = "CREATE_COMPLETE", "AVAILABLE"
    if kind == "UPDATE" and not is_changed(stack, template, made.parameters, made.tags):
        made.status, made.execution_status, made.status_reason = "FAILED", "UNAVAILABLE", _NO_CHANGES
    backend.change_sets[id] = made
    return ActionResult({"Id": id, "StackId": stack.stack_id})


def refuse_unless_updatable(stack: Stack) -> None:
    """Raises ``ValidationError`` for a stack whose status allows no update."""
    if stack.status not in UPDATABLE:
        raise ValidationError(message=f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")


def is_changed(stack: Stack, template: str | None, parameters: dict[str, Any], tags: dict[str, str] | None) -> bool:
    """Whether an update differs from what a stack has; the values of parameters of which nothing is said are their defaults."""
    if stack.status.endswith("_FAILED"):
        return True
    new, former = ({**templates.parsed(text), "Metadata": None} for text in (template, str(stack.template)))
    values = parameter_values.given_or_default(new, parameters)
    return new != former or values != stack.stack_parameters or (tags is not None and tags != stack.tags)


def _stack_for(request: CloudFormationResponse, kind: str, change_set: str) -> Stack | None:
    """The stack of a change set that is created; None for one that is yet to be made."""
    if kind == "UPDATE":
        updated: Stack = stack_of(request)
        refuse_unless_updatable(updated)
        return updated
    name = request._get_param("StackName")
    backend: Any = request.cloudformation_backend
    stack: Stack | None = backend.find_stack(name)
    if stack is not None and stack.status != "REVIEW_IN_PROGRESS":
        raise ValidationError(
            message=f"Stack [{name}] already exists and cannot be created again with the changeSet [{change_set}]."
        )
    return stack


def _reviewed(backend: Any, name: str) -> Stack:
    """A stack without resources, which exists for its change set."""
    id = generate_stack_id(name, backend.region_name, backend.account_id)
    stack: Any = Stack(id, name, {}, {}, backend.account_id, backend.region_name)
    backend.stacks[id] = stack
    stack.status, stack.status_reason = "REVIEW_IN_PROGRESS", "User Initiated"
    stack._add_stack_event("REVIEW_IN_PROGRESS", resource_status_reason="User Initiated")
    return stack


def _changes(stack: Stack, change_set: ChangeSet, new: Any) -> Iterator[dict[str, Any]]:
    """What a change set does to the resources of a stack, of which ``new`` are those that it leaves."""
    resources: Any = stack.resource_map
    given = change_set.parameters
    parameters = [name for name in given if resources.input_parameters.get(name) != given[name]]
    made = {one.logical_resource_id: one.physical_resource_id for one in resources.existing()}
    former = {name: one for name, one in resources._resource_json_map.items() if name in made}
    definitions = new.wanted()
    for name in {**definitions, **former}:
        change = {"Action": "Add", "Details": [], "Scope": []}
        if name in former:
            change |= {"Action": "Remove", "PhysicalResourceId": made[name]}
        if name in former and name in definitions:
            change |= {"Action": "Modify", **_modification(former[name], definitions[name], parameters)}
            if not change["Scope"]:
                continue
        yield {**change, "LogicalResourceId": name, "ResourceType": (definitions.get(name) or former[name])["Type"]}


def _modification(former: dict[str, Any], new: dict[str, Any], parameters: list[str]) -> dict[str, Any]:
    """What changes of a resource, also by the parameters that change, and whether that replaces it."""
    before, after = former.get("Properties") or {}, new.get("Properties") or {}
    fixed, details, names = resource_schemas.create_only(new["Type"]), [], []
    for name in {**before, **after}:
        of = {
            "Attribute": "Properties",
            "Name": name,
            "RequiresRecreation": "Always" if name in fixed else "Never",
        }
        causes = [one for one in parameters if one in references(after.get(name))]
        details += [
            {"CausingEntity": one, "ChangeSource": "ParameterReference", "Evaluation": "Static", "Target": of}
            for one in causes
        ]
        if causes or before.get(name) != after.get(name):
            evaluation = "Dynamic" if causes else "Static"
            details.append({"ChangeSource": "DirectModification", "Evaluation": evaluation, "Target": of})
            names.append(name)
    parts = ("Metadata", "CreationPolicy", "UpdatePolicy", "DeletionPolicy", "UpdateReplacePolicy")
    scope = ["Properties"] * bool(names) + [part for part in parts if former.get(part) != new.get(part)]
    return {"Scope": scope, "Details": details, "Replacement": "True" if fixed & {*names} else "False"}


def _of(backend: Any, stack: Stack) -> list[ChangeSet]:
    return [one for one in backend.change_sets.values() if one.stack_id == stack.stack_id]


def _is_pending(change_set: ChangeSet) -> bool:
    return change_set.execution_status in ("AVAILABLE", "UNAVAILABLE")


def named(
    request: CloudFormationResponse,
    without_stack: str = "StackName must be specified if ChangeSetName is not specified as an ARN.",
) -> ChangeSet:
    """Returns the change set of a request, by its ARN or by its name and stack.

    Args:
        request: the request.
        without_stack: the message for a name without a stack.

    Raises:
        ValidationError: the stack does not exist, or is not given.
        ChangeSetNotFound: the change set does not exist.
    """
    name = request._get_param("ChangeSetName")
    backend: Any = request.cloudformation_backend
    if name in backend.change_sets:
        found: ChangeSet = backend.change_sets[name]
        return found
    if str(name).startswith("arn:"):
        raise ChangeSetNotFound(f"ChangeSet [{name}] does not exist")
    if not request._get_param("StackName"):
        raise ValidationError(message=without_stack)
    # The last one: former change sets of the same name have been executed.
    for change_set in reversed(_of(backend, stack_of(request))):
        if change_set.change_set_name == name:
            return change_set
    raise ChangeSetNotFound(f"ChangeSet [{name}] does not exist")


def _describe(self: CloudFormationResponse) -> ActionResult:
    change_set: Any = named(self)
    return ActionResult(
        _summary(change_set)
        | {
            "Capabilities": change_set.capabilities,
            "Changes": change_set.changes,
            "NotificationARNs": change_set.notification_arns or [],
            "Parameters": change_set.parameters,
            "RollbackConfiguration": {},
            "Tags": [{"Key": key, "Value": value} for key, value in (change_set.tags or {}).items()],
        }
    )


def _summary(change_set: Any) -> dict[str, Any]:
    members = {
        "ChangeSetId": change_set.change_set_id,
        "ChangeSetName": change_set.change_set_name,
        "StackId": change_set.stack_id,
        "StackName": change_set.stack_name,
        "CreationTime": change_set.creation_time,
        "Description": change_set.description,
        "ExecutionStatus": change_set.execution_status,
        "IncludeNestedStacks": False,
        "Status": change_set.status,
        "StatusReason": change_set.status_reason,
    }
    return {name: value for name, value in members.items() if value is not None}


def _list(self: CloudFormationResponse) -> ActionResult:
    pending = [one for one in _of(self.cloudformation_backend, stack_of(self)) if _is_pending(one)]
    return ActionResult({"Summaries": [_summary(one) for one in pending]})


def _delete(self: CloudFormationResponse) -> EmptyResult:
    """DeleteChangeSet, which succeeds for a change set that does not exist: it has no error for that."""
    with contextlib.suppress(ChangeSetNotFound):
        del self.cloudformation_backend.change_sets[named(self).change_set_id]
    return EmptyResult()


def _execute(self: CloudFormationResponse) -> EmptyResult:
    change_set: Any = named(self)
    if change_set.status != "CREATE_COMPLETE":
        raise InvalidChangeSetStatus(
            f"ChangeSet [{change_set.change_set_id}] cannot be executed in its current status of [{change_set.status}]"
        )
    if change_set.execution_status != "AVAILABLE":
        raise InvalidChangeSetStatus(
            f"ChangeSet [{change_set.change_set_id}] cannot be executed in its current execution status of "
            f"[{change_set.execution_status}]"
        )
    backend: Any = self.cloudformation_backend
    backend.execute_change_set(
        change_set.change_set_id, disable_rollback=self._get_bool_param("DisableRollback", False)
    )
    withdraw(backend, change_set.stack, but=change_set)
    return EmptyResult()


def withdraw(backend: Any, stack: Stack, but: ChangeSet | None = None) -> None:
    """Deletes the change sets of a stack that were not executed: they are not valid for the stack that it becomes."""
    for one in _of(backend, stack):
        if one is not but and _is_pending(one):
            del backend.change_sets[one.change_set_id]
