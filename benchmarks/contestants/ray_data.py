"""Ray Data's streaming iterator, on a cluster of two nodes, of which one prepares and the other reads.

Both are on this machine, each with its own object store: on a single node Ray passes blocks in shared memory, without a network.
A block is a batch.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import ray
from harness import POOL, Run, measure, pool
from ray.cluster_utils import Cluster

BLOCKS = 20_000  # more than a run reads; each one costs the driver memory


class Ready:
    """Returns ready batches; Ray copies each into its object store."""

    def __init__(self, batch_size: int) -> None:
        self._pool = pool(batch_size)

    def __call__(self, block: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        images, labels = self._pool[int(block["id"][0]) % POOL]
        return {"image": images, "label": labels}


class Prepared:
    """The digits, one by one, as a DataLoader's worker would."""

    def __init__(self, batch_size: int) -> None:
        import torch
        from samples import Repeated

        torch.set_num_threads(1)
        self._digits, self._batch_size = Repeated(batch_size), batch_size

    def __call__(self, block: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        begin = int(block["id"][0]) * self._batch_size
        samples = [self._digits[index] for index in range(begin, begin + self._batch_size)]
        return {name: np.stack([sample[name].numpy() for sample in samples]) for name in samples[0]}


def read(run: Run) -> Any:
    prepare: Any = Ready if run.workload == "ready" else Prepared
    blocks = ray.data.range(BLOCKS, override_num_blocks=BLOCKS)
    batches = blocks.map_batches(
        prepare,
        fn_constructor_args=(run.batch_size,),
        batch_size=None,
        compute=ray.data.ActorPoolStrategy(size=run.workers),
        num_cpus=1,
    )
    for batch in batches.iter_batches(batch_size=None, prefetch_batches=run.streams):
        yield batch["image"], batch["label"]


def main() -> None:
    run = Run.here()
    store = {"object_store_memory": 2 * 1024**3}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **store})
    try:
        cluster.add_node(num_cpus=run.workers, **store)
        here = os.path.dirname(os.path.abspath(__file__))
        environment = {"env_vars": {"PYTHONPATH": here}}
        ray.init(address=cluster.address, runtime_env=environment, logging_level=logging.ERROR, log_to_driver=False)
        cluster.wait_for_nodes()
        with contextlib.closing(read(run)) as batches:
            measure(run, batches)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
