"""What the tests that are marked `aws` create in an account, and what that costs at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import assertions

# Dollars an hour of training in us-east-1 (AWS's page "Amazon SageMaker AI pricing", on demand), as known in November 2026. A
# type that is not here is one that the tests may not use: machines without GPUs only.
PRICES = {"ml.c5.xlarge": 0.204, "ml.m5.xlarge": 0.23}
# What stays idle costs nothing of a stack's other resources; these are charged by the hour that they are there.
HOURLY = {"AWS::EC2::NatGateway", "AWS::EC2::VPCEndpoint/Interface", "AWS::FSx::FileSystem"}


@dataclass(frozen=True)
class Marked:
    """One test and what its marker says: its stack's class, and ``jobs`` jobs at once or in turn, each of ``machines`` for at
    most ``minutes``."""

    name: str
    stack: type[cdk.Stack]
    jobs: int
    machines: dict[str, int]
    minutes: int

    @property
    def dollars(self) -> float:
        return self.jobs * self.minutes / 60 * sum(PRICES[kind] * count for kind, count in self.machines.items())


class Collector:
    """A plugin of pytest's that keeps the marked tests."""

    def __init__(self) -> None:
        self.marked: list[Marked] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            marker = item.get_closest_marker("aws")
            if marker is not None:
                self.marked.append(Marked(item.name, **marker.kwargs))


def resources(stacks: Sequence[type[cdk.Stack]]) -> Iterator[tuple[str, Counter[str]]]:
    """The name of each stack, and how many resources of each type it has."""
    for stack_class in stacks:
        stack = stack_class(cdk.App())
        found = assertions.Template.from_stack(stack).to_json()["Resources"].values()
        counted = Counter(_kind(resource) for resource in found)
        assert not HOURLY & counted.keys(), f"{stack.stack_name} has what is charged by the hour"
        yield stack.stack_name, counted


def _kind(resource: dict[str, Any]) -> str:
    interface = resource.get("Properties", {}).get("VpcEndpointType") == "Interface"
    return f"{resource['Type']}/Interface" if interface else str(resource["Type"])


def plan(marked: Sequence[Marked], account: str, region: str) -> str:
    """The plan as text, for a person to agree to."""
    stacks = list(dict.fromkeys(test.stack for test in marked))
    lines = [
        f"{len(marked)} tests in the account {account}, region {region}.",
        "",
        "They create, and delete again:",
    ]
    for name, counted in resources(stacks):
        kinds = ", ".join(f"{count} {kind.removeprefix('AWS::')}" for kind, count in sorted(counted.items()))
        lines += [f"  the stack {name}:", f"    {kinds}"]
    machines: Counter[str] = Counter()
    for test in marked:
        for kind, count in test.machines.items():
            machines[kind] += test.jobs * count
    lines += ["", "They run training jobs, none on a machine with GPUs:"]
    lines += [f"  {count:3} machines {kind} at ${PRICES[kind]} an hour" for kind, count in sorted(machines.items())]
    lines += [
        "",
        f"At most ${sum(test.dollars for test in marked):.2f}, at us-east-1's prices, if every job takes all of its time;",
        "a few minutes a job are usual, so about a tenth of it. Storage and requests add cents.",
        "",
        "What stays: the records of the jobs, which SageMaker keeps, and files and images among the CDK's bootstrap assets,",
        "until `cdk gc`.",
    ]
    return "\n".join(lines)
