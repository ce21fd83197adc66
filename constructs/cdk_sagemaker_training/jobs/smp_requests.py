"""What versions 1 and 2 of SageMaker's model parallelism library share: their parameters as hyperparameters and advice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.core.unlisted import check_listed, unlisted_values, unlisted_warning
from cdk_sagemaker_training.jobs.advice import Advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def set_parameters(parallelism: DataclassInstance) -> dict[str, Any]:
    """Return the library's parameters of an ``SmpV1`` or ``SmpV2`` that are not None, in their order."""
    values = {field.name: getattr(parallelism, field.name) for field in fields(parallelism)}
    values.pop("custom_mpi_options", None)
    values |= values.pop("more") or {}
    return {name: value for name, value in values.items() if value is not None}


def arguments_of(table: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an ``SmpV1`` or ``SmpV2``.

    Args:
        table: The parameters of the version.
        parameters: Values by the parameters' names; those that the table lacks go to ``more``.
    """
    listed = {name: value for name, value in parameters.items() if name in table}
    more = {name: value for name, value in parameters.items() if name not in table}
    return {**listed, **({"more": more} if more else {})}


def unlisted_parameters_advice(parallelism: DataclassInstance) -> tuple[Advice, ...]:
    """Return the warnings about unlisted parameters."""
    return tuple(Advice(*unlisted_warning(one)) for one in unlisted_values(set_parameters(parallelism)))


def mp_parameters(parallelism: DataclassInstance) -> dict[str, str]:
    """Return the hyperparameter ``mp_parameters``, if a parameter is set."""
    given = set_parameters(parallelism)
    return {"mp_parameters": json.dumps(given)} if given else {}


def check_instance_type(version: int, group: InstanceGroup, supported: tuple[str, ...]) -> None:
    """Check that the library supports the machines.

    Args:
        version: Version of the library, for the message.
        group: The machines; an ``unlisted`` type passes.
        supported: The types that it supports.

    Raises:
        ValueError: It does not.
    """
    check_listed(
        "smp-types",
        group.instance_type,
        group.instance_type in supported,
        f"instance_type must be one that SMP v{version} supports, like {supported[0]!r} of {', '.join(supported)}",
    )
