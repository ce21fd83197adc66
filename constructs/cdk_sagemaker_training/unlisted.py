"""The way past this library's own lists of what AWS has, which age."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from cdk_sagemaker_training.tokens import is_unresolved

# What is listed, and from where. Each refusal that rests on a list names `unlisted`; docs/members.md shows this table.
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
        "compiler-families": "families that the Training Compiler compiles for: training_compiler/config.py of the same SDK",
        "compiler-images": "versions and regions of the Training Compiler's containers, and what starts in which: the same SDK",
        "torch-compile-modes": "modes of torch.compile: PyTorch's documentation",
        "ultraserver-families": "families on UltraServers: the guide, Create a training plan",
        "sync-members": "members that Step Functions' `.sync` is known to take: CDK's own task, and public state machines",
        "endpoint-services": "services that a job's script may want an endpoint of: `endpoints.PURPOSES`",
        "profiler-intervals": "intervals of the profiler: the API's page ProfilerConfig",
    }
)

WARNING = "cdk-sagemaker-training:unlisted"


class _Unlisted:
    """A mark: what carries it is held against no list. ``because_of`` is the value that it follows from, if not itself."""

    because_of: Any = None


class _Text(str, _Unlisted):
    pass


class _Number(int, _Unlisted):
    pass


def unlisted(value: str | int) -> Any:
    """``value`` as one that no list of this library is held against, like ``InstanceGroup(unlisted("ml.p9.48xlarge"))``.

    For what AWS has by now and a list lacks: an instance type, also one that a launcher or a compiler is not listed for, a
    version of a container, a region, an endpoint's service, a value of the API. Nothing is then known of it either, such as the
    accelerators of a type. It is warned of at synth (``cdk-sagemaker-training:unlisted``, which ``Validations`` acknowledges),
    and AWS decides when the stack is deployed or the job starts. Raises ``ValueError`` for what is neither text nor a number.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"value must be text or a whole number, like 'ml.p9.48xlarge', got {value!r}")
    return _Text(value) if isinstance(value, str) else _Number(value)


def marked(text: str, *because_of: Any) -> str:
    """``text`` as unlisted where a value is that it follows from."""
    for value in because_of:
        if is_unlisted(value):
            follows = _Text(text)
            follows.because_of = value
            return follows
    return text


def is_unlisted(value: Any) -> bool:
    """Whether a value was made by ``unlisted``."""
    return isinstance(value, _Unlisted)


def check_listed(name: str, value: Any, listed: bool, must: str, got: str | None = None) -> None:
    """Raise ``ValueError`` unless ``value`` is ``listed``, or is not to be held against the list of that name.

    ``must`` is the message up to what was got, ``got`` what else than ``value`` to show there.
    """
    assert name in LISTS, name
    if listed or is_unresolved(value) or is_unlisted(value):
        return
    raise ValueError(f"{must}{way_out(value)}, got {value!r}" if got is None else f"{must}{way_out(value)}, got {got}")


def way_out(value: Any) -> str:
    """The end of a rule that rests on a list, before what was got."""
    plain = isinstance(value, str | int) and not isinstance(value, bool)
    return f", or unlisted({value!r}) where AWS differs by now" if plain else ""


def unlisted_values(value: Any) -> Iterator[Any]:
    """Each value in ``value``, such as a request, that no list is held against."""
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
    """The id and the text of the warning of a value that no list is held against."""
    while value.because_of is not None:
        value = value.because_of
    return WARNING, (
        f"{value!r} is unlisted: no list of this library is held against it, and nothing is known of it; whether AWS takes it "
        "shows when the stack is deployed or the job starts."
    )
