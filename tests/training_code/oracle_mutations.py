"""Bugs of the kind that a careful person makes, which the oracle's quick cases find when they are planted in a copy."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from oracle import TRAINING_CODE, run
from oracle_cases import QUICK, between


@dataclass(frozen=True)
class Mutation:
    """``old`` is replaced in a file of training_code/; the oracle has to find it in the cases with these names."""

    file: str
    old: str
    new: str
    cases: str  # a regular expression

    def find(self, folder: Path) -> list[str]:
        """What the oracle finds in a copy with the bug."""
        copy = folder / "training_code"
        shutil.copytree(TRAINING_CODE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / self.file
        assert self.old in file.read_text(), f"{self.file} has no {self.old!r}"
        file.write_text(file.read_text().replace(self.old, self.new))
        cases = {name: case for name, case in QUICK.items() if re.search(self.cases, name)}
        outcomes = run(cases, folder, copy)
        return [text for outcome in outcomes.values() for text in outcome.found] + between(outcomes)


LAST_SAMPLES, RESUMED = "last samples of an epoch", "data parallel: 2 -> 1"
MUTATIONS = {
    "the mean of the ranks' means": Mutation(
        "common/loss.py",
        "(shares / (count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)))",
        "(1 / (targets != IGNORED).sum().clamp(min=1))",
        LAST_SAMPLES,
    ),
    "the remainder of a step that ranks do not divide is lost": Mutation(
        "common/order.py",
        "mine = batch[rank::ranks]",
        "mine = batch[: len(batch) // ranks * ranks][rank::ranks]",
        LAST_SAMPLES,
    ),
    "each epoch has the same order": Mutation(
        "common/order.py", "[seed % 2**63, epoch]", "[seed % 2**63]", LAST_SAMPLES
    ),
    "the order does not follow from the seed": Mutation(
        "common/order.py", "[seed % 2**63, epoch]", "[epoch]", f"{LAST_SAMPLES}|data parallel: another seed"
    ),
    "a resume goes on one sample too far": Mutation(
        "common/checkpoints.py", 'record["steps"], record["samples"]', 'record["steps"], record["samples"] + 1', RESUMED
    ),
    "a resume begins the epoch anew": Mutation(
        "common/checkpoints.py",
        'record["steps"], record["samples"]',
        'record["steps"], record["samples"] // 19 * 19',
        RESUMED,
    ),
    "one epoch too many": Mutation(
        "data_parallel/train.py",
        "progress.samples < options.epochs",
        "progress.samples <= options.epochs",
        LAST_SAMPLES,
    ),
    "gradients are not reduced over the ranks": Mutation(
        "data_parallel/train.py", "DistributedDataParallel(model) if job.ranks > 1 else model", "model", LAST_SAMPLES
    ),
    "initial weights do not follow from the seed": Mutation(
        "data_parallel/train.py", "torch.manual_seed(options.seed)", "torch.manual_seed(0)", LAST_SAMPLES
    ),
    "the loss's scale is not resumed": Mutation("data_parallel/train.py", '"scaler": precision.scaler, ', "", "fp16"),
    "the log's loss is the mean of the steps' means": Mutation(
        "common/loss.py",
        "self._loss += loss.detach().double() * count\n        self._targets += count",
        "self._loss += loss.detach().double()\n        self._targets += 1",
        LAST_SAMPLES,
    ),
    "the rate is set in the first group only": Mutation(
        "common/optimization.py",
        "for group in optimizer.param_groups:",
        "for group in optimizer.param_groups[:1]:",
        "model parallel: the command|padded text",
    ),
    "the warm-up is one step too long": Mutation(
        "common/schedule.py", "return step / warm_up", "return step / (warm_up + 1)", "data parallel: the rate"
    ),
    "the batch of the rate's rule is one rank's": Mutation(
        "data_parallel/train.py",
        "scheduled_rate(options, at, total, order.batch)",
        "scheduled_rate(options, at, total, options.batch_size)",
        "data parallel: the rate",
    ),
    "the optimizer's state is not resumed": Mutation(
        "common/checkpoints.py", "dcp.load(loaded, ", 'dcp.load({"model": loaded["model"]}, ', RESUMED
    ),
    "the checkpoint's weight decay wins": Mutation(
        "common/checkpoints.py",
        '{name: value for name, value in state.items() if not name.startswith("param_groups")}',
        "state",
        "--weight-decay holds",
    ),
    "the last step is not saved": Mutation(
        "model_parallel/arguments.py", "return step == options.steps or bool(", "return bool(", "last step is saved"
    ),
    "dropout does not follow from the seed": Mutation(
        "common/seeding.py", "{seed}/{samples}", "{samples}", "Hugging Face: dropout(, another seed)?$"
    ),
    "dropout is alike on all data ranks": Mutation(
        "common/seeding.py", "{samples}/{rank}/", "{samples}/", "Hugging Face: dropout$"
    ),
    "dropout is that of the step before": Mutation(
        "common/seeding.py", "{seed}/{samples}/", "{seed}/", "Hugging Face: dropout$"
    ),
    "the generator of dropout is neither seeded nor saved": Mutation(
        "common/seeding.py", "torch.manual_seed(int", "print(end='' and int", "Hugging Face: dropout(, resumed)?$"
    ),
    "microbatches are summed": Mutation(
        "model_parallel/microbatches.py",
        "count=counted(targets)",
        "count=counted(targets) // self.degrees.microbatches",
        "model parallel: microbatches",
    ),
    "targets count in each tensor-parallel rank": Mutation(
        "model_parallel/microbatches.py",
        "shares=dist.get_world_size()",
        "shares=self.degrees.data",
        "--weight-decay holds",
    ),
    "the norm is that of the largest stage": Mutation(
        "common/optimization.py",
        "dist.all_reduce(squared, group=pipeline)",
        "dist.all_reduce(squared, dist.ReduceOp.MAX, group=pipeline)",
        "all stages",
    ),
    "an evaluation is the mean of its batches' means": Mutation(
        "model_parallel/microbatches.py",
        "* of_batch, count + of_batch",
        ", count + 1",
        "evaluation is of all|Hugging Face: another batch size",
    ),
    "the position is that of the step": Mutation(
        "model_parallel/microbatches.py",
        "progress.samples + (done - progress.steps - 1) * options.batch_size",
        "(done - 1) * options.batch_size",
        "Hugging Face: another batch size",
    ),
    "DDP does not reduce the last microbatch": Mutation(
        "common/optimization.py",
        "model.require_backward_grad_sync = last",
        "model.require_backward_grad_sync = False",
        "compiled: 2 -> 1",
    ),
    "padding counts": Mutation("compiled/text.py", ".masked_fill(tokens[:, 1:] == PAD, IGNORED)", "", "padded text"),
    "an uneven batch counts as a whole one": Mutation(
        "heterogeneous/train.py",
        "count = counted(labels)",
        "count = torch.tensor(options.batch_size * job.ranks)",
        "heterogeneous: sharded",
    ),
}
