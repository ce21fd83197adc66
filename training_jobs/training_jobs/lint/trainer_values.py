"""Values at which transformers' TrainingArguments end, and classes that are made of it: `__post_init__` in training_args.py."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from training_jobs.facts.libraries import Versions, arguments_of, declares, ends_at, values_of, versions_with

# What computes: "cpu" for machines without accelerators, "older gpu" for one before NVIDIA's Ampere, "" where it is not known.
Device = Literal["cpu", "older gpu", ""]
_MOST = 4  # values in one message
TRUE = ("yes", "true", "t", "y", "1")  # `string_to_bool`, hf_argparser.py of transformers
# What decides when it evaluates and saves, with what each class has.
_EVALUATES = {"eval_strategy": "no", "evaluation_strategy": "no"}
_SAVES = {"save_strategy": "steps"}


class RefusedValue(NamedTuple):
    """A value at which a class ends.

    Attributes:
        argument: The argument.
        rule: What must be.
        example: A value that is.
        got: What is.
    """

    argument: str
    rule: str
    example: str
    got: str


def refused_values(
    name: str, given: Mapping[str, object], versions: Versions, device: Device
) -> Iterator[RefusedValue]:
    """Yield the values at which a class ends.

    Args:
        name: The class, with its library, like ``"trl.SFTConfig"``.
        given: The arguments' values; ``...`` for one that is not known.
        versions: Of the libraries.
        device: What computes.
    """
    for argument, values in values_of(name, versions).items():
        value = given.get(argument)
        if isinstance(value, str | bool) and str(value) not in values:
            near = difflib.get_close_matches(str(value), values, n=_MOST, cutoff=0.0)
            some = values if len(values) <= _MOST else near
            rule = f"be one of {', '.join(map(repr, some))}" + (" and others" if len(some) < len(values) else "")
            example = "'no', in YAML with its quotes" if value is False and "no" in values else repr(near[0])
            others = versions_with(name, argument, str(value))
            got = f"{value!r}, which transformers {others} take" if others else repr(value)
            yield RefusedValue(argument, rule, example, got)
    takes = arguments_of(name, versions) or {}
    if not {"bf16", "fp16", "save_strategy"} <= {*takes}:
        return
    if ends_at("half-precision", versions) and is_true(given.get("fp16")) and is_true(given.get("bf16")):
        yield RefusedValue("fp16", "be left out beside bf16", "False", f"{given['fp16']!r} with bf16={given['bf16']!r}")
    defaults = {name: default for name, default in (_EVALUATES | _SAVES).items() if name in takes}
    yield from _of_strategies({**defaults, **given}, versions)
    # trl's classes compute in bf16 unless they are told not to.
    unset = given.get("bf16") is None and not _may_be_true(given.get("fp16")) and declares(name, "bf16", versions)
    yield from _of_device(given, versions, device, unset=unset)


def _of_strategies(given: Mapping[str, object], versions: Versions) -> Iterator[RefusedValue]:
    """What has to do with when it evaluates."""
    argument = next((name for name in _EVALUATES if name in given), "")
    evaluates, saves = given.get(argument, ...), given["save_strategy"]
    if not isinstance(evaluates, str):
        return
    if given.get("lr_scheduler_type") == "reduce_lr_on_plateau" and evaluates == "no" and ends_at("plateau", versions):
        rule = f"be another, or {argument} 'steps' or 'epoch', since it reads what evaluations find"
        yield RefusedValue("lr_scheduler_type", rule, "'linear'", f"'reduce_lr_on_plateau' with {argument}='no'")
    differ = isinstance(saves, str) and saves not in ("best", evaluates)
    if differ and is_true(given.get("load_best_model_at_end")) and ends_at("best-model", versions):
        rule = f"be False where {argument} and save_strategy differ"
        got = f"{given['load_best_model_at_end']!r} with {argument}={evaluates!r} and save_strategy={saves!r}"
        yield RefusedValue("load_best_model_at_end", rule, f"save_strategy={evaluates!r}", got)


def _of_device(
    given: Mapping[str, object], versions: Versions, device: Device, *, unset: bool
) -> Iterator[RefusedValue]:
    on_cpu = [given.get(name) for name in ("use_cpu", "no_cuda")]
    half = "bf16" if unset else next((name for name in ("bf16", "bf16_full_eval") if is_true(given.get(name))), "")
    if device == "cpu" and half and ends_at("bf16-on-cpu", versions) and not any(map(_may_be_true, on_cpu)):
        value = "None, by which trl computes in bf16," if unset else repr(given[half])
        rule = "be False, or with use_cpu=True, on machines without a GPU"
        yield RefusedValue(half, rule, "False", f"{value} on machines without accelerators")
    if device and ends_at("tf32", versions) and is_true(given.get("tf32")):
        got = f"{given['tf32']!r} on {'machines without accelerators' if device == 'cpu' else 'an older GPU'}"
        yield RefusedValue("tf32", "be for a GPU of NVIDIA's Ampere or later", "False, or 'ml.g5.xlarge'", got)


def is_true(value: object) -> bool:
    """Return whether a value, or its text, is true to transformers' parser.

    Args:
        value: The value.
    """
    return value is True or (isinstance(value, str) and value.lower() in TRUE)


def _may_be_true(value: object) -> bool:
    return value is ... or is_true(value)
