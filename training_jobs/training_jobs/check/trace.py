"""What each step of a process began with, as ``trace_steps.py`` wrote it, and what a comparison of them finds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["ok", "wrong", "unknown"]


@dataclass(frozen=True)
class Result:
    """One comparison.

    Attributes:
        subject: What was compared, like ``"optimizer"``.
        verdict: "ok", "wrong", or "unknown" where the runs do not tell.
        text: What was found.
    """

    subject: str
    verdict: Verdict
    text: str


@dataclass(frozen=True)
class Step:
    """What a step of an optimizer begins with; digests are equal where the values are.

    Attributes:
        optimizer: The number of the optimizer.
        parameters: Digests of its parameters, and of these rounded, by the type to which they are: "" is none.
        state: Digests of its state, by parameter; "" for none.
        gradient: The digest of the gradients.
        groups: The numbers of each parameter group, like ``{"lr": 0.1}``.
        batch: The digest of the last batch of a DataLoader; "" without one.
        saved: Whether the checkpoints changed since the step before.
        sharded: Whether parameters are shards, which differ between processes.
        rows: Digests of the batch's samples.
    """

    optimizer: int
    parameters: Mapping[str, Sequence[str]]
    state: Sequence[str]
    gradient: str
    groups: Sequence[Mapping[str, Any]]
    batch: str
    saved: bool
    sharded: bool = False
    rows: Sequence[str] = ()


@dataclass(frozen=True)
class Trace:
    """The steps of a process.

    Attributes:
        steps: Its steps.
        optimizers: By number, the optimizer's class and the names of its parameters.
        last: By optimizer, digests of the parameters at the end; None where the script did not end by itself.
        saved_last: Whether the checkpoints changed after the last step.
    """

    steps: Sequence[Step]
    optimizers: Sequence[tuple[str, Sequence[str]]]
    last: Sequence[Sequence[str]] | None
    saved_last: bool

    @property
    def saves(self) -> list[int]:
        """After how many steps checkpoints changed."""
        found = [at for at, step in enumerate(self.steps) if step.saved]
        return [*found, *([len(self.steps)] if self.saved_last else [])]

    @property
    def checkpoints(self) -> list[tuple[int, int]]:
        """After which step each checkpoint begins to be written, and after which it has been: others write beside the steps."""
        saves = [at for at in self.saves if at]
        each_step = len(saves) > 2 and saves[-1] - saves[0] == len(saves) - 1
        found = list[tuple[int, int]]()
        for at in saves:
            if found and at == found[-1][1] + 1 and not each_step:
                found[-1] = found[-1][0], at
            else:
                found.append((at, at))
        return found


def read_trace(file: Path) -> Trace:
    """Return the steps that ``trace_steps.py`` wrote.

    Args:
        file: One process's.
    """
    steps, optimizers, last, saved = list[Step](), list[tuple[str, Sequence[str]]](), None, False
    for text in file.read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:  # half of a line, of a process that was ended
            continue
        if "kind" in line:
            optimizers.append((line["kind"], line["names"]))
        elif "step" in line:
            steps.append(Step(**{name: value for name, value in line.items() if name != "step"}))
        else:
            last, saved = line["parameters"], line["saved"]
    return Trace(steps, optimizers, last, saved)
