"""Mistakes of a file of DeepSpeed, at which it, or transformers' Trainer, ends when the machines are billed.

Sources: ``DeepSpeedConfig`` of deepspeed/runtime/config.py, whose parts are pydantic models that forbid other keys; and
``HfTrainerDeepSpeedConfig`` of transformers/integrations/deepspeed.py, which ends where the file and TrainingArguments differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from training_jobs.facts.launchers import fields_of_deepspeed
from training_jobs.facts.libraries import arguments_of
from training_jobs.lint.options import Options, Refusal, argument, nearest
from training_jobs.lint.script import Job

_KEYS = ("deepspeed", "deepspeed_config")
# `trainer_config_process`: the places in the file, by the arguments that they must be the same as.
_SAME = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.eps": "adam_epsilon",
    "optimizer.params.weight_decay": "weight_decay",
    "scheduler.params.warmup_max_lr": "learning_rate",
    "fp16.enabled": "fp16",
    "bf16.enabled": "bf16",
}
# What TrainingArguments have by default.
_DEFAULTS: Mapping[str, float | bool] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 1.0,
    "learning_rate": 5e-5,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.0,
    "fp16": False,
    "bf16": False,
}
_PARTS = ("offload_param", "offload_optimizer")
_DEVICES = ("none", "cpu", "nvme")
_STAGES = ("0", "1", "2", "3")
_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


class FileMistake(NamedTuple):
    """A mistake of a file.

    Attributes:
        rule: What must be.
        example: One that is.
        got: What is.
    """

    rule: str
    example: str
    got: str


def deepspeed_refusals(
    given: Mapping[str, str | None], folder: Path, world: int | None, job: Job, options: Options | None = None
) -> Iterator[Refusal]:
    """Yield why a script ends at the file that ``--deepspeed`` or ``--deepspeed_config`` names in its folder.

    Args:
        given: The arguments' texts, as hyperparameters; None for one that is not known.
        folder: The folder of the script.
        world: The number of processes; None where that is not known.
        job: What is known of the job.
        options: The script's options, where they are certain.
    """
    for key in _KEYS:
        text = given.get(key)
        name = "" if text is None else argument(text).removeprefix("/opt/ml/code/").removeprefix("./")
        if not name.endswith(".json") or name.startswith(("/", "..", "{")):
            continue
        if job.lacks("deepspeed"):
            rule = "be beside deepspeed in requirements.txt, which the container lacks"
            yield Refusal(key, rule, "deepspeed in requirements.txt", repr(name))
        if not (folder / name).is_file():
            there = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.json"))]
            yield Refusal(key, "name a file of code's folder", repr(nearest(name, there, "zero3.json")), repr(name))
            continue
        content = (folder / name).read_text(errors="replace")
        found = [*file_mistakes(content, job.versions.get("deepspeed", ""), world)]
        if options is not None and not found:
            values = {key: ... if text is None else argument(text) for key, text in given.items()}
            for one in options.classes:
                if "max_grad_norm" in (arguments_of(one, options.versions) or ()):
                    found += differing(content, values, one.startswith("transformers."), world)
        for mistake in found:
            rule = f"name a file that is right: it must {mistake.rule}"
            yield Refusal(key, rule, mistake.example, f"{name} with {mistake.got}")


_BOTH = FileMistake("enable one of fp16 and bf16, since DeepSpeed ends at both", "bf16 alone", "both")


def file_mistakes(text: str, version: str, world: int | None) -> Iterator[FileMistake]:
    """Yield the mistakes of a file, whatever starts it.

    Args:
        text: Its content.
        version: Of deepspeed; where it is not known, keys of any are taken.
        world: The number of processes; None where that is not known.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        yield FileMistake(
            "be JSON, as which transformers and accelerate read it", "{...} without a last comma", f"{error}"
        )
        return
    zero = found.get("zero_optimization") if isinstance(found, dict) else None
    if not isinstance(found, dict):
        yield FileMistake("be an object of JSON", '{"zero_optimization": {"stage": 3}}', type(found).__name__)
        return
    if isinstance(zero, dict):
        yield from _part("zero_optimization", zero, version)
        for name in _PARTS:
            if isinstance(part := zero.get(name), dict):
                yield from _part(name, part, version)
    if all((found.get(name) or {}).get("enabled") is True for name in ("fp16", "bf16")):
        yield _BOTH
    yield from _batch(found, world)


def _part(name: str, part: Mapping[str, Any], version: str) -> Iterator[FileMistake]:
    known = fields_of_deepspeed(name, version)
    for key, value in part.items():
        if value == "auto":  # which DeepSpeed leaves out, whatever the key
            continue
        if key not in known:
            rule = f"have keys in {name} that DeepSpeed knows, which ends at others"
            yield FileMistake(rule, repr(nearest(key, known)), repr(key))
        elif rule := _refused(known[key], value):
            yield FileMistake(f"have a {name}.{key} that is {rule}", "'auto'", repr(value))


def _refused(kind: str, value: Any) -> str:
    """What a value of a type must be and is not; "" where it may be."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "ZeroStageEnum":
        return "" if str(value) in _STAGES or (is_number and value in map(int, _STAGES)) else "0, 1, 2 or 3"
    if kind == "OffloadDeviceEnum":
        return "" if value in _DEVICES else "'none', 'cpu' or 'nvme'"
    if kind == "int" and is_number and value != int(value):
        return "a whole number"
    wrong = isinstance(value, dict | list) or (isinstance(value, str) and not _is_text_of(kind, value))
    return {"int": "a whole number", "bool": "true or false"}.get(kind, "") if wrong else ""


def _is_text_of(kind: str, text: str) -> bool:
    """Whether pydantic makes a value of a text: of "5e8" no whole number."""
    if kind == "bool":
        return text.lower() in ("true", "false", "0", "1", "on", "off", "yes", "no", "y", "n", "t", "f")
    return kind != "int" or text.strip().lstrip("+-").replace("_", "").isdigit()


def _batch(found: Mapping[str, Any], world: int | None) -> Iterator[FileMistake]:
    """`_set_batch_related_parameters` and `_batch_assertion`."""
    total, micro, steps = (found.get(name) for name in _BATCH)
    numbers = [value for value in (total, micro, steps) if value is not None]
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in numbers):
        return
    if any(value < 1 for value in numbers):
        name = next(name for name in _BATCH if found.get(name) is not None and found[name] < 1)
        yield FileMistake(f"have a {name} from 1 on", "'auto'", str(found[name]))
    elif total is not None and world is not None:
        if micro is None and steps is None:
            steps = 1
        steps = total // micro // world if steps is None else steps
        micro = total // world // steps if micro is None and steps else micro
        if total != (micro or 0) * steps * world:
            rule = "have a train_batch_size that is train_micro_batch_size_per_gpu * gradient_accumulation_steps * processes"
            yield FileMistake(rule, str((micro or 1) * max(steps, 1) * world), f"{total} with {world} processes")


def differing(text: str, values: Mapping[str, object], defaults: bool, world: int | None) -> Iterator[FileMistake]:
    """Yield where a file differs from TrainingArguments, at which transformers' Trainer ends.

    Args:
        text: The file's content.
        values: The arguments that are given; ``...`` for a value that is not known.
        defaults: Whether others have the defaults of TrainingArguments, and not those of a class made of it.
        world: The number of processes; None where that is not known.
    """
    found = json.loads(text)
    known = {name: values.get(name, default if defaults else ...) for name, default in _DEFAULTS.items()}
    if all(_is_enabled(found, name, known[name]) for name in ("fp16", "bf16")):
        yield _BOTH
    total = _calculated(known, world)
    for place, name in (*_SAME.items(), ("train_batch_size", "train_batch_size")):
        in_file, given = _at(found, place), total if name == "train_batch_size" else known[name]
        if values.get(f"{name}_full_eval") is not None:
            continue
        if isinstance(in_file, int | float) and _differs(in_file, given):
            yield FileMistake(
                f"have 'auto' at {place}, or the same as {name}, since Trainer ends where they differ",
                "'auto'",
                f"{json.dumps(in_file)} with {name}={given}",
            )


def _is_enabled(found: Mapping[str, Any], name: str, given: object) -> bool:
    enabled = _at(found, f"{name}.enabled")
    return enabled is True or (enabled == "auto" and str(given).lower() == "true")


def _calculated(known: Mapping[str, object], world: int | None) -> object:
    """The batch of all processes."""
    micro, steps = (known[name] for name in ("per_device_train_batch_size", "gradient_accumulation_steps"))
    if world is None or not str(micro).isdigit() or not str(steps).isdigit():
        return ...
    return world * int(str(micro)) * int(str(steps))


def _at(found: Mapping[str, Any], place: str) -> Any:
    *outer, name = place.split(".")
    for key in outer:
        found = found.get(key) or {}
        if not isinstance(found, dict):
            return None
    return found.get(name)


def _differs(in_file: float, given: object) -> bool:
    if given is ... or given is None:
        return False
    if isinstance(in_file, bool):
        return str(given).lower() != str(in_file).lower()
    try:
        return float(str(given)) != in_file
    except ValueError:
        return False
