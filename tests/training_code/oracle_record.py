"""Runs training scripts unchanged, one after the other as one of a set of ranks, and records what PyTorch saw of them.

    python oracle_record.py RUNS.json

RUNS.json lists runs: script, arguments, environment, paths, and a folder. In it rank-N.txt has what rank N printed, and
rank-N.pt, for each of its steps, what the outermost module took, the targets of the cross-entropy, the masks of dropout, and at
the optimizer's step the whole gradient and weight of each parameter by its name, learning rate and weight decay. ``stop`` is
the step in which the run gets SIGTERM, 0 for none. A run that is not ``watched`` has only what the optimizer sees, so that
nothing is in the way of a compiler.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.distributed.pipelining.stage import PipelineStage
from torch.optim.optimizer import register_optimizer_step_pre_hook

WRAPPERS = (
    "module.",
    "_orig_mod.",
    "_checkpoint_wrapped_module.",
)  # DDP's, torch.compile's, activation checkpointing's

# In which a pipeline runs its stages with any values, to know the shapes between them.
TRIALS = ("_forward_metadata_inference", "_backward_metadata_inference")


class Recorder:
    """What the hooks of one process have seen. Parts of a step are recorded by microbatch, in their order."""

    def __init__(self, stop: int) -> None:
        self.steps: list[dict[str, Any]] = []
        self._stop, self._depth, self._evaluating, self._inferring = stop, 0, False, False
        self._modules: list[nn.Module] = []  # the outermost ones, in the order of their first call

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Around a run. PyTorch's functions are replaced, since hooks of modules get no named arguments."""
        call, cross_entropy, dropout, update = nn.Module.__call__, F.cross_entropy, F.dropout, GradScaler.update

        def called(module: nn.Module, *inputs: Any, **named: Any) -> Any:
            if self._depth == 0 and not self._hidden():
                self._forward(module, (*inputs, *named.values()))
            self._depth += 1
            try:
                return call(module, *inputs, **named)
            finally:
                self._depth -= 1

        def entropy(logits: Tensor, targets: Tensor, *rest: Any, **named: Any) -> Tensor:
            if not self._hidden() and not logits.is_meta:
                ignored = named.get("ignore_index", -100)
                self._add("targets", local(targets).masked_fill(local(targets) == ignored, -100).flatten())
            return cross_entropy(logits, targets, *rest, **named)

        def dropped(inputs: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
            if not training or p == 0 or self._hidden() or inputs.is_meta:
                return dropout(inputs, p, training, inplace)
            mask = dropout(torch.ones_like(inputs), p)  # of the same random numbers as the inputs' own would have
            self._add("masks", mask)
            return inputs * mask

        def updated(scaler: GradScaler, *rest: Any) -> None:
            if scaler.is_enabled():  # a step that it leaves out has no parameters
                self.steps[-1] |= {"scale": scaler.get_scale(), "updated": True}
                self._stop_in(len(self.steps))
            update(scaler, *rest)

        def inferring(infer: Any) -> Any:
            def inferred(*inputs: Any, **named: Any) -> Any:
                self._inferring = True
                try:
                    return infer(*inputs, **named)
                finally:
                    self._inferring = False

            return inferred

        trials = {name: getattr(PipelineStage, name) for name in TRIALS}
        for name, trial in trials.items():
            setattr(PipelineStage, name, inferring(trial))
        nn.Module.__call__, F.cross_entropy, F.dropout = called, entropy, dropped  # type: ignore[method-assign,assignment]
        GradScaler.update = updated  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            for name, trial in trials.items():
                setattr(PipelineStage, name, trial)
            nn.Module.__call__, F.cross_entropy, F.dropout = call, cross_entropy, dropout  # type: ignore[method-assign]
            GradScaler.update = update  # type: ignore[method-assign]

    def _hidden(self) -> bool:
        """Whether autograd computes anew what has been recorded, or a pipeline tries its stages out, to know their shapes."""
        return self._inferring or torch._C._current_graph_task_id() != -1

    def _forward(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        tensors = [one for one in inputs if isinstance(one, Tensor)]
        if not tensors or tensors[0].is_meta:
            return
        self._evaluating = not torch.is_grad_enabled()
        if all(module is not known for known in self._modules):
            self._modules.append(module)
        self._add("inputs", tensors[0])

    def _add(self, kind: str, tensor: Tensor) -> None:
        if not self._evaluating and (not self.steps or self.steps[-1]["updated"]):
            self.steps.append({"updated": False, "parameters": {}})
        if self.steps:
            self.steps[-1].setdefault(f"evaluation {kind}" if self._evaluating else kind, []).append(
                local(tensor).detach().clone()
            )

    def _stop_in(self, step: int) -> None:
        if step == self._stop:
            self._stop = 0
            signal.raise_signal(signal.SIGTERM)

    def step(self, optimizer: torch.optim.Optimizer, _: object, __: object) -> None:
        """The hook before each step of an optimizer."""
        if all(group["lr"] == 0 for group in optimizer.param_groups) and all(
            parameter.grad is None or not local(parameter.grad).any()
            for group in optimizer.param_groups
            for parameter in group["params"]
        ):
            return  # by which torch.distributed.checkpoint makes an optimizer's state before it loads one
        if not self.steps or (self.steps[-1]["updated"] and not self._modules):
            self.steps.append({"updated": False, "parameters": {}})
        step = self.steps[-1]
        self._stop_in(len(self.steps))
        step["updated"] = True
        names = {
            id(parameter): plain(name) for module in self._modules for name, parameter in module.named_parameters()
        }
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = names.get(id(parameter), str(len(step["parameters"])))
                step["parameters"][name] = {
                    "gradient": None if parameter.grad is None else whole(parameter.grad),
                    "weight": whole(parameter),
                    "rate": float(group["lr"]),
                    "decay": float(group["weight_decay"]),
                }


def plain(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "") if wrapper != "module." else name.removeprefix(wrapper)
    return name


def local(tensor: Any) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


@torch.no_grad()
def whole(tensor: Any) -> Tensor:
    """All of a tensor of which each rank has a shard."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().clone().contiguous()


def run(one: Mapping[str, Any]) -> None:
    rank, recorder = os.environ.get("RANK", "0"), Recorder(one["stop"])
    before = dict(os.environ)
    os.environ.update(one["environment"])
    os.chdir(one["cwd"])
    sys.argv, sys.path[:0] = [one["script"], *one["arguments"]], one["paths"]
    hook, folder = register_optimizer_step_pre_hook(recorder.step), Path(one["folder"])
    watching = recorder.watching() if one["watched"] else contextlib.nullcontext()
    try:
        with open(folder / f"rank-{rank}.txt", "w") as file, contextlib.redirect_stdout(file), watching:
            runpy.run_path(one["script"], run_name="__main__")
    finally:
        torch.save(recorder.steps, folder / f"rank-{rank}.pt")
        hook.remove()
        del sys.path[: len(one["paths"])]
        os.environ.clear()
        os.environ.update(before)
        for name, module in [*sys.modules.items()]:  # scripts have modules of the same names
            if any(str(getattr(module, "__file__", None)).startswith(path) for path in one["paths"]):
                del sys.modules[name]


def main() -> None:
    for one in json.loads(Path(sys.argv[1]).read_text()):
        run(one)


if __name__ == "__main__":
    main()
