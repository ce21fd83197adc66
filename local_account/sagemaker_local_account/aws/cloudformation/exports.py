"""What a stack exports, who imports it, and what CloudFormation refuses for their sake.

A name is exported once in a region ("Export with name ... is already exported by stack ...", aws-amplify/amplify-js 5811). While
a stack imports it, an update can neither change nor remove it (linz/geostore 630, anomalyco/sst 1256), and the deletion of its
stack leaves that as it was, with the reason in an event (rlister/stax 40, USSBA/aws-cft-tools 27).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moto.cloudformation.models import CloudFormationBackend, Stack
from moto.cloudformation.parsing import Export, OutputMap

from sagemaker_local_account.aws.cloudformation.intrinsics import evaluated, functions
from sagemaker_local_account.aws.cloudformation.provisioner import ResourceFailed
from sagemaker_local_account.core.patches import patch

_GONE = ("REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE")  # statuses of stacks without resources


def install() -> None:
    """Patches moto's outputs, which export those whose condition does not hold."""
    patch(OutputMap, "exports", property(_exports))


def _exports(self: OutputMap) -> list[Export]:
    resources: Any = self._resource_map
    outputs = [
        output
        for output in (self._output_json_map or {}).values()
        if output.get("Export") and resources.lazy_condition_map.get(output.get("Condition"), True)
    ]
    return [
        Export(
            self._stack_id,
            evaluated(output["Export"].get("Name"), resources),
            evaluated(output.get("Value"), resources),
        )
        for output in outputs
    ]


def publish(backend: CloudFormationBackend, stack: Stack) -> None:
    """Makes a stack's exports those that it has now.

    Raises:
        ResourceFailed: one that is removed or changed is imported, or another stack has one of that name.
    """
    former = {name: export for name, export in backend.exports.items() if export.exporting_stack_id == stack.stack_id}
    new = {export.name: export for export in stack.exports}
    for name in sorted(new.keys() & backend.exports.keys() - former.keys()):
        owner = backend.stacks[backend.exports[name].exporting_stack_id].name
        raise ResourceFailed(f"Export with name {name} is already exported by stack {owner}")
    changed = [name for name in former.keys() & new.keys() if former[name].value != new[name].value]
    why = _why_kept(backend, changed, "updated") or _why_kept(backend, former.keys() - new.keys(), "deleted")
    if why:
        raise ResourceFailed(why)
    withdraw(backend, stack)
    backend.exports.update(new)


def withdraw(backend: CloudFormationBackend, stack: Stack) -> None:
    """Removes a stack's exports."""
    for name in [name for name, export in backend.exports.items() if export.exporting_stack_id == stack.stack_id]:
        del backend.exports[name]


def why_not_deleted(backend: CloudFormationBackend, stack: Stack) -> str | None:
    """Returns why a stack cannot be deleted: another one imports from it. None if it can."""
    return _why_kept(backend, [export.name for export in stack.exports], "deleted")


def _why_kept(backend: CloudFormationBackend, names: Iterable[str], change: str) -> str | None:
    """Why exports can be neither updated nor deleted: another stack imports one of them. None if none does."""
    stacks = [stack for stack in backend.stacks.values() if stack.status not in _GONE]
    for name in sorted(names):
        if importing := [stack.name for stack in stacks if name in _imported(stack)]:
            return f"Export {name} cannot be {change} as it is in use by {' and '.join(importing)}"
    return None


def _imported(stack: Stack) -> set[str]:
    """The names that a stack's template imports."""
    parts = [stack.template_dict.get(part, {}) for part in ("Resources", "Outputs", "Conditions")]
    return {
        str(evaluated(argument, stack.resource_map)) for name, argument in functions(parts) if name == "Fn::ImportValue"
    }
