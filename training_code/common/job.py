"""The job of this process: hosts and groups, rank, and folders.

On SageMaker they are read from the variables of SageMaker's training toolkit and torchrun; without these, on a laptop, it is a
job with one host and folders under ``./output``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

ONLY_GROUP = "homogeneousCluster"  # the toolkit's name of the group in a job without groups


@dataclass(frozen=True)
class Job:
    """One process of a training job: ``rank`` of ``ranks``, and ``local_rank`` of ``local_ranks`` on this host."""

    host: str
    group: str
    groups: Mapping[str, tuple[str, ...]]
    rank: int
    ranks: int
    local_rank: int
    local_ranks: int
    channels: Mapping[str, Path]
    model: Path
    output: Path
    checkpoints: Path
    arn: str

    @property
    def group_hosts(self) -> tuple[str, ...]:
        """The hosts of this host's group, including itself, in the same order on all hosts."""
        return self.groups[self.group]

    @staticmethod
    def here(environment: Mapping[str, str] = os.environ) -> Job:
        """The job of this process, from ``environment`` alone."""
        # `/opt/ml` on SageMaker, `output` on a laptop. The toolkit has no variable for the folder of checkpoints.
        model = Path(environment.get("SM_MODEL_DIR", Path("output/model").absolute()))
        host = environment.get("SM_CURRENT_HOST", "localhost")
        group = environment.get("SM_CURRENT_INSTANCE_GROUP", ONLY_GROUP)
        described = json.loads(environment.get("SM_INSTANCE_GROUPS_DICT", "{}"))
        groups = {name: tuple(sorted(about["hosts"], key=_number)) for name, about in described.items()}
        channels = json.loads(environment.get("SM_CHANNELS", "[]"))
        return Job(
            host=host,
            group=group,
            groups=groups or {group: tuple(json.loads(environment.get("SM_HOSTS", json.dumps([host]))))},
            rank=int(environment.get("RANK", "0")),
            ranks=int(environment.get("WORLD_SIZE", "1")),
            local_rank=int(environment.get("LOCAL_RANK", "0")),
            local_ranks=int(environment.get("LOCAL_WORLD_SIZE", "1")),
            channels={name: Path(environment[f"SM_CHANNEL_{name.upper()}"]) for name in channels},
            model=model,
            output=Path(environment.get("SM_OUTPUT_DATA_DIR", model.parent / "data")),
            checkpoints=model.parent / "checkpoints",
            arn=environment.get("TRAINING_JOB_ARN", "a job on a laptop"),
        )


def use_the_jobs_network(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the network interface of gloo and NCCL, unless it is set; to be called before the process group is initialized.

    By default gloo uses the address of the host's own name, which SageMaker's containers do not resolve (docs/container.md).
    """
    if interface := environment.get("SM_NETWORK_INTERFACE_NAME"):
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            environment.setdefault(name, interface)


def _number(host: str) -> tuple[int, str]:
    """``algo-10`` after ``algo-2``."""
    digits = host.rpartition("-")[2]
    return (int(digits) if digits.isdigit() else 0, host)
