"""Versions and aliases of state machines, which moto has in part.

Texts and rules are AWS's as LocalStack recorded them (`test_sfn_api_versioning.py`, `test_sfn_api_aliasing.py`).
"""

from __future__ import annotations

import random
from typing import Any

from moto.core.exceptions import AWSError
from moto.stepfunctions.exceptions import StateMachineDoesNotExist, ValidationException
from moto.stepfunctions.models import StateMachine, StateMachineAlias, StateMachineVersion
from moto.stepfunctions.parser.models import StepFunctionsParserBackend
from typing_extensions import override

_RANDOM = random.SystemRandom()
# What a version keeps of its state machine.
CONTENT = ("definition", "roleArn", "loggingConfiguration", "tracingConfiguration", "encryptionConfiguration")


class ConflictException(AWSError):
    """The revision is not the current one, the version is in use, or the alias exists with other content."""

    TYPE = "ConflictException"
    STATUS = 400


class ResourceNotFound(AWSError):
    """The alias does not exist."""

    TYPE = "ResourceNotFound"
    STATUS = 400


class Versions(StepFunctionsParserBackend):
    """The operations of versions and aliases."""

    def machine_of(self, arn: str) -> tuple[StateMachine, StateMachineVersion | None, StateMachineAlias | None]:
        """The state machine, version and alias of an ARN of any of them; an alias routes by its weights.

        Raises:
            StateMachineDoesNotExist: there is none.
        """
        self._validate_machine_arn(arn)
        source, _, suffix = arn.rpartition(":")
        for machine in self.state_machines:
            if machine.arn == arn:
                return machine, None, None
            if machine.arn != source:
                continue
            if (alias := machine.aliases.get(suffix)) is not None:
                routes = alias.routing_configuration
                route = _RANDOM.choices(routes, [it["weight"] for it in routes])[0]
                return machine, machine.versions[_number(route)], alias
            if suffix.isdecimal() and (version := machine.versions.get(int(suffix))) is not None:
                return machine, version, None
        raise StateMachineDoesNotExist(f"State Machine Does Not Exist: '{arn}'")

    def own_machine(self, arn: str) -> StateMachine:
        """The state machine of an ARN, which may be neither that of a version nor that of an alias."""
        machine = self.machine_of(arn)[0]
        if machine.arn != arn:
            raise StateMachineDoesNotExist(f"State Machine Does Not Exist: '{arn}'")
        return machine

    def publish(
        self, machine: StateMachine, description: str | None, revision_id: str | None = None
    ) -> StateMachineVersion:
        """Publishes the current revision, once: the same revision again is the same version.

        Raises:
            ConflictException: the current revision is another one than `revision_id`.
        """
        # "To specify the initial version of a state machine revision, set the value as INITIAL" (PublishStateMachineVersion).
        current = getattr(machine, "revision_id", None) or "INITIAL"
        if revision_id not in (None, current):
            raise ConflictException(
                f"Failed to publish the State Machine version for revision {revision_id}. "
                f"The current State Machine revision is {current}."
            )
        latest = machine.versions.get(machine.latest_version_number)
        if latest is None or any(getattr(latest, name) != getattr(machine, name) for name in CONTENT):
            machine.publish(description)
            latest = machine.versions[machine.latest_version_number]
            latest.revision_id = getattr(machine, "revision_id", None)
            latest.sm_type = machine.sm_type
        return latest

    def list_versions(self, arn: str) -> list[StateMachineVersion]:
        """The versions of a state machine, the latest first."""
        return [version for _, version in sorted(self.own_machine(arn).versions.items(), reverse=True)]

    def delete_version(self, arn: str) -> None:
        """Deletes a version, which may not exist.

        Raises:
            ConflictException: an alias routes to it.
        """
        self._validate_machine_arn(arn)
        source, _, number = arn.rpartition(":")
        machine = next((it for it in self.state_machines if it.arn == source), None)
        if machine is None or not number.isdecimal():
            return
        used_by = [it.name for it in machine.aliases.values() if arn in _versions(it.routing_configuration)]
        if used_by:
            raise ConflictException(
                "Version to be deleted must not be referenced by an alias. Current list of aliases referencing this "
                f"version: [{', '.join(used_by)}]"
            )
        machine.versions.pop(int(number), None)

    @override
    def create_state_machine_alias(
        self, name: str, routing_configuration: list[dict[str, Any]], description: str | None
    ) -> StateMachineAlias:
        """Creates an alias; the same call again returns it."""
        machine = self._machine_of_routes(routing_configuration)
        existing = machine.aliases.get(name)
        if existing is None:
            alias: StateMachineAlias = super().create_state_machine_alias(name, routing_configuration, description)
            return alias
        if (existing.routing_configuration, existing.description) != (routing_configuration, description):
            raise ConflictException(
                "Failed to create alias because an alias with the same name and a different routing configuration "
                "already exists."
            )
        return existing

    @override
    def update_state_machine_alias(
        self, arn: str, description: str | None, routing_configuration: list[dict[str, Any]] | None
    ) -> StateMachineAlias:
        if self._alias(arn) is None:
            raise ResourceNotFound("Request references a resource that does not exist.")
        if routing_configuration:
            self._machine_of_routes(routing_configuration)
        alias: StateMachineAlias = super().update_state_machine_alias(arn, description, routing_configuration)
        return alias

    @override
    def delete_state_machine_alias(self, arn: str) -> None:
        if self._alias(arn) is not None:
            super().delete_state_machine_alias(arn)

    def _alias(self, arn: str) -> StateMachineAlias | None:
        self._validate_machine_arn(arn)
        source, _, name = arn.rpartition(":")
        return next((it.aliases.get(name) for it in self.state_machines if it.arn == source), None)

    def _machine_of_routes(self, routes: list[dict[str, Any]]) -> StateMachine:
        arns = _versions(routes)
        received = f"Received: [{', '.join(arns)}]"
        if not all(arn.rpartition(":")[2].isdecimal() for arn in arns):
            raise ValidationException(f"Routing configuration must contain state machine version ARNs. {received}")
        if len(set(arns)) < len(arns):
            raise ValidationException(
                f"Routing configuration must contain distinct state machine version ARNs. {received}"
            )
        weights = [it["weight"] for it in routes]
        if sum(weights) != 100:
            raise ValidationException(f"Sum of routing configuration weights must equal 100. Received: {weights}")
        if len({arn.rpartition(":")[0] for arn in arns}) > 1:
            raise ValidationException("Both stateMachineVersionArn values must belong to the same state machine.")
        machines = [self.machine_of(arn)[0] for arn in arns]
        return machines[0]


def _versions(routes: list[dict[str, Any]]) -> list[str]:
    return [it["stateMachineVersionArn"] for it in routes]


def _number(route: dict[str, Any]) -> int:
    return int(route["stateMachineVersionArn"].rpartition(":")[2])
