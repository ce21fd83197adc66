"""Values that are known only when the app is synthesized, after all constructs and aspects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsii
from aws_cdk import IResolvable, IStableAnyProducer, Lazy


def at_synthesis(value: Callable[[], Any]) -> IResolvable:
    """Return a token of what a function returns when the app is synthesized.

    Args:
        value: The function.
    """
    return Lazy.any(_Producer(value))


@jsii.implements(IStableAnyProducer)
class _Producer:
    def __init__(self, value: Callable[[], Any]) -> None:
        self._value = value

    @jsii.member(jsii_name="produce")
    def produce(self) -> Any:
        return self._value()
