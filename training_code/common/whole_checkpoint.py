"""The checkpoint of a model that each rank has whole: one file, replaced atomically, since it is uploaded to S3 meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common.job import Job
from common.optimization import set_learning_rate
from torch import nn
from torch.optim import Optimizer


def write(job: Job, states: Mapping[str, Any], save: Callable[[Any, Path], object] = torch.save) -> None:
    """Write ``states``, among them the number of ``steps``: on rank 0, or on every rank if all take part in ``save``."""
    job.checkpoints.mkdir(parents=True, exist_ok=True)
    save(states, job.checkpoints / "next.partial")
    if job.rank == 0:
        os.replace(job.checkpoints / "next.partial", job.checkpoints / "last.pt")


def read(job: Job) -> dict[str, Any]:
    """The states, in the host's memory; without a checkpoint ``{"steps": 0}``. Raises RuntimeError where the ranks' steps differ.

    A host that lacks the checkpoint would go on with other weights, and its gradients be averaged with the others'.
    """
    file = job.checkpoints / "last.pt"
    states = dict(torch.load(file, map_location="cpu", weights_only=True)) if file.is_file() else {"steps": 0}
    steps = [states["steps"]] * job.ranks
    if job.ranks > 1:
        dist.all_gather_object(steps, states["steps"])
    if len(set(steps)) > 1:
        raise RuntimeError(f"all ranks must resume from the same step, got {steps} by rank: one lacks the checkpoint")
    return states


def restore(job: Job, model: nn.Module, optimizer: Optimizer, scaler: Any = None) -> dict[str, Any]:
    """Load ``model`` and ``optimizer`` of the states, all of which are returned. The learning rate stays that of this job."""
    states, rate = read(job), optimizer.param_groups[0]["lr"]
    if states["steps"]:
        model.load_state_dict(states["model"])
        optimizer.load_state_dict(states["optimizer"])
        set_learning_rate([optimizer], rate)
        if scaler and states.get("scaler"):  # none where the training before was not in fp16
            scaler.load_state_dict(states["scaler"])
    return states
