"""Runs model_parallel/smp.py with a stand-in for the SageMaker model-parallel library, which exists in AWS's containers alone.

The stand-in has the two functions that smp.py calls, and says that they were called: it shows that the file runs and in which
order it calls them, and nothing about the library. Of `mp_parameters` it has `hybrid_shard_degree` alone, as PyTorch's own
HYBRID_SHARD: so many ranks after each other share a replica. With ``WITHOUT_RMS_NORM`` PyTorch is as before 2.4.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import sys
import types
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy


def init() -> None:
    print("init")
    degree = json.loads(os.environ.get("SM_HP_MP_PARAMETERS", "{}")).get("hybrid_shard_degree", 0)
    if degree:
        shard, _ = dist.new_subgroups(degree)
        replicas = [list(range(n, dist.get_world_size(), degree)) for n in range(degree)]
        replicate, _ = dist.new_subgroups_by_enumeration(replicas)
        FullyShardedDataParallel.__init__ = functools.partialmethod(
            FullyShardedDataParallel.__init__,
            process_group=(shard, replicate),
            sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        )


library = types.ModuleType("torch.sagemaker")
library.init = init
library.transform = lambda model: print("transform") or model
sys.modules["torch.sagemaker"] = torch.sagemaker = library

if "WITHOUT_RMS_NORM" in os.environ:
    del torch.nn.RMSNorm

if __name__ == "__main__":
    script = Path(__file__).parents[2] / "training_code" / "model_parallel" / "smp.py"
    runpy.run_path(str(script), run_name="__main__")
