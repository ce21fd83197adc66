"""What ``training-jobs measure`` finds of a training, and ``training-jobs plan`` reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """What one step of a training takes.

    Attributes:
        batch_size: Samples of a step on one accelerator.
        preprocess_seconds: Seconds of one vCPU to prepare a sample, with all vCPUs of the machine at work.
        sample_bytes: Size of a prepared sample.
        step_seconds: Seconds of a step whose batch is there, by the accelerator's name, like ``"NVIDIA A100"``, or by instance
            type, which goes before it; ``"cpu"`` without accelerators.
        peak_memory_gib: The most memory of the accelerator that was allocated, in GiB; None if unknown.
        gradient_bytes: Size of all gradients, which several machines exchange in each step; None if unknown.
        scaling: Samples a second by the number of processes that prepare them.
        vcpus: vCPUs of the machine that was measured; None if unknown.
        machine: The machine, in words.

    Raises:
        ValueError: A number is not one that a training can have.
    """

    batch_size: int
    preprocess_seconds: float
    sample_bytes: float
    step_seconds: Mapping[str, float] = field(default_factory=dict)
    peak_memory_gib: float | None = None
    gradient_bytes: float | None = None
    scaling: Mapping[str, float] = field(default_factory=dict)
    vcpus: int | None = None
    machine: str = ""

    def __post_init__(self) -> None:
        _check("batch_size", self.batch_size, "samples above 0, like 256", lambda it: it > 0 and it == int(it))
        _check("preprocess_seconds", self.preprocess_seconds, "seconds from 0, like 0.002", lambda it: it >= 0)
        _check("sample_bytes", self.sample_bytes, "bytes above 0, like 602112", lambda it: it > 0)
        for name, seconds in dict(self.step_seconds).items():
            _check(f"step_seconds[{name!r}]", seconds, "seconds above 0, like 0.09", lambda it: it > 0)
        for optional in ("peak_memory_gib", "gradient_bytes"):
            if getattr(self, optional) is not None:
                _check(optional, getattr(self, optional), "a number from 0, like 12.5", lambda it: it >= 0)


def read_measurement(file: Path) -> Measurement:
    """Return the measurement of a JSON file.

    Args:
        file: As ``training-jobs measure`` writes it, or by hand.

    Raises:
        ValueError: The file cannot be read, lacks a member or has an unknown one, or a number is wrong.
    """
    try:
        content: Any = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the measurement must be a JSON file, like measured.json, got {str(file)!r}: {error}"
        ) from None
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold an object with batch_size, preprocess_seconds and sample_bytes")
    known = [one.name for one in fields(Measurement)]
    if unknown := sorted(content.keys() - set(known)):
        raise ValueError(f"{file} must hold only {', '.join(known)}, got {unknown[0]!r}")
    if missing := [name for name in known[:3] if name not in content]:
        raise ValueError(f'{file} must hold {missing[0]}, like {{"{missing[0]}": 256}}')
    return Measurement(**content)


def measurement_json(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as ``read_measurement`` reads it.

    Args:
        measurement: The measurement.
    """
    return asdict(measurement)


def _check(name: str, value: Any, rule: str, allowed: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not allowed(value):
        raise ValueError(f"{name} must be {rule}, got {value!r}")
