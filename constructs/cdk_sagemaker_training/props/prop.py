"""The record of a prop, in its annotation: what it takes, what the request has of it, its rules, and its example.

As a field of pydantic's or an option of Typer's, a prop is one declaration: ``Annotated[type, Prop(...)]``, with its
documentation below it, which an editor shows where the prop is typed. Type checkers read the type and skip the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Required, TypeVar, Union, get_args, get_origin

from cdk_sagemaker_training.core.checks import Rule

When = Literal["execution", "deployment", "synth"]
# What a record computes or checks: of the prop's value (None where it is not given) and of the request's context.
OfRequest = Callable[[Any, Any], Any]
T = TypeVar("T")


class Known(NamedTuple):
    """When a prop must be known, for text and numbers.

    Args:
        when: An ``"execution"`` may decide it, or it must be known at ``"deployment"`` or at ``"synth"``.
        why: Why not later; of a prop that an execution decides, how it does. Default: none.
    """

    when: When
    why: str = ""


IN_INPUT = Known("execution")
VALUES_IN_INPUT = Known("execution", "values, not names")
GRANTED = Known("deployment", "since permissions are granted on it")
IN_JSON = Known("synth", "since it is written into a JSON string")
LITERAL = Known("synth", "since it is a literal in the state machine")
NAMED = Known("synth", "since other props name it")
SHAPING = Known("synth", "since the request's members follow from it")


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
        self,
        *members: Member,
        known: Known | None = None,
        example: str = "",
        rule: Rule | None = None,
        listed: str = "",
        check: OfRequest | None = None,
        advice: OfRequest | None = None,
    ) -> None:
        """Declare what is known of a prop.

        Args:
            members: The members of the request that come from it.
            known: When the prop must be known, for text and numbers. Default: no row in docs/members.md, and no limit.
            example: A value, as Python source, for messages. Default: that of the prop's type.
            rule: The rule of the value alone, such as its range. Default: no rule beyond the type and the service model's.
            listed: Of a ``Literal``, the key in ``unlisted.LISTS`` of the list that has its values, of which AWS may have more.
                Default: ``"service-values"`` of a prop with members, else no list.
            check: Raises ``ValueError`` for a value that breaks a rule between the prop and others. Called where the prop is
                given, and not None. Default: no rule.
            advice: Returns warnings, called as ``check`` is. Default: none.
        """
        self.members = members
        self.known = known
        self.example = example
        self.rule = rule
        self.listed = listed or ("service-values" if members else "")
        self.check = check
        self.advice = advice

    def leaves(self) -> Iterator[Member]:
        """The members that come from the prop, structures with parts by their parts."""
        for member in self.members:
            yield from member.leaves()


_PLAIN = Prop()


def declared(hint: Any) -> tuple[Any, Prop]:
    """The type and the record that an annotation declares; an empty record where it has none.

    Args:
        hint: An annotation, as ``typing.get_type_hints(..., include_extras=True)`` has it. The record may be a ``Known`` alone.
    """
    if is_required(hint):
        return declared(get_args(hint)[0])
    if get_origin(hint) is Annotated:
        kind, record, *_ = get_args(hint)
        return kind, Prop(known=record) if isinstance(record, Known) else record
    records = (declared(option)[1] for option in options_of(hint) if get_origin(option) is Annotated)
    return hint, next(records, _PLAIN)


def options_of(hint: Any) -> tuple[Any, ...]:
    """The types of a union; the type itself where it is none."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def is_required(hint: Any) -> bool:
    """Whether an annotation of a TypedDict is ``Required[...]``."""
    return get_origin(hint) is Required


class Kind(NamedTuple):
    """What a value of a class is called in messages.

    Args:
        must: What it must be, like ``"a launcher"``.
        example: A value, as Python source.
        has: Attributes by which a value is known. Default: a value is an instance of the class, or conforms to the protocol.
    """

    must: str
    example: str
    has: tuple[str, ...] = ()


def kind(example: str, must: str = "") -> Callable[[type[T]], type[T]]:
    """Decorate a class, or a protocol, of values that props take.

    Args:
        example: A value, as Python source, for messages.
        must: What a value must be. Default: the class's name with its article.
    """

    def decorate(cls: type[T]) -> type[T]:
        cls._kind = Kind(must or with_article(cls.__name__), example)  # type: ignore[attr-defined]
        return cls

    return decorate


def with_article(name: str) -> str:
    """The name of a class with its article, like ``"an S3Prefix"``."""
    return f"{'an' if name.startswith((*'AEIOU', 'Ml', 'S3')) else 'a'} {name}"
