"""Runs each script of `wrapped_scripts.py` as `run_distributed_scripts.py` does its own; prints what came out as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from distributed_scripts import NORMED, SCRIPT, STEP
from run_distributed_scripts import run, run_on_hosts
from share_scripts import OF_LIBRARIES, RUN_LIBRARIES
from wrapped_scripts import HOSTS, NOT_LAUNCHED, NOT_RUN, OF_REPLICAS, WITHOUT_CPU, WRAPPED_PLANTS


def main() -> None:
    for module in ("accelerate", "torch._dynamo", "transformers.trainer"):  # before the forks
        import_module(module)
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for name, plant in WRAPPED_PLANTS.items():
            if plant.of == OF_REPLICAS or plant.rule in NOT_RUN:  # TensorFlow is of an environment of its own
                continue
            for kind, text in zip(("right", "wrong"), plant.scripts(), strict=True):
                (folder := Path(place, name, kind)).mkdir(parents=True)
                print(name, kind, file=sys.stderr)
                if plant.job is HOSTS:
                    of_plant = run_on_hosts(text, folder, plant.job)
                else:
                    of_plant = run(text, folder, ranks=plant.job.processes or 1)
                found.setdefault(name, {})[kind] = of_plant
        for name in RUN_LIBRARIES:
            found[f"{name} without a launcher"] = {
                kind: run_on_hosts(OF_LIBRARIES[name], Path(place, name, kind), job)
                for kind, job in (("right", HOSTS), ("wrong", NOT_LAUNCHED))
            }
            found[f"{name} without a GPU"] = {
                kind: run_on_hosts(text, Path(place, name, f"{kind}, cpu"), HOSTS)
                for kind, text in (("right", OF_LIBRARIES[name]), ("wrong", WITHOUT_CPU[name]))
            }
        # One process with the samples that both have in a step.
        whole = SCRIPT.replace(STEP, NORMED).replace("sampler=sampler", "shuffle=False")
        found["whole"] = run(whole.replace("batch_size=4", "batch_size=8"), Path(place), ranks=1)
    json.dump(found, sys.stdout)


main()
