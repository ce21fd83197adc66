"""What TrainingTask and TrainingWorkflow take of a job: each prop is declared once, in a base class of `TrainingProps`.

From a prop's declaration come what an editor shows and a type checker accepts, the checks with the examples in their messages,
the members of the request, what `.sync` takes, what an execution's input may decide, and docs/members.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from cdk_sagemaker_training.props.prop import Member, Prop, declared, is_required
from cdk_sagemaker_training.props.prop_types import annotations_of, check_props_of, did_you_mean, table_of
from cdk_sagemaker_training.props.stand_ins import kind_of
from cdk_sagemaker_training.request.access import AccessProps, MonitoringProps
from cdk_sagemaker_training.request.container import ContainerProps
from cdk_sagemaker_training.request.data import DataProps
from cdk_sagemaker_training.request.machine import MachineProps


class TrainingProps(MachineProps, ContainerProps, DataProps, AccessProps, MonitoringProps, total=False):
    """The props of a training job, in the words of CreateTrainingJob.

    ``job``, ``image`` and ``output`` are required. What is left out is as SageMaker has it, unless its documentation says
    otherwise. Text and numbers may be tokens as far as docs/members.md says.

    The members of one structure of the request are in the order of their props.
    """


def table() -> Mapping[str, Prop]:
    """The record of each prop, by the prop's name."""
    return table_of(TrainingProps)


def leaves() -> Iterator[tuple[str, Member]]:
    """The props' names with the members that come from them, structures with parts by their parts."""
    return ((name, member) for name, prop in table().items() for member in prop.leaves())


def prop_names() -> Mapping[str, str]:
    """The props' names in messages, by the paths of their members; of several paths that fit the longest counts."""
    return {
        member.path: member.name or name
        for name, prop in table().items()
        for outer in prop.members
        for member in (outer, *outer.leaves())
    }


def check_props(construct: str, props: Mapping[str, Any], others: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Check that props exist, are complete and of the right types.

    Args:
        construct: The construct's class, for the message.
        props: Values by the props' names.
        others: Props of the construct that are none of a job, by their names.

    Raises:
        TypeError: As for any function's arguments, for a prop that is not there and for one that is missing.
        ValueError: For one of the wrong type, such as an ARN in place of a key.
    """
    hints = annotations_of(TrainingProps)
    for name in props:
        if name not in hints:
            raise TypeError(
                f"{construct} got an unexpected keyword argument {name!r}{did_you_mean(name, [*hints, *others])}"
            )
    for name, hint in hints.items():
        if is_required(hint) and name not in props:
            known = kind_of(declared(hint)[0])
            example = "" if known is None else f", like {name}={known.example}"
            raise TypeError(f"{construct} missing required keyword argument {name!r}{example}")
    check_props_of(TrainingProps, props)
