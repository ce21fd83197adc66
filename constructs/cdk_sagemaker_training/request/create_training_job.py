"""The CreateTrainingJob request and the warnings about it, from the props by their records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cdk_sagemaker_training.facts.instance_types import is_newer
from cdk_sagemaker_training.facts.service_model import check_request
from cdk_sagemaker_training.jobs.advice import Advice
from cdk_sagemaker_training.request.context import JobContext, RequestContext
from cdk_sagemaker_training.request.machine import instance_types
from cdk_sagemaker_training.request.props import prop_names, table


def create_training_job(context: RequestContext) -> dict[str, Any]:
    """The request in the service's own words, its members by name, those of a structure in the order of the props.

    Args:
        context: The props, and what else the request is made of. Text may hold CDK tokens, JSONPath's among them.

    Returns:
        The request, without members that have no value, checked against the props' rules and the service model.

    Raises:
        ValueError: For a rule that is broken, with the prop to change.
    """
    props = context.props
    for name, prop in table().items():
        if prop.check is not None and props.get(name) is not None:
            prop.check(props[name], context)
    request: dict[str, Any] = {}
    for name, prop in table().items():
        for member in prop.members:
            _put(request, member.path, member.value(props.get(name), context))
    complete: dict[str, Any] = _without_absent(dict(sorted(request.items())))
    check_request(complete, prop_names(), frozenset(filter(is_newer, instance_types(context.job_request))))
    return complete


def request_advice(context: JobContext) -> Iterator[Advice]:
    """Yield the warnings about what AWS accepts, but what has no effect or not the intended one."""
    for name, prop in table().items():
        if prop.advice is not None and context.props.get(name) is not None:
            yield from prop.advice(context.props[name], context)


def _put(request: dict[str, Any], path: str, value: Any) -> None:
    """Put a member at its place, a structure beside the members that it has there."""
    *outer, name = path.split(".")
    for structure in outer:
        request = request.setdefault(structure, {})
    if isinstance(value, dict):
        request.setdefault(name, {}).update(value)
    else:
        request[name] = value


def _without_absent(value: Any) -> Any:
    """``value`` without the members that are None or hold nothing: the service takes an absent member, not an empty one."""
    if isinstance(value, dict):
        kept = {key: _without_absent(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, {}, [])}
    if isinstance(value, list):
        return [_without_absent(item) for item in value]
    return value
