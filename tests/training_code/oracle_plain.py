"""The plain side of the oracle: trains by one process of PyTorch alone what a script has trained, and says where they differ.

    python oracle_plain.py CASE.json ...

For each case it prints a line: what it has ``found``, the numbers of the samples in the order in which they were ``read``, and
of each step and rank what was ``dropped``, as a hash.

It has its own words for what the arguments mean: which samples a step has, the mean over all targets that count, the schedule,
the groups of the optimizer, clipping. Of the script it takes the workload (the dataset and the module), which is not under test,
the grouping of a step's samples into ranks and microbatches, since batch norm's statistics and dropout's masks are of those, and
the masks.

Gradients are compared where they are computed, and the optimizer's state, weights included, follows the script's gradients:
Adam divides a gradient by its own size, so that rounding noise would decide about updates where a gradient is mathematically 0.
So each step's gradients, loss and weights are compared on their own, and errors neither add up nor hide behind the tolerance.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LOSS, GRADIENT, WEIGHT, RATE = 1e-5, 1e-6, 1e-6, 1e-12  # differences that are rounding; of the rate a share
MOST_FINDINGS = 12
Options = dict[str, Any]


class Different(Exception):
    """What a script did is so different that the rest cannot be compared."""


# -- What the scripts train -------------------------------------------------------------------------------------------


class Workload:
    """A script's module and samples, and what its arguments mean."""

    rounding = 1.0  # how much more the script's gradients are rounded than those of most
    progress = "epochs"  # or steps: what the training's length and its schedule count
    begins_as_recorded = False  # initial weights are not compared
    model: nn.Module
    inputs: Tensor  # [samples, ...]
    targets: Tensor  # int64 [samples, ...], -100 where none counts

    def __init__(self, folder: Path, options: Options) -> None:
        raise NotImplementedError

    def batch(self, options: Options, ranks: int) -> int:
        """Samples of a step over all ranks."""
        return int(options["batch-size"] * ranks)

    def samples_of_a_step(self, left: int, batch: int, ranks: int) -> int:
        """Of an epoch of which so many are left."""
        return min(batch, left)

    def warm_up(self, options: Options, steps_of_an_epoch: int) -> int:
        return int(options.get("warm-up", 0))

    def shares(self, options: Options, ranks: int) -> list[list[list[int]]]:
        """Of each share of the batch, and of each stage of a pipeline, the ranks that have it."""
        return [[[rank]] for rank in range(ranks)]

    def logits(self, inputs: Tensor) -> Tensor:
        return self.model(inputs)

    def optimizer(self, options: Options) -> torch.optim.Optimizer:
        return torch.optim.Adam([{"params": [parameter]} for parameter in self.model.parameters()])

    def decay(self, parameter: nn.Parameter, options: Options) -> float:
        return 0.0

    def exported(self, folder: Path) -> dict[str, Tensor]:
        found: dict[str, Tensor] = torch.load(folder / "model.pt")
        return found

    def check_end(self, output: str) -> Iterator[str]:
        return iter(())


class DataParallel(Workload):
    def __init__(self, folder: Path, options: Options) -> None:
        torch.manual_seed(options["seed"])
        self.model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        with (folder / "points" / "points.csv").open() as lines:
            rows = [(float(row["x"]), float(row["y"]), int(row["spiral"])) for row in csv.DictReader(lines)]
        self.inputs = torch.tensor([row[:2] for row in rows])
        self.targets = torch.tensor([row[2] for row in rows])

    def check_end(self, output: str) -> Iterator[str]:
        right = (self.model(self.inputs).argmax(1) == self.targets).float().mean().item()
        printed = [float(found) for found in re.findall(r"^accuracy ([\d.]+)$", output, re.M)]
        if len(printed) != 1 or abs(printed[0] - right) > 6e-5:
            yield f"accuracy: printed {printed}, is {right:.4f}"


class Heterogeneous(Workload):
    def __init__(self, folder: Path, options: Options) -> None:
        from model import Digits, network

        torch.manual_seed(options["seed"])
        self.model = network()
        digits = Digits(folder / "digits", options["seed"])
        self.inputs = torch.stack([digits[number]["image"] for number in range(len(digits))])
        self.targets = torch.stack([digits[number]["label"] for number in range(len(digits))])

    def samples_of_a_step(self, left: int, batch: int, ranks: int) -> int:
        """The last step of an epoch has at least one sample for each rank."""
        return batch - (ranks - (left - batch)) if 0 < left - batch < ranks else min(batch, left)


class Images(Heterogeneous):
    """Images of one colour each, which all crops of them are too."""

    rounding = 30.0  # batch norm divides by the deviation of a few samples

    def __init__(self, folder: Path, options: Options) -> None:
        from image_folder import ImageFolder
        from resnet import DEPTHS, ResNet

        torch.manual_seed(options["seed"])
        self.model = ResNet(DEPTHS[options["depth"]], options["classes"], options["width"])
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = ImageFolder(folder / "train", options["size"])
        rows = [images[number] for number in range(len(images))]
        mean, deviation = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
        pixels = torch.stack([row["image"] for row in rows]).permute(0, 3, 1, 2).float() / 255
        self.inputs = (pixels - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)
        self.targets = torch.stack([row["label"] for row in rows])

    def warm_up(self, options: Options, steps_of_an_epoch: int) -> int:
        return (
            int(options.get("warm-up", 0)) or min(options["warm-up-epochs"], options["epochs"] // 2) * steps_of_an_epoch
        )

    def optimizer(self, options: Options) -> torch.optim.Optimizer:
        groups = [{"params": [parameter]} for parameter in self.model.parameters()]
        return torch.optim.SGD(groups, 0.1, momentum=0.9, nesterov=True)

    def decay(self, parameter: nn.Parameter, options: Options) -> float:
        return float(options["weight-decay"]) if parameter.ndim > 1 else 0.0


class Compiled(Workload):
    """Texts of any length, padded to one."""

    progress = "steps"

    def __init__(self, folder: Path, options: Options) -> None:
        from model import LanguageModel

        torch.manual_seed(options["seed"])
        sizes = {name: options[name] for name in ("sequence", "width", "layers", "heads")}
        self.model = LanguageModel(**sizes, vocabulary=257)
        texts = (folder / "text" / "text.txt").read_bytes().split(b"\n\n")
        kept = texts[: len(texts) - min(512, 1 + len(texts) // 10)] if options.get("evaluate-every") else texts
        padded = torch.full((len(kept), sizes["sequence"]), 256)
        for row, text in zip(padded, kept, strict=True):
            row[: len(text)] = torch.tensor(list(text))
        self.inputs = padded[:, :-1].contiguous()
        self.targets = torch.where(padded[:, 1:] == 256, -100, padded[:, 1:])

    def logits(self, inputs: Tensor) -> Tensor:
        """The model's own forward ends with the script's loss."""
        embedded = self.model.tokens(inputs) + self.model.positions.weight[: inputs.shape[1]]  # type: ignore[operator,index]
        hidden = self.model.norm(self.model.blocks(embedded))  # type: ignore[operator]
        return F.linear(hidden, self.model.tokens.weight)  # type: ignore[union-attr,arg-type]

    def optimizer(self, options: Options) -> torch.optim.Optimizer:
        return torch.optim.AdamW([{"params": [parameter]} for parameter in self.model.parameters()])

    def decay(self, parameter: nn.Parameter, options: Options) -> float:
        return float(options["weight-decay"]) if parameter.ndim > 1 else 0.0


class ModelParallel(Workload):
    """What both scripts of model_parallel/ have in common: a batch over all ranks, and the layout of the ranks."""

    progress = "steps"

    def batch(self, options: Options, ranks: int) -> int:
        return int(options["batch-size"])

    def samples_of_a_step(self, left: int, batch: int, ranks: int) -> int:
        """A batch may begin in one epoch and end in the next."""
        return batch

    def shares(self, options: Options, ranks: int) -> list[list[list[int]]]:
        tensor, pipeline = options.get("tensor", 1), options.get("pipeline", 1)
        data = ranks // tensor // pipeline
        return [
            [[(stage * data + share) * tensor + one for one in range(tensor)] for stage in range(pipeline)]
            for share in range(data)
        ]

    def optimizer(self, options: Options) -> torch.optim.Optimizer:
        return torch.optim.AdamW([{"params": [parameter]} for parameter in self.model.parameters()])

    def decay(self, parameter: nn.Parameter, options: Options) -> float:
        if "weight-decay" not in options:
            return 0.01  # AdamW's
        return float(options["weight-decay"]) if parameter.ndim > 1 else 0.0


class Transformer(ModelParallel):
    def __init__(self, folder: Path, options: Options) -> None:
        from model import Config, Transformer, initial

        names = ("layers", "width", "heads", "hidden", "context", "vocabulary")
        config = Config(**{name: options[name] for name in names})
        self.model = Transformer(config)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(initial(name, parameter.shape, config, options["seed"]))
        texts = [file.read_bytes() for file in sorted((folder / "text").glob("*.py"))]
        tokens = torch.frombuffer(bytearray(b"".join(texts)[: options["text-bytes"]]), dtype=torch.uint8).long()
        rows = [
            tokens[first : first + config.context + 1]
            for first in range(0, len(tokens) - config.context, config.context)
        ]
        self.inputs, self.targets = torch.stack(rows)[:, :-1], torch.stack(rows)[:, 1:]

    def exported(self, folder: Path) -> dict[str, Tensor]:
        found: dict[str, Tensor] = torch.load(folder / "model.pt")["model"]
        return found


class HuggingFace(ModelParallel):
    begins_as_recorded = True

    def __init__(self, folder: Path, options: Options) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder / "model"), dtype=torch.float32)
        context, rows = options["context"], []
        for file in sorted((folder / "tokens").glob("*.npy")):
            tokens = torch.from_numpy(np.load(file).astype(np.int64))
            rows += [tokens[first : first + context + 1] for first in range(0, len(tokens) - context, context)]
        self.inputs, self.targets = torch.stack(rows)[:, :-1], torch.stack(rows)[:, 1:]

    def logits(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=inputs, use_cache=False).logits
        return logits

    def exported(self, folder: Path) -> dict[str, Tensor]:
        from transformers import AutoModelForCausalLM

        return dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters())


WORKLOADS: dict[str, type[Workload]] = {
    "data_parallel": DataParallel,
    "heterogeneous": Heterogeneous,
    "images": Images,
    "compiled": Compiled,
    "model_parallel": Transformer,
    "huggingface": HuggingFace,
}

# -- What arguments mean ----------------------------------------------------------------------------------------------


def rate_of(options: Options, step: float, steps: float, batch: int, warm_up: int) -> float:
    """The learning rate: a linear rise over the warm-up, then half a cosine down to a share of the peak."""
    peak = float(options["learning-rate"])
    if base := options.get("base-batch-size"):
        growth = batch / base
        peak *= math.sqrt(growth) if options.get("rate-rule") == "square-root" else growth
    least = options.get("least-rate", 1.0)
    if step <= warm_up:
        return peak * step / warm_up
    done = min(1.0, (step - warm_up) / max(1, steps - warm_up))
    return peak * (least + (1 - least) * 0.5 * (1 + math.cos(math.pi * done)))


# -- The comparison ---------------------------------------------------------------------------------------------------


class Plain:
    """One process that goes through the steps of all runs of a case."""

    def __init__(self, folder: Path, case: dict[str, Any]) -> None:
        self.folder, self.case, self.findings = folder, case, list[str]()
        first = case["runs"][0]["options"]
        self.work = WORKLOADS[case["kind"]](folder / "inputs", first)
        self.model = self.work.model.train()
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = self.work.optimizer(first)
        of = {id(parameter): name for name, parameter in self.parameters.items()}
        groups = [(group, parameter) for group in self.optimizer.param_groups for parameter in group["params"]]
        self.groups = {of[id(parameter)]: group for group, parameter in groups}
        self.numbers = {row.numpy().tobytes(): number for number, row in enumerate(self.work.inputs)}
        assert len(self.numbers) == len(self.work.inputs), "the samples of a case must differ"
        self.samples = self.steps = 0
        self.rounding = 10.0 if first.get("compiler") == "inductor" else self.work.rounding
        self.rounding *= 10_000 if first.get("precision") == "fp16" else 1
        self.loss_rounding = 1_000 if first.get("precision") == "fp16" else 1
        self.scale = 2.0**16  # of the loss in fp16, which halves with each step that is left out
        self.dropped: list[list[str]] = []
        self.read: list[int] = []  # the samples' numbers, in the order in which they were read
        self.output, self.rates = "", list[float]()
        self.evaluated: list[float | None] = []  # after each step
        self.losses: list[tuple[float, int]] = []  # of each step, and how many targets it is the mean of

    def find(self, kind: str, text: str) -> None:
        self.findings.append(f"{kind}: {text}")
        if len(self.findings) >= MOST_FINDINGS:
            raise Different

    def compare(self) -> dict[str, Any]:
        try:
            for number, run in enumerate(self.case["runs"]):
                self.follow(run, self.folder / f"run-{number}")
            self.check_read()
            self.check_epochs()
            self.check_exported()
        except Different:
            pass
        except Exception as error:  # what was recorded cannot be gone through
            self.findings.append(
                f"error: {type(error).__name__} {error} in {traceback.extract_tb(error.__traceback__)[-1]}"
            )
        return {"found": self.findings, "read": self.read, "dropped": self.dropped}

    def follow(self, run: dict[str, Any], folder: Path) -> None:
        options, ranks = run["options"], run["ranks"]
        records = [torch.load(folder / f"rank-{rank}.pt") for rank in range(ranks)]
        if not run["watched"]:
            twin = self.folder.parent / self.case["twin"] / folder.name
            records = [self.named(record, torch.load(twin / f"rank-{rank}.pt")) for rank, record in enumerate(records)]
        output, first = (folder / "rank-0.txt").read_text(), len(self.losses)
        if len({len(record) for record in records}) > 1:
            self.find("steps", f"of the ranks: {[len(record) for record in records]}")
        if run["stop"] and len(records[0]) - run["stop"] not in (0, 1):  # ranks may agree in the next step
            self.find("steps", f"stopped in step {run['stop']}, made {len(records[0])}")
        for steps in zip(*records, strict=True):
            if not self.steps and self.work.begins_as_recorded:
                self.begin(steps)
            self.step(options, steps)
        if not run["stop"] and self.left(options):
            self.find("steps", f"{self.left(options)} of the last run are not done")
        self.check_logged(output, first)
        if not run["stop"] and options.get("precision") != "fp16":
            for finding in self.work.check_end(output):
                self.find("log", finding)

    def named(self, record: list[dict[str, Any]], twin: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A record of the optimizer alone, with what its twin's run has read, and the parameters by name, not by number."""
        parameters = self.parameters.items()
        names = [name for name, one in parameters if one.ndim > 1] + [name for name, one in parameters if one.ndim < 2]
        return [
            {**seen, "parameters": dict(zip(names, step["parameters"].values(), strict=True))}
            for step, seen in zip(record, twin, strict=True)
        ]

    @torch.no_grad()
    def begin(self, of_ranks: Sequence[dict[str, Any]]) -> None:
        for record in of_ranks:
            for name, found in record["parameters"].items():
                self.parameters[name].copy_(found["weight"])

    def left(self, options: Options) -> int:
        """Samples or steps that are still to be done."""
        if self.work.progress == "steps":
            return int(options["steps"]) - self.steps
        return int(options["epochs"]) * len(self.work.inputs) - self.samples

    def step(self, options: Options, of_ranks: Sequence[dict[str, Any]]) -> None:
        ranks, at = len(of_ranks), self.steps + 1
        batch, length = self.work.batch(options, ranks), len(self.work.inputs)
        shares = self.work.shares(options, ranks)
        parts = [part for share in shares for part in self.parts(of_ranks, share)]
        self.check_masks(of_ranks, shares)
        numbers = [number for _, _, found in parts for number in found if number >= 0]
        wanted = self.work.samples_of_a_step(length - self.samples % length, batch, ranks)
        if len(numbers) != wanted:
            self.find("samples", f"step {at} has {len(numbers)}, not {wanted}")
        self.check_rate(options, of_ranks, batch)
        loss, count = self.gradients(options, parts)
        if options.get("precision") == "fp16":
            self.check_scale(of_ranks)
        if of_ranks[0]["parameters"] or options.get("precision") != "fp16":
            self.check_parameters(at, of_ranks)
            self.update(of_ranks)
        self.losses.append((loss, count))
        self.evaluate(of_ranks, shares)
        self.read += numbers
        self.samples, self.steps = self.samples + len(numbers), at

    def parts(
        self, of_ranks: Sequence[dict[str, Any]], stages: list[list[int]]
    ) -> list[tuple[Tensor, list[Tensor], list[int]]]:
        """A share's microbatches: inputs, masks, and the numbers of the samples, -1 where a row is there for its shape alone."""
        first, *others = stages[0]
        dtype = self.work.inputs.dtype  # what a later stage takes is of another
        calls = [inputs for inputs in of_ranks[first].get("inputs", []) if inputs.dtype == dtype]
        for rank in others:
            same = [inputs for inputs in of_ranks[rank].get("inputs", []) if inputs.dtype == dtype]
            if len(calls) != len(same) or not all(map(torch.equal, calls, same)):
                self.find("samples", f"step {self.steps + 1}: ranks {first} and {rank} of one share read others")
        targets = torch.cat(of_ranks[stages[-1][0]]["targets"])
        found, at = [], 0
        for call, inputs in enumerate(calls):
            per_row = self.work.targets[0].numel()
            its = targets[at : at + len(inputs) * per_row].unflatten(0, (-1, per_row))
            at += len(inputs) * per_row
            numbers = [
                -1 if bool((row == -100).all()) else self.numbers.get(values.numpy().tobytes(), -2)
                for values, row in zip(inputs, its, strict=True)
            ]
            if -2 in numbers:
                self.find("samples", f"step {self.steps + 1} has rows that are no samples")
            of_stages = [of_ranks[ranks[0]].get("masks", []) for ranks in stages]
            masks = [
                mask for some in of_stages for mask in some[call * len(some) // len(calls) :][: len(some) // len(calls)]
            ]
            found.append((inputs, masks, numbers))
        return found

    def check_masks(self, of_ranks: Sequence[dict[str, Any]], shares: list[list[list[int]]]) -> None:
        """Dropout differs between shares and between stages, and is the same in the ranks that have one stage of one share."""
        digests = [digest(record.get("masks", [])) for record in of_ranks]
        self.dropped.append(digests)
        stages = [ranks for share in shares for ranks in share if digests[ranks[0]]]
        if len({digests[ranks[0]] for ranks in stages}) < len(stages):
            self.find("dropout", f"of step {self.steps + 1} is alike on ranks {[ranks[0] for ranks in stages]}")
        for ranks in stages:
            if len({digests[rank] for rank in ranks}) > 1:
                self.find("dropout", f"of step {self.steps + 1} differs on ranks {ranks}, which compute the same")
        if digests[0] and digests in self.dropped[:-1]:
            self.find("dropout", f"of step {self.steps + 1} is that of an earlier step")

    def check_rate(self, options: Options, of_ranks: Sequence[dict[str, Any]], batch: int) -> None:
        length = len(self.work.inputs)
        if self.work.progress == "steps":
            at, steps = float(self.steps + 1), float(options["steps"])
        else:
            epoch, read = divmod(self.samples, length)
            of_epoch = -(-length // batch)
            at, steps = epoch * of_epoch + read / batch + 1, float(options["epochs"] * of_epoch)
        rate = rate_of(options, at, steps, batch, self.work.warm_up(options, -(-length // batch)))
        self.rates.append(rate)
        for rank, record in enumerate(of_ranks):
            for name, found in record["parameters"].items():
                decay = self.work.decay(self.parameters[name], options)
                if abs(found["rate"] - rate) > RATE * rate:
                    self.find("rate", f"step {self.steps + 1} of {name} on rank {rank}: {found['rate']}, not {rate}")
                if found["decay"] != decay:
                    self.find("decay", f"step {self.steps + 1} of {name}: {found['decay']}, not {decay}")
                self.groups[name]["lr"], self.groups[name]["weight_decay"] = rate, decay

    def gradients(self, options: Options, parts: Sequence[tuple[Tensor, list[Tensor], list[int]]]) -> tuple[float, int]:
        """Backward of a step, clipped. Returns its loss, and how many targets count."""
        ignored = torch.full_like(self.work.targets[0], -100)
        targets = [
            torch.stack([self.work.targets[number] if number >= 0 else ignored for number in numbers])
            for _, _, numbers in parts
        ]
        count = sum(int((its != -100).sum()) for its in targets)
        self.optimizer.zero_grad()
        total = 0.0
        for (inputs, masks, _), its in zip(parts, targets, strict=True):
            with masked(masks):
                logits = self.work.logits(inputs)
            summed = F.cross_entropy(
                logits.flatten(0, -2),
                its.flatten(),
                reduction="sum",
                ignore_index=-100,
                label_smoothing=options.get("smoothing", 0.0),
            )
            (summed / count).backward()
            total += summed.item()
        if clip := options.get("clip"):
            nn.utils.clip_grad_norm_(self.parameters.values(), clip)
        return total / count, count

    def check_scale(self, of_ranks: Sequence[dict[str, Any]]) -> None:
        scales = [record["scale"] for record in of_ranks]
        if set(scales) != {self.scale}:
            self.find("scale", f"of step {self.steps + 1} is {scales}, not {self.scale}")
        if not of_ranks[0]["parameters"]:
            self.scale /= 2

    def check_parameters(self, at: int, of_ranks: Sequence[dict[str, Any]]) -> None:
        seen = set()
        gradients = [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]
        most = GRADIENT * self.rounding * max(1.0, nn.utils.get_total_norm(gradients).item())
        for rank, record in enumerate(of_ranks):
            for name, found in record["parameters"].items():
                seen.add(name)
                ours, theirs = self.parameters[name].grad, found["gradient"]
                if (ours is None) != (theirs is None):
                    self.find(
                        "gradient",
                        f"step {at} of {name} on rank {rank} is {'missing' if theirs is None else 'too much'}",
                    )
                elif ours is not None and (apart := difference(ours, theirs)) > most:
                    self.find(
                        "gradient",
                        f"step {at} of {name} on rank {rank} by {apart:.1e} of {ours.abs().max().item():.1e}",
                    )
                if (apart := difference(self.parameters[name].detach(), found["weight"])) > WEIGHT:
                    self.find("weight", f"before step {at} of {name} on rank {rank} by {apart:.1e}")
        if missing := sorted(set(self.parameters) - seen):
            self.find("gradient", f"step {at} updates none of {missing}")

    def update(self, of_ranks: Sequence[dict[str, Any]]) -> None:
        for record in of_ranks:
            for name, found in record["parameters"].items():
                self.parameters[name].grad = found["gradient"]
        self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, of_ranks: Sequence[dict[str, Any]], shares: list[list[list[int]]]) -> None:
        """The loss of what was evaluated after a step, if something was: of all its targets over all ranks."""
        summed, count = 0.0, 0
        self.model.eval()
        for stages in shares:
            calls = of_ranks[stages[0][0]].get("evaluation inputs", [])
            calls = [inputs for inputs in calls if inputs.dtype == self.work.inputs.dtype]
            if not calls or "evaluation targets" not in of_ranks[stages[-1][0]]:
                continue  # an accuracy is of no loss
            targets = torch.cat(of_ranks[stages[-1][0]]["evaluation targets"])
            logits = torch.cat([self.work.logits(inputs).flatten(0, -2) for inputs in calls])
            summed += F.cross_entropy(logits, targets, reduction="sum").item()
            count += int((targets != -100).sum())
        self.model.train()
        self.evaluated.append(summed / count if count else None)

    def check_logged(self, output: str, first: int) -> None:
        """The losses of steps, which are those of the script's whole training."""
        self.output += output
        logged = re.findall(r"^step (\d+) loss ([\d.]+|nan)(?:.* learning_rate ([\d.]+))?", output, re.M)
        for step, loss, rate in logged:
            if not first < int(step) <= len(self.losses):
                self.find("loss", f"of step {step} is logged, which was not made")
            elif not abs(float(loss) - self.losses[int(step) - 1][0]) <= LOSS * self.loss_rounding:
                self.find("loss", f"of step {step} is logged as {loss}, is {self.losses[int(step) - 1][0]:.6f}")
            elif rate and abs(float(rate) - self.rates[int(step) - 1]) > 1e-6:
                self.find("rate", f"of step {step} is logged as {rate}, is {self.rates[int(step) - 1]}")

        held_out = re.findall(r"^step (\d+) .*\b(?:validation_loss|held-out text) ([\d.]+)", output, re.M)
        logged_at = {int(step): float(loss) for step, loss in held_out}
        for step, evaluated in enumerate(self.evaluated[first:], start=first + 1):
            if (
                evaluated is not None
                and not abs(logged_at.get(step, math.inf) - evaluated) <= LOSS * self.loss_rounding
            ):
                self.find(
                    "loss",
                    f"of the evaluation after step {step} is logged as {logged_at.get(step)}, is {evaluated:.6f}",
                )

    def check_epochs(self) -> None:
        """The losses of epochs: the mean over all their samples. One that a run ended with may be logged by the next."""
        printed = [float(loss) for loss in re.findall(r"^epoch \d+ loss ([\d.]+|nan)", self.output, re.M)]
        if self.work.progress != "epochs":
            return
        means, summed, count = [], 0.0, 0
        for loss, number in self.losses:
            summed, count = summed + loss * number, count + number
            if count == len(self.work.inputs):
                means.append(summed / count)
                summed, count = 0.0, 0
        if len(printed) != len(means):
            self.find("loss", f"of {len(printed)} epochs is logged, not of {len(means)}")
        for epoch, (loss, mean) in enumerate(zip(printed, means, strict=False)):
            if not abs(loss - mean) <= LOSS * self.loss_rounding:
                self.find("loss", f"of epoch {epoch} is logged as {loss}, is {mean:.6f}")

    def check_read(self) -> None:
        length = len(self.work.inputs)
        epochs = [self.read[first : first + length] for first in range(0, len(self.read), length)]
        for epoch, numbers in enumerate(epochs):
            if len(set(numbers)) != len(numbers):
                self.find("samples", f"epoch {epoch} reads {len(numbers) - len(set(numbers))} again")
        for epoch, (one, other) in enumerate(pairwise(epochs)):
            if length > 8 and len(other) == length and one == other:
                self.find("order", f"of epoch {epoch + 1} is that of the one before")
        if epochs and len(epochs[0]) > 8 and epochs[0] == sorted(epochs[0]):  # four of an epoch may be so by chance
            self.find("order", "of the first epoch is the dataset's")

    def check_exported(self) -> None:
        last = self.case["runs"][-1]
        if last["stop"]:
            return
        exported = self.work.exported(self.folder / "output" / "model")
        for name, parameter in self.parameters.items():
            if name in exported and (apart := difference(parameter.detach(), exported[name])) > WEIGHT:
                self.find("weight", f"of the exported {name} by {apart:.1e}")
        if missing := set(self.parameters) - set(exported):
            self.find("weight", f"the exported model lacks {sorted(missing)}")


class masked:
    """Replaces dropout by the masks of the script."""

    def __init__(self, masks: list[Tensor]) -> None:
        self._masks = list(masks)

    def __enter__(self) -> None:
        self._dropout = F.dropout
        F.dropout = self._dropped  # type: ignore[assignment]

    def _dropped(self, inputs: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return inputs * self._masks.pop(0) if training and p else inputs

    def __exit__(self, *_: object) -> None:
        F.dropout = self._dropout


def digest(tensors: Sequence[Tensor]) -> str:
    """Of what a rank dropped in a step, empty where it dropped nothing."""
    found = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        found.update((tensor != 0).numpy().tobytes())
    return found.hexdigest() if tensors else ""


def difference(one: Tensor, other: Tensor) -> float:
    if one.shape != other.shape:
        return math.inf
    found = (one - other).abs().max().item() if one.numel() else 0.0
    return math.inf if math.isnan(found) else found


def main() -> None:
    torch.set_num_threads(1)
    for file in map(Path, sys.argv[1:]):
        print(json.dumps(Plain(file.parent, json.loads(file.read_text())).compare()))


if __name__ == "__main__":
    main()
