"""Loads the file of the whole model that model_parallel/train.py exports, with no mesh, as docs/model-parallel.md shows."""

from __future__ import annotations

from pathlib import Path

import torch
from model import Config, Transformer


def load(file: str | Path) -> Transformer:
    saved = torch.load(file, map_location="cpu", weights_only=True)
    model = Transformer(Config(**saved["config"]))
    model.load_state_dict(saved["model"])
    return model
