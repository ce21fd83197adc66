"""The degrees of parallelism, and their validation against the ranks, the model and the batch."""

# ran: `precision="bf16"` | test_model_parallel (soak) | no | one H100, one H200 | no
# ran: `cpu_offload`, `activation_offloading` | test_model_parallel | no | one H200 | no

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from common.job import Job

AXES = ("pipeline", "data_replicate", "data_shard", "tensor")  # of the mesh: the last one has the most communication
STAGES_PER_RANK = {"GPipe": 1, "1F1B": 1, "Interleaved1F1B": 2}  # PyTorch's names
SCHEDULES = {name.lower(): name for name in STAGES_PER_RANK} | {"interleaved": "Interleaved1F1B"}
PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class Degrees:
    """The degrees of parallelism: ``pipeline`` x ``data_replicate`` x ``data_shard`` x ``tensor`` ranks.

    ``microbatches``: the number of microbatches of a data-parallel rank's batch, also those of the pipeline. ``schedule`` is
    GPipe, 1F1B or Interleaved1F1B (two stages per rank). ``precision`` is that of activations and gathered parameters; the
    optimizer always uses fp32. With fp16 the loss is scaled (loss_scale.py).
    """

    data_shard: int = 1
    data_replicate: int = 1
    tensor: int = 1
    pipeline: int = 1
    microbatches: int = 1
    schedule: str = "1F1B"
    activation_checkpointing: bool = False
    activation_offloading: bool = False
    cpu_offload: bool = False
    precision: str = "fp32"

    def __post_init__(self) -> None:
        for name in (*AXES, "microbatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, like 2, got {getattr(self, name)}")
        if self.schedule.lower() not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(STAGES_PER_RANK)}, got {self.schedule!r}")
        object.__setattr__(self, "schedule", SCHEDULES[self.schedule.lower()])
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")

    @property
    def sizes(self) -> tuple[int, ...]:
        """In the order of AXES."""
        return tuple(getattr(self, name) for name in AXES)

    @property
    def named(self) -> dict[str, int]:
        """The sizes and the microbatches, by name."""
        return {name: getattr(self, name) for name in (*AXES, "microbatches")}

    @property
    def ranks(self) -> int:
        return math.prod(self.sizes)

    @property
    def data(self) -> int:
        """The number of ranks over which a batch is divided."""
        return self.data_replicate * self.data_shard

    @property
    def stages(self) -> int:
        return self.pipeline * STAGES_PER_RANK[self.schedule] if self.pipeline > 1 else 1

    def check_ranks(self, hosts: int, ranks: int) -> None:
        """Raise ValueError unless the number of ranks is the product of the degrees."""
        if self.ranks != ranks:
            factors = " x ".join(f"{name} {size}" for name, size in zip(AXES, self.sizes, strict=True))
            raise ValueError(
                f"the degrees need {self.ranks} ranks ({factors}), but {ranks} were found "
                f"(hosts {hosts} x ranks of each {ranks / hosts:g})"
            )

    def check_model(self, layers: int, sizes: Mapping[str, int], batch: int) -> None:
        """Raise ValueError where the model or the batch is not divisible by the degrees.

        ``sizes``: those that tensor parallelism divides, by name. ``batch``: the sequences of a step over all ranks.
        """
        for name, size in sizes.items():
            if size % self.tensor:
                raise ValueError(f"{name} must be divisible by tensor, got {size} and {self.tensor}")
        if layers < self.stages:
            raise ValueError(
                f"layers must be at least the stages of the pipeline, got {layers} layers and {self.stages} "
                f"stages (pipeline {self.pipeline} x {self.schedule}'s {self.stages // self.pipeline} of each rank)"
            )
        pieces = self.data * self.microbatches
        if batch < 1 or batch % pieces:
            raise ValueError(
                f"batch_size must be divisible by {pieces} (data_replicate {self.data_replicate} x data_shard "
                f"{self.data_shard} x microbatches {self.microbatches}), got {batch}"
            )
        if self.pipeline > 1:
            self._check_microbatches()

    def _check_microbatches(self) -> None:
        """The rules of torch.distributed.pipelining.schedules, checked before the model is built."""
        if self.schedule == "1F1B" and self.microbatches < self.pipeline:
            got = f"got {self.microbatches} and {self.pipeline}"
            raise ValueError(f"microbatches must be at least pipeline with 1F1B, {got}")
        rounds = max(1, self.microbatches // self.pipeline)
        if self.schedule == "Interleaved1F1B" and self.microbatches % rounds:
            raise ValueError(
                f"microbatches must be a multiple of microbatches // pipeline ({rounds}) with Interleaved1F1B, "
                f"got {self.microbatches} and pipeline {self.pipeline}"
            )


def add_degrees(parser: argparse.ArgumentParser) -> None:
    """Add an argument for each degree; its default is that of the variable TRAINING_PARALLELISM, which the constructs set."""
    given = json.loads(os.environ.get("TRAINING_PARALLELISM", "{}"))
    for name in ("data_shard", "data_replicate", "tensor", "pipeline", "microbatches"):
        # The remaining ranks shard the data.
        parser.add_argument(_flag(name), type=int, default=given.get(name) or (None if name == "data_shard" else 1))
    for name in ("activation_checkpointing", "activation_offloading", "cpu_offload"):
        parser.add_argument(_flag(name), action=argparse.BooleanOptionalAction, default=given.get(name) or False)
    parser.add_argument("--schedule", default=given.get("schedule") or "1F1B", help="GPipe, 1F1B or Interleaved1F1B")
    parser.add_argument("--precision", default=given.get("precision") or "fp32", help=" or ".join(PRECISIONS))


def degrees_of(options: argparse.Namespace, job: Job) -> Degrees:
    """The degrees, validated against the number of ranks."""
    given = {field.name: getattr(options, field.name) for field in fields(Degrees)}
    if given["data_shard"] is None:
        others = Degrees(**given | {"data_shard": 1}).ranks
        given["data_shard"] = max(1, job.ranks // others)
    degrees = Degrees(**given)
    degrees.check_ranks(len(job.group_hosts), job.ranks)
    return degrees


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
