"""What Step Functions' own integration with SageMaker is known to take."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.unlisted import is_unlisted
from cdk_sagemaker_training.request.props import leaves


def sync_takes(request: Mapping[str, Any]) -> bool:
    """Whether `sagemaker:createTrainingJob.sync` is known to take each member of a request.

    Args:
        request: The Parameters of a state, in which names of members may end in ``.$``.
    """
    return not any(_unknown(request, _known()))


def check_sync_takes(
    request: Mapping[str, Any], instead: str, props: Container[str], integration: str | None = None
) -> None:
    """Check that the optimised integration is known to take a request.

    A member outside that set ends an execution in an error that no state can catch.

    Args:
        request: The Parameters of a state, in which names of members may end in ``.$``.
        instead: What to use for such a member, for the message.
        props: The names of the props that are set; a member of another prop comes from the job.
        integration: The integration, where one is chosen; an ``unlisted`` one takes the request as it is.
    """
    unknown = set(_unknown(request, _known()))
    if not unknown or is_unlisted(integration):
        return
    prop, path = next(
        ((prop, path) for prop, member in leaves() for path in sorted(unknown) if _overlap(member.path, path)),
        (None, min(unknown)),
    )
    member = path.rpartition(".")[2]
    named = member if prop is None else prop if prop in props else "job"
    rule = "be what `sagemaker:createTrainingJob.sync` is known to take"
    got = f"{member}: use {instead}, or TrainingWorkflow(..., integration=unlisted('sync')) where AWS differs by now"
    raise must(named, rule, "one instance type and count", got)


def _known() -> dict[str, Any]:
    """The members that it is known to take, as structures of structures; an empty one stands for whatever there is."""
    known: dict[str, Any] = {}
    for _, member in leaves():
        if member.sync:
            structure = known
            for name in member.path.split("."):
                structure = structure.setdefault(name, {})
    return known


def _unknown(value: Any, known: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """The paths of the outermost members that are not known; members of lists have no index."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _unknown(item, known, path)
    elif isinstance(value, Mapping) and known:
        for key, item in value.items():
            name = key.removesuffix(".$")
            if name not in known:
                yield ".".join((*path, name))
            else:
                yield from _unknown(item, known[name], (*path, name))


def _overlap(path: str, other: str) -> bool:
    """Whether two paths are the same, or one lies below the other."""
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")
