"""The rules of PyTorch/XLA on several devices, as on Trainium: each has a replica of the model, and calls alone join them.

DistributedDataParallel gives all processes the first one's parameters, averages gradients as they are computed, and so steps
alike; PyTorch/XLA's optimizer step averages alone. Where a library trains, like neuronx_distributed, they say nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from training_jobs.lint.distributed import OF_HOST, OF_PROCESS, limits_gradients, loaders_of_all_samples
from training_jobs.lint.program import Program, conditions, programs
from training_jobs.lint.script import Check, Found, Job, Script, constant, keyword, name_of

_XLA = "torch_xla"
_KNOWS = re.compile(r"ordinal$|world_size$")
_STARTS = {"spawn", "launch", "start_processes"}
# One process computes on all devices, by annotations.
_ANNOTATED = re.compile(r"spmd|mark_sharding", re.IGNORECASE)
# An optimizer that averages the gradients of its shards.
_AVERAGES = re.compile(r"zero_?redundancy|zero_?1", re.IGNORECASE)
# What gives replicas the same parameters: those of one of them, of a file, or of one model that processes share.
_SAME = re.compile(
    r"broadcast|from_pretrained|load_state_dict|load_model|load_checkpoint|mpmodelwrapper|mpserialexecutor", re.I
)
_OPTIMIZER = re.compile(r"\bopt(?:im|imizer)?s?\b|optimizer|scaler", re.IGNORECASE)


def _replicated(scripts: Sequence[Script], job: Job) -> Iterator[Program]:
    """The programs of PyTorch/XLA that several processes run, each with a replica."""
    for program in programs(scripts, job.entry_point):
        if program.trains_by(_XLA) and not any(map(_ANNOTATED.search, program.used)):
            starts = any(_starts_several(script, call) for script, call in program.calls)
            several = job.processes > 1 if job.processes is not None else any(map(_KNOWS.search, program.used))
            if starts or several:
                yield program


def _starts_several(script: Script, call: ast.Call) -> bool:
    """Whether a call starts a process for each device."""
    starts = name_of(call) in _STARTS and script.imported(call.func).startswith((_XLA, "torch.multiprocessing."))
    return starts and constant(keyword(call, "nprocs")) != 1 and keyword(call, "debug_single_process") is None


def _gradients(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch/XLA's ``xm.optimizer_step``: it "sync[s] gradi[e]nts across all devices"; ``optimizer.step()`` does not."""
    for program in _replicated(scripts, job):
        if not _averages(program):
            line = next((step.lineno for step, _ in _steps(program)), program.line)
            why = "each replica trains a model of its own, since nothing averages their gradients"
            yield program.script, line, f"{why}: xm.optimizer_step(optimizer)"


def _averages(program: Program) -> bool:
    return program.averages or "optimizer_step" in program.used or any(map(_AVERAGES.search, program.used))


def _steps(program: Program) -> Iterator[tuple[ast.Call, str]]:
    """The calls of an optimizer's own ``step()`` in each step, with the optimizer as it is written."""
    for node in program.script.each_step:
        if isinstance(node, ast.Call) and name_of(node) == "step":
            optimizer = ast.unparse(node.func).removesuffix(".step")
            if _OPTIMIZER.search(optimizer):
                yield node, optimizer


def _weights(scripts: Sequence[Script], job: Job) -> Found:
    """aws-neuron-samples, `mnist_mlp/train_torchrun.py`: "ensure each worker has same initial weights", by one seed."""
    for program in _replicated(scripts, job):
        seeds = [call for script, call in program.calls if _seeds_torch(script, call)]
        alike = any(not _is_of_replica(program, call) for call in seeds)
        if alike or program.wraps or any(map(_SAME.search, program.used)) or _reads_weights(program):
            continue
        why = "each replica begins with parameters of its own, which the average of gradients leaves apart"
        how = "the same torch.manual_seed() on each before it is made, or xm.broadcast_master_param(model)"
        yield program.script, program.line, f"{why}: {how}"


def _is_of_replica(program: Program, seed: ast.Call) -> bool:
    """Whether a seed is another on each replica."""
    parts = [seed, *(value for given in seed.args for value in program.assigned(given))]
    return any(OF_PROCESS.search(ast.unparse(one)) for one in parts)


def _seeds_torch(script: Script, call: ast.Call) -> bool:
    """Whether a call may seed PyTorch: not that of another library's random numbers."""
    seeds = "seed" in name_of(call).lower() or name_of(call) == "set_rng_state"
    return seeds and not script.imported(call.func).startswith(("random.", "numpy."))


def _reads_weights(program: Program) -> bool:
    """Whether something may set the parameters, or make them alike by a sum."""
    return any(
        script.imported(call.func) in ("torch.load", "safetensors.torch.load_file")
        or ("reduce" in name_of(call) and "param" in ast.unparse(call))
        for script, call in program.calls
    )


def _samples(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's DistributedSampler: the samples of each process are "exclusive to it"; a device loader deals out none."""
    for program in _replicated(scripts, job):
        # Those of torch_xla.core.xla_model end with PyTorch/XLA 2.7; torch_xla.runtime begins with 2.1.
        is_old = {"xrt_world_size", "get_ordinal"} & program.used or job.versions.get("torch", "").startswith("1.")
        numbers = ("xm.xrt_world_size()", "xm.get_ordinal()") if is_old else ("xr.world_size()", "xr.global_ordinal()")
        for script, call, channel in loaders_of_all_samples(program, job):
            numbers = OF_HOST if channel else numbers
            how = "sampler=DistributedSampler(..., num_replicas={}, rank={})".format(*numbers)
            yield script, call.lineno, f"each replica has all samples in each epoch: give it {how}"


def _step_twice(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch/XLA's ``xm.optimizer_step``: it returns "the same value returned by the `optimizer.step()` call", its own."""
    for program in programs(scripts, job.entry_point):
        each = program.script.each_step if program.trains_by(_XLA) else ()
        made = {
            ast.unparse(node.args[0])
            for node in each
            if isinstance(node, ast.Call) and name_of(node) == "optimizer_step" and node.args
        }
        for step, name in _steps(program) if made else ():
            if name in made:
                why = f"a second step by the same gradients, since xm.optimizer_step({name}) calls {name}.step()"
                yield program.script, step.lineno, f"{why}: leave this one out"


def _clip(scripts: Sequence[Script], job: Job) -> Found:
    """aws-neuron-samples, `dp_bert_large_hf_pretrain_hdf5.py`: ``xm.reduce_gradients`` comes before ``clip_grad_norm_``."""
    for program in _replicated(scripts, job):
        if "optimizer_step" not in program.used or program.averages:
            continue
        for script, call in program.calls:
            if limits_gradients(script, call) and not any(conditions(script, call)):
                why = "limits each replica's own gradients, before xm.optimizer_step() averages them"
                yield (
                    script,
                    call.lineno,
                    f"{why}: xm.reduce_gradients(optimizer) before it, and optimizer.step() after",
                )


REPLICAS: Mapping[str, Check] = {
    "xla-gradients": _gradients,
    "xla-weights": _weights,
    "xla-samples": _samples,
    "xla-step-twice": _step_twice,
    "xla-clip": _clip,
}
