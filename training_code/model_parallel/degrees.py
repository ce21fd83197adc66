"""How a model is spread over the ranks: the degrees, and the checks that they fit the ranks, the model and the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from model import Config

AXES = ("pipeline", "data_replicate", "data_shard", "tensor")  # of the mesh: neighbours in the last talk the most
STAGES_PER_RANK = {"GPipe": 1, "1F1B": 1, "Interleaved1F1B": 2}  # PyTorch's names
SCHEDULES = {name.lower(): name for name in STAGES_PER_RANK} | {"interleaved": "Interleaved1F1B"}
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class Degrees:
    """The degrees of parallelism: ``pipeline`` x ``data_replicate`` x ``data_shard`` x ``tensor`` ranks.

    ``microbatches``: into how many pieces a data-parallel rank's share of a batch is cut; with a pipeline, what flows
    through it. ``schedule`` is GPipe, 1F1B or Interleaved1F1B (two stages on each rank). ``precision`` is that of the
    activations and of what is gathered: the optimizer works on fp32 always.
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
    def ranks(self) -> int:
        return math.prod(self.sizes)

    @property
    def data(self) -> int:
        """Over how many ranks a batch is divided."""
        return self.data_replicate * self.data_shard

    @property
    def stages(self) -> int:
        return self.pipeline * STAGES_PER_RANK[self.schedule] if self.pipeline > 1 else 1

    def check_ranks(self, hosts: int, ranks: int) -> None:
        """Raise ValueError unless there are as many ranks as the degrees need."""
        if self.ranks != ranks:
            factors = " x ".join(f"{name} {size}" for name, size in zip(AXES, self.sizes, strict=True))
            raise ValueError(
                f"the degrees need {self.ranks} ranks ({factors}), but {ranks} were found "
                f"(hosts {hosts} x ranks of each {ranks / hosts:g})"
            )

    def check_model(self, config: Config, batch: int) -> None:
        """Raise ValueError where the model, or a batch of ``batch`` sequences over all ranks, cannot be divided so."""
        for name in ("heads", "hidden", "context", "vocabulary"):
            if getattr(config, name) % self.tensor:
                raise ValueError(f"{name} must be divisible by tensor, got {getattr(config, name)} and {self.tensor}")
        if config.layers < self.stages:
            raise ValueError(
                f"layers must be at least the stages of the pipeline, got {config.layers} layers and {self.stages} "
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
        """PyTorch's own rules, as torch.distributed.pipelining.schedules has them, before anything is built."""
        if self.schedule == "1F1B" and self.microbatches < self.pipeline:
            raise ValueError(
                f"microbatches must be at least pipeline with 1F1B, got {self.microbatches} and {self.pipeline}"
            )
        rounds = max(1, self.microbatches // self.pipeline)
        if self.schedule == "Interleaved1F1B" and self.microbatches % rounds:
            raise ValueError(
                f"microbatches must be a multiple of microbatches // pipeline ({rounds}) with Interleaved1F1B, "
                f"got {self.microbatches} and pipeline {self.pipeline}"
            )
