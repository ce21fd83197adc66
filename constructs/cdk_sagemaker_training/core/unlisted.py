"""``unlisted``: values that this library's own lists of AWS's offer lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved

# The lists and their sources. Each error that rests on a list mentions `unlisted`; docs/members.md shows this table.
LISTS: Mapping[str, str] = MappingProxyType(
    {
        "training-types": "instance types that SageMaker trains on: the service model in botocore, and newer ones of its lines",
        "instance-facts": "accelerators, EFA, disks and memory of each type: `instances.json`, which names its sources",
        "service-values": "other values that the service takes, such as input modes: the service model in botocore",
        "smddp-types": "types for SMDDP: fw_utils.py and estimator.py of the SageMaker Python SDK, version 2",
        "smp-types": "types for SMP: AWS's pages Supported frameworks and AWS Regions, of versions 2 and 1",
        "smp-parameters": "parameters of SMP: AWS's page The SageMaker model parallel library v2 reference, and those on v1",
        "smp-images": "versions and regions of SMP's containers: image_uri_config of the SageMaker Python SDK, version 2",
        "container-repositories": "repositories of AWS's containers: docs of aws/deep-learning-containers, and the same SDK",
        "image-contents": "tags and contents of AWS's containers: `images.json`, which names its sources",
        "compiler-families": "families that the Training Compiler compiles for: training_compiler/config.py of the same SDK",
        "compiler-images": "versions and regions of the Training Compiler's containers, and what starts in which: the same SDK",
        "torch-compile-modes": "modes of torch.compile: PyTorch's documentation",
        "ultraserver-families": "families on UltraServers: the guide, Create a training plan",
        "sync-members": "members that Step Functions' `.sync` is known to take: CDK's own task, and public state machines",
        "endpoint-services": "services that a job's script may need an endpoint for: `endpoints.PURPOSES`",
        "profiler-intervals": "intervals of the profiler: the API's page ProfilerConfig",
    }
)

WARNING = "cdk-sagemaker-training:unlisted"


class _Unlisted:
    """Marks a value that is not checked against any list.

    Attributes:
        derived_from: The unlisted value that this one was derived from; None for a value that a user marked.
    """

    derived_from: Any = None


class _Text(str, _Unlisted):
    pass


class _Number(int, _Unlisted):
    pass


def unlisted(value: str | int) -> Any:
    """Mark a value so that it is not checked against this library's lists, like ``InstanceGroup(unlisted("ml.p9.48xlarge"))``.

    For values that AWS accepts and a list of this library lacks: an instance type (also for a launcher or a compiler), the
    version of a container, a region, the service of an endpoint, an enum value of the API. Facts about such a value, like the
    accelerators of a type, are unknown, and checks that need them are skipped. Synthesis warns of each unlisted value
    (``cdk-sagemaker-training:unlisted``, which ``Annotations.acknowledge_warning`` suppresses); AWS accepts or refuses it when
    the stack is deployed or the job starts.

    Args:
        value: Text or a whole number.

    Returns:
        An equal value of the same type, marked as unlisted.

    Raises:
        ValueError: ``value`` is neither text nor a whole number.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise must("value", "be text or a whole number", "'ml.p9.48xlarge'", repr(value))
    return _Text(value) if isinstance(value, str) else _Number(value)


def unlisted_if(text: str, *derived_from: Any) -> str:
    """Mark ``text`` as unlisted if a value that it was derived from is unlisted.

    Returns:
        ``text``, marked if one of them is.
    """
    for value in derived_from:
        if is_unlisted(value):
            derived = _Text(text)
            derived.derived_from = value
            return derived
    return text


def is_unlisted(value: Any) -> bool:
    """Return whether a value was marked by ``unlisted``."""
    return isinstance(value, _Unlisted)


def check_listed(name: str, value: Any, listed: bool, prop: str, rule: str, example: str, got: str = "") -> None:
    """Check that a value is on a list, or is a token or ``unlisted``.

    Args:
        name: Key of the list in ``LISTS``.
        value: The value.
        listed: Whether the list has it.
        prop: Name of the prop, for the message, as ``errors.must`` has it.
        rule: The rule.
        example: A value that keeps it.
        got: What the message shows as got; ``value`` by default.

    Raises:
        ValueError: The list lacks the value.
    """
    assert name in LISTS, name
    if not (listed or is_unresolved(value) or is_unlisted(value)):
        raise must(prop, rule, f"{example}{unlisted_hint(value)}", got or repr(value))


def unlisted_hint(value: Any) -> str:
    """Return the part of a message that suggests ``unlisted``; empty for a value that it does not accept."""
    plain = isinstance(value, str | int) and not isinstance(value, bool)
    return f", or unlisted({value!r}) where AWS differs by now" if plain else ""


def unlisted_values(value: Any) -> Iterator[Any]:
    """Yield each unlisted value within ``value``, such as a request."""
    if is_unlisted(value):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from unlisted_values(key)
            yield from unlisted_values(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from unlisted_values(item)


def unlisted_warning(value: Any) -> tuple[str, str]:
    """Return the id and the text of the warning about an unlisted value."""
    while value.derived_from is not None:
        value = value.derived_from
    return WARNING, (
        f"{value!r} is unlisted: it is not checked against this library's lists, and checks that need facts about it are "
        "skipped; AWS accepts or refuses it when the stack is deployed or the job starts."
    )
