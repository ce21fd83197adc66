"""Write what each step of a training script begins with, for ``training-jobs check-resume``.

    python trace_steps.py --to FOLDER --checkpoints FOLDER [--end-after N] SCRIPT [ARGUMENTS OF THE SCRIPT]

The script is not changed. Of each process a file ``rank-R.jsonl`` gets a line for each step of any ``torch.optim.Optimizer``:
digests of its parameters, of its state, of the gradients and of the last batch of a ``DataLoader``, and the numbers of each group
of parameters, such as learning rates. With ``--end-after`` the process ends itself by SIGKILL after so many steps, as it is on a
machine that is taken back: AWS's containers do not pass SIGTERM on to a script.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import runpy
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader

SAMPLES = 4096  # elements of a tensor whose digest is taken: a step of an optimizer changes nearly all
ROUNDED = {"": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class Steps:
    """The steps of this process so far."""

    file: TextIO
    checkpoints: Path
    end_after: int | None
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    made: int = 0
    is_own: bool = True  # whether the step that is made is the script's
    batch: str = ""
    files: dict[str, tuple[int, int]] = field(default_factory=dict)

    def before(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """What a step begins with."""
        self.is_own = not of_checkpoint()
        if not self.is_own:
            return
        if not any(one is optimizer for one in self.optimizers):
            self.optimizers.append(optimizer)
            number = len(self.optimizers) - 1
            self.write({"optimizer": number, "kind": type(optimizer).__name__, "names": names_of(optimizer)})
        self.write({"step": self.made, "saved": self.has_saved(), "batch": self.batch, **self.described(optimizer)})

    def after(self, *_: object) -> None:
        """What follows a step."""
        self.made += self.is_own
        if self.is_own and self.made == self.end_after:
            self.file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    def described(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """An optimizer's parameters, state and numbers."""
        parameters = list(parameters_of(optimizer))
        state = {
            id(one): {name: value for name, value in values.items() if value is not None}
            for one, values in optimizer.state.items()
            if isinstance(one, torch.Tensor)
        }
        groups = [
            {name: value for name in sorted(group) if (value := number_of(group[name])) is not None}
            for group in optimizer.param_groups
        ]
        return {
            "optimizer": next(at for at, one in enumerate(self.optimizers) if one is optimizer),
            "parameters": {name: [digest(one, kind) for one in parameters] for name, kind in ROUNDED.items()},
            "state": [digest(state[id(one)]) if state.get(id(one)) else "" for one in parameters],
            "gradient": digest([one.grad for one in parameters]),
            "groups": groups,
        }

    def ended(self) -> None:
        """What the script leaves when it ends by itself."""
        last = [self.described(one)["parameters"][""] for one in self.optimizers]
        self.write({"ended": self.made, "saved": self.has_saved(), "parameters": last})

    def has_saved(self) -> bool:
        """Whether a file of the checkpoints is new or has changed since the last time."""
        found = {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in files_below(self.checkpoints)}
        changed = bool(found.items() - self.files.items())
        self.files = found
        return changed

    def write(self, line: Mapping[str, Any]) -> None:
        print(json.dumps(line), file=self.file, flush=True)


def of_checkpoint() -> bool:
    """Whether torch.distributed.checkpoint makes the step, of rate 0, so that the optimizer has a state to load into."""
    frame = sys._getframe(1)
    while (outer := frame.f_back) is not None:
        frame = outer
        if frame.f_code.co_name == "_init_optim_state":
            return True
    return False


def files_below(folder: Path) -> Iterator[Path]:
    """Its files that are there while they are looked at."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.exists():
            yield path


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def names_of(optimizer: torch.optim.Optimizer) -> list[str]:
    """The names of its parameters in the largest module that has them; a number where none has."""
    modules = [one for one in gc.get_objects() if isinstance(one, nn.Module)]
    named = max(
        (dict(module.named_parameters()) for module in modules),
        key=lambda found: (len(found), str(found.keys())),
        default={},
    )
    names = {id(one): name for name, one in named.items()}
    return [names.get(id(one), str(at)) for at, one in enumerate(parameters_of(optimizer))]


def number_of(value: Any) -> Any:
    """A number, or several; None for all else."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else None
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list) and value and all(isinstance(one, int | float) for one in value):
        return list(value)
    return None


def digest(value: Any, rounded: torch.dtype | None = None) -> str:
    """A digest of the tensors, numbers and texts in a value, at whatever depth; "" where there are none."""
    parts = list(_bytes_in(value, rounded))
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest() if parts else ""


def _bytes_in(value: Any, rounded: torch.dtype | None) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        local = value.to_local() if hasattr(value, "to_local") else value
        flat = local.detach().flatten()
        flat = flat[:: max(flat.numel() // SAMPLES, 1)]
        if flat.is_floating_point():
            flat = (flat if rounded is None else flat.to(rounded)).to(torch.float64)
        yield str(tuple(local.shape)).encode() + flat.cpu().contiguous().view(torch.uint8).numpy().tobytes()
    elif isinstance(value, Mapping):
        for name in sorted(value, key=str):
            yield str(name).encode()
            yield from _bytes_in(value[name], rounded)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _bytes_in(one, rounded)
    elif isinstance(value, str | int | float | bool | None):
        yield repr(value).encode()


def watch_batches(steps: Steps) -> None:
    """Have each DataLoader tell of its batches."""
    original = dataloader._BaseDataLoaderIter.__next__

    def following(self: Any) -> Any:
        batch = original(self)
        steps.batch = digest(batch)
        return batch

    dataloader._BaseDataLoaderIter.__next__ = following


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--end-after", type=int)
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with (options.to / f"rank-{os.environ.get('RANK', '0')}.jsonl").open("w") as file:
        steps = Steps(file, options.checkpoints, options.end_after)
        steps.has_saved()
        register_optimizer_step_pre_hook(steps.before)
        register_optimizer_step_post_hook(steps.after)
        watch_batches(steps)
        sys.argv = [str(options.script), *options.arguments]
        sys.path[0] = str(options.script.resolve().parent)
        try:
            runpy.run_path(str(options.script), run_name="__main__")
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise
        steps.ended()


if __name__ == "__main__":
    main()
