"""Train a small language model on text with one compiled step.

On a laptop, in one process:     PYTHONPATH=training_code python training_code/compiled/train.py --compiler inductor
Two processes, by torchrun:      PYTHONPATH=training_code torchrun --nproc-per-node 2 training_code/compiled/train.py
With PyTorch/XLA, on a laptop:   PJRT_DEVICE=CPU PYTHONPATH=training_code python training_code/compiled/train.py --compiler xla
On SageMaker:                    the stack CompiledTraining of app.py

The text is the channel ``text``, or without one the running Python's standard library. All batches have one shape, and a guard
stops the job when a later step is compiled again; ``--pad longest`` shows it.

It resumes from the last checkpoint; on a laptop, remove ``./output`` to start over. On SIGTERM, which SageMaker sends two minutes
before it kills a job, it saves a checkpoint after the current step.
"""

# ran: `compiled/train.py`, inductor | test_compiled_train | test_compiled | one H100 | no
# ran: ... PyTorch/XLA on a CPU | no | test_compiled (soak) | no | no

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial

import torch
import torch.distributed as dist
from common.job import Job, use_the_jobs_network
from common.optimization import set_learning_rate
from common.precision import Precision
from common.process_group import freeze_objects, leave_process_group, to_device
from common.schedule import add_schedule, scheduled_rate
from common.stopping import Stop
from common.whole_checkpoint import restore, write
from compilers import COMPILERS, Compiler, Step, Torch, Xla
from guard import CompilationGuard
from model import LanguageModel, Text, padded
from torch import Tensor, nn
from torch.utils.data import DataLoader

HELD_OUT_BATCHES = 4  # of each rank
PRECISIONS = {"auto": "auto", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--steps", type=static, default=200)
    arguments.add_argument("--batch-size", type=static, default=16, help="of each process, the same at every step")
    arguments.add_argument("--sequence", type=static, default=128, help="bytes that each sample is padded or cut to")
    arguments.add_argument("--pad", choices=("sequence", "longest"), default="sequence", help="longest: a bad example")
    arguments.add_argument(
        "--preprocessing-workers", type=int, default=1, help="processes that read and pad; 0: this one"
    )
    arguments.add_argument("--width", type=static, default=64)
    arguments.add_argument("--layers", type=static, default=2)
    arguments.add_argument("--heads", type=static, default=4)
    add_schedule(arguments, peak=1e-3)
    arguments.add_argument("--precision", choices=tuple(PRECISIONS), default="float32", help="float16: not with xla")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--log-every", type=static, default=10, help="steps; a loss is read only then")
    arguments.add_argument("--checkpoint-every", type=static, default=50, help="steps")
    arguments.add_argument("--evaluate-every", type=int, default=0, help="steps; 0: no text is held out")
    arguments.add_argument("--on-recompile", choices=("fail", "warn"), default="fail")
    # The variables are those that the constructs' compilers set.
    arguments.add_argument("--compiler", type=one_of_the_compilers, default=os.environ.get("TRAINING_COMPILER", "none"))
    arguments.add_argument("--compiler-mode", default=os.environ.get("TRAINING_COMPILER_MODE") or "default")
    arguments.add_argument("--compiler-dynamic", default=os.environ.get("TRAINING_COMPILER_DYNAMIC") or "false")
    return arguments.parse_args()


def static(text: str) -> int:
    """A size that is known before the step is compiled."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"must be one whole number for the whole run, from 1 on, like 32, got {text!r}"
        )
    return int(text)


def one_of_the_compilers(text: str) -> str:
    if text not in COMPILERS:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(COMPILERS)}, got {text!r}")
    return text


# -- Data -------------------------------------------------------------------------------------------------------------


def batches_from(first: int, job: Job, options: argparse.Namespace) -> Iterator[Tensor]:
    """This rank's batch of each step after ``first`` ones: tokens, int64 [batch_size, sequence], always."""
    text = Text(job.channels.get("text"), options.sequence)
    samples = len(text) - len(held_out_indices(len(text), job, options))
    loader = DataLoader(
        text,
        batch_sampler=indices_from(first, samples, job, options),  # type: ignore[arg-type]
        num_workers=options.preprocessing_workers,
        collate_fn=partial(padded, length=options.sequence) if options.pad == "sequence" else padded_to_longest,
        pin_memory=torch.cuda.is_available(),
    )
    return iter(loader)


def held_out_indices(samples: int, job: Job, options: argparse.Namespace) -> range:
    """The samples that no step trains on: the last ones, in batches for all ranks."""
    size = HELD_OUT_BATCHES * options.batch_size * job.ranks if options.evaluate_every else 0
    return range(max(0, samples - size), samples)


def padded_to_longest(samples: Sequence[bytes]) -> Tensor:
    """Pads to the longest sample, as many scripts do: each batch has another shape, for which the step is compiled again."""
    return padded(samples, max(len(sample) for sample in samples))


def indices_from(first: int, samples: int, job: Job, options: argparse.Namespace) -> Iterator[list[int]]:
    """Each epoch is a permutation with a fixed seed, split into batches of all ranks; the last, shorter one is dropped."""
    whole = options.batch_size * job.ranks
    per_epoch = samples // whole
    if per_epoch == 0:
        raise SystemExit(f"batch-size times ranks must be at most the number of samples, {samples}, got {whole}")
    for epoch in itertools.count(first // per_epoch):
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(options.seed * 1_000_003 + epoch))
        skipped = first % per_epoch if epoch == first // per_epoch else 0
        for batch in order.split(whole)[skipped:per_epoch]:
            yield batch[job.rank :: job.ranks].tolist()


# -- Model ------------------------------------------------------------------------------------------------------------


def compiler_of(job: Job, options: argparse.Namespace) -> Compiler:
    if options.compiler == "xla":
        if options.precision == "float16":
            raise SystemExit("precision must be float32 or bfloat16 with --compiler xla, like bfloat16, got float16")
        return Xla(job)
    return Torch(
        job,
        compile=options.compiler == "inductor",
        mode=options.compiler_mode,
        dynamic=options.compiler_dynamic == "true",
        strict=options.on_recompile == "fail",
    )


def build(options: argparse.Namespace, device: torch.device) -> nn.Module:
    torch.manual_seed(options.seed)
    size = {"sequence": options.sequence, "width": options.width, "layers": options.layers, "heads": options.heads}
    return LanguageModel(**size).to(device)


# -- Step -------------------------------------------------------------------------------------------------------------


def compiled_step(compiler: Compiler, model: nn.Module, optimizer: torch.optim.Optimizer, precision: Precision) -> Step:
    """Tokens on the device to the loss on the device, without reading a value."""
    language_model = compiler.model(model)

    def step(tokens: Tensor) -> Tensor:
        with precision.autocast():
            loss = language_model(tokens)
        precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        compiler.average(optimizer)
        precision.scaler.step(optimizer)
        precision.scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return compiler.step(step)


@torch.no_grad()
def evaluate(job: Job, compiler: Compiler, model: nn.Module, options: argparse.Namespace) -> float:
    """The mean loss on the held-out text, over all ranks. The model is not compiled for it."""
    text = Text(job.channels.get("text"), options.sequence)
    mine = list(held_out_indices(len(text), job, options))[job.rank :: job.ranks]
    batches = [mine[start : start + options.batch_size] for start in range(0, len(mine), options.batch_size)]
    losses = [
        model(to_device(padded([text[index] for index in batch], options.sequence), compiler.device))
        for batch in batches
    ]
    return mean(job, torch.stack(losses).mean())


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, stopping: Stop) -> None:
    compiler = compiler_of(job, options)
    model = build(options, compiler.device)
    optimizer = compiler.optimizer(model.parameters(), options.learning_rate)
    precision = Precision(PRECISIONS[options.precision], compiler.device)
    first = done = restore(job, model, optimizer, precision.scaler)["steps"]
    if job.local_rank == 0:
        where = f"host {job.host} trains on {compiler.device.type}, {job.local_ranks} of {job.ranks} processes"
        print(f"{where}, compiler {options.compiler}, from step {first}", flush=True)
    step = compiled_step(compiler, model, optimizer, precision)
    guard = CompilationGuard(compiler.compilations, fail=options.on_recompile == "fail", warm_up=compiler.warm_up)
    log = Log(job, options, first, compiler.warm_up)
    freeze_objects()
    for done, tokens in zip(range(first + 1, options.steps + 1), batches_from(first, job, options), strict=False):
        # XLA compiles no number but 0 and 1 into its graph: https://github.com/pytorch/xla/issues/8414.
        set_learning_rate([optimizer], scheduled_rate(options, done, options.steps))
        with guard.step(done, {"tokens": tokens}):
            loss = step(to_device(tokens, compiler.device))
        log.read(done, loss)
        if options.evaluate_every and done % options.evaluate_every == 0:
            held_out_loss = evaluate(job, compiler, model, options)
            if job.rank == 0:
                print(f"step {done} loss on held-out text {held_out_loss:.6f}", flush=True)
        stop = stopping.check() or done == options.steps
        if stop or done % options.checkpoint_every == 0:
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            write(job, states | {"scaler": precision.scaler.state_dict(), "steps": done}, compiler.save)
        if stop:
            break
    log.end(compiler)
    if done >= options.steps:
        job.model.mkdir(parents=True, exist_ok=True)
        compiler.save(model.state_dict(), job.model / "model.pt")
    elif job.rank == 0:
        print(f"stopped by SIGTERM with the checkpoint of step {done}", flush=True)


class Log:
    """Prints measurements; the loss is read from the device only every ``log_every`` steps, and after the warm-up."""

    def __init__(self, job: Job, options: argparse.Namespace, done: int, warm_up: int) -> None:
        self._job, self._every, self._warm_up, self._first = job, options.log_every, warm_up, done + warm_up
        self._tokens = options.batch_size * options.sequence * job.ranks
        self._compiler = options.compiler
        self._read = (done, time.perf_counter())
        self._paces: list[float] = []  # seconds of a step, of each time that was measured; the first with compiling

    def read(self, done: int, loss: Tensor) -> None:
        if done % self._every and done != self._first:
            return
        value = mean(self._job, loss)
        steps, began = self._read
        self._read = (done, time.perf_counter())
        self._paces.append((self._read[1] - began) / (done - steps))
        if self._job.rank == 0:
            print(f"step {done} loss {value:.6f} tokens/s {self._tokens / self._paces[-1]:.0f}", flush=True)

    def end(self, compiler: Compiler) -> None:
        """Print the job's measures, one to a line."""
        if self._job.rank != 0:
            return
        if len(self._paces) > 1:
            steady = statistics.median(self._paces[1:])
            print(f"steady step {1000 * steady:.3f} ms")
            if self._compiler != "none":
                print(f"compile time {self._warm_up * max(self._paces[0] - steady, 0):.3f} s")
        print(f"compilations {compiler.compilations.count()}, {compiler.compilations.cached()} graphs from the cache")
        print(f"peak memory {compiler.peak_mib():.0f} MiB", flush=True)


def mean(job: Job, loss: Tensor) -> float:
    """The mean over the ranks, which waits for the device."""
    value = loss.cpu()
    if job.ranks > 1:
        dist.all_reduce(value)
    return value.item() / job.ranks


def main() -> None:
    options = config()
    job = Job.here()
    use_the_jobs_network()
    stopping = Stop()
    # The compiler's cache is saved with the checkpoints, so that a resumed job does not compile again.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(job.checkpoints / "compiler-cache"))
    train(job, options, stopping)
    leave_process_group()


if __name__ == "__main__":
    main()
