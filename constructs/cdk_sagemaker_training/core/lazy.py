"""Values and mistakes that are known only when the app is synthesized, after all constructs and aspects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jsii
from aws_cdk import IResolvable, IStableAnyProducer, Lazy
from constructs import IConstruct, IValidation


def at_synthesis(value: Callable[[], Any]) -> IResolvable:
    """Return a token of what a function returns when the app is synthesized."""
    return Lazy.any(_Producer(value))


@jsii.implements(IStableAnyProducer)
class _Producer:
    def __init__(self, value: Callable[[], Any]) -> None:
        self._value = value

    @jsii.member(jsii_name="produce")
    def produce(self) -> Any:
        return self._value()


def check_at_synthesis(construct: IConstruct, problems: Callable[[], Iterable[ValueError]]) -> None:
    """Have CDK check a construct when the app is synthesized.

    Args:
        construct: The construct.
        problems: Returns what is wrong with it; nothing where all is right.
    """
    construct.node.add_validation(_Validation(problems))


@jsii.implements(IValidation)
class _Validation:
    def __init__(self, problems: Callable[[], Iterable[ValueError]]) -> None:
        self._problems = problems

    @jsii.member(jsii_name="validate")
    def validate(self) -> list[str]:
        return [str(problem) for problem in self._problems()]
