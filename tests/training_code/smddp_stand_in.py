"""Runs data_parallel/train.py with a stand-in for the SageMaker data-parallel library, which exists in AWS's containers alone.

The stand-in registers the backend ``smddp`` by its import, as the library does, with gloo behind it: it shows that the script
imports it and takes the backend, and nothing about the library.
"""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path

import torch.distributed as dist

name = ""
for part in ("smdistributed", "dataparallel", "torch", "torch_smddp"):
    name = f"{name}.{part}".lstrip(".")
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []  # type: ignore[attr-defined]  # a package
dist.Backend.register_backend(
    "smddp", lambda store, rank, size, timeout: dist.ProcessGroupGloo(store, rank, size, timeout), devices=["cpu"]
)

if __name__ == "__main__":
    script = Path(__file__).parents[2] / "training_code" / "data_parallel" / "train.py"
    runpy.run_path(str(script), run_name="__main__")
