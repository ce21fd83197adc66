"""Runs each script of `trainer_scripts.py` as `run_distributed_scripts.py` does its own; prints what came out as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from distributed_scripts import changed
from run_distributed_scripts import run
from trainer_scripts import CLASSES, SCRIPT, TRAINER_PLANTS, WHOLE


def main() -> None:
    for module in ("accelerate", "transformers.trainer", "transformers.models.llama", "transformers.models.bert"):
        import_module(module)  # before the forks
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for name, plant in TRAINER_PLANTS.items():
            for kind, text in zip(("right", "wrong"), plant.scripts(), strict=True):
                (folder := Path(place, name, kind)).mkdir(parents=True)
                print(name, kind, file=sys.stderr)
                found.setdefault(name, {})[kind] = run(text, folder, ranks=plant.job.processes or 1)
        for name, changes in (("whole", WHOLE), ("whole, of classes", (*CLASSES, *WHOLE))):
            found[name] = run(changed(SCRIPT, *changes), Path(place), ranks=1)
    json.dump(found, sys.stdout)


main()
