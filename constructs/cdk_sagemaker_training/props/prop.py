"""The record of a prop: what the request has of it, its rules, and its example. It is declared in the annotation of the prop.

As a field of pydantic's or an option of Typer's, a prop is one declaration: ``Annotated[type, Prop(...)]``, with its
documentation below it, which an editor shows where the prop is typed. Type checkers read the type and skip the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, Required, get_args, get_origin

When = Literal["execution", "deployment", "synth"]
# What a record computes or checks: of the prop's value (None where it is not given) and of the request's context.
OfRequest = Callable[[Any, Any], Any]


class Known(NamedTuple):
    """When a prop must be known.

    Args:
        when: An ``"execution"`` may decide it, or it must be known at ``"deployment"`` or at ``"synth"``.
        why: Why not later; of a prop that an execution decides, how it does. Default: none.
    """

    when: When
    why: str = ""


def _as_it_is(value: Any, context: Any) -> Any:
    return value


@dataclass(frozen=True)
class Member:
    """A member of CreateTrainingJob that comes from a prop.

    Args:
        path: Where the member is in the request, like ``"OutputDataConfig.KmsKeyId"``; members of lists have no index.
        value: The member's value; None, an empty dict and an empty list leave the member out. Default: the prop's value.
        sync: Whether `sagemaker:createTrainingJob.sync` is known to take the member: it is one of CDK's own task, or of a public
            state machine that was seen to run. AWS publishes no list. Default: False.
        docs: The member's text in docs/members.md, in Markdown. Default: the prop's name.
        name: What messages call the prop, such as ``"debugger.rules"``. Default: the prop's name.
        parts: The members of a structure that one ``value`` makes, by their paths below ``path``, where ``sync`` or ``docs``
            differ among them.
    """

    path: str
    value: OfRequest = _as_it_is
    sync: bool = False
    docs: str = ""
    name: str = ""
    parts: tuple[Member, ...] = ()

    def leaves(self) -> Iterator[Member]:
        """Its parts, with their whole paths, or itself."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from replace(part, path=f"{self.path}.{part.path}", name=part.name or self.name).leaves()


class Prop:
    """What is known of a prop beside its type."""

    def __init__(
        self, *members: Member, check: OfRequest | None = None, known: Known | None = None, example: str = ""
    ) -> None:
        """Declare what is known of a prop.

        Args:
            members: The members of the request that come from it.
            check: Raises ``ValueError`` for a value that breaks a rule of the prop's own, or one between it and other props.
                It is called where the prop is given, and not None. Default: no rule beyond the type and the service model's.
            known: When the prop must be known, for text and numbers. Default: no row in docs/members.md, and no limit.
            example: A value, as Python source, for messages. Default: that of the prop's type.
        """
        self.members = members
        self.check = check
        self.known = known
        self.example = example

    def leaves(self) -> Iterator[Member]:
        """The members that come from the prop, structures with parts by their parts."""
        for member in self.members:
            yield from member.leaves()


_PLAIN = Prop()


def declared(hint: Any) -> tuple[Any, Prop]:
    """The type and the record that an annotation declares; an empty record where it has none.

    Args:
        hint: An annotation, as ``typing.get_type_hints(..., include_extras=True)`` has it.
    """
    if is_required(hint):
        return declared(get_args(hint)[0])
    if get_origin(hint) is not Annotated:
        return hint, _PLAIN
    kind, *metadata = get_args(hint)
    return kind, next((one for one in metadata if isinstance(one, Prop)), _PLAIN)


def is_required(hint: Any) -> bool:
    """Whether an annotation of a TypedDict is ``Required[...]``."""
    return get_origin(hint) is Required
