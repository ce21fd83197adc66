"""Checkpoints that any number of ranks, in any layout, can go on from, written in the background, and complete or not there.

The names in a checkpoint are those of the whole model, and each host writes its ranks' shards. A checkpoint is complete when its
`.metadata`, which is written last, and all files that it names exist: on SageMaker the hosts' folders are merged in S3, file by
file, and a machine may fail in between. Besides weights and optimizer state it has the run's record: steps, samples and settings.
"""

# ran: sharded checkpoints in the background, in another layout | test_model_parallel | test_model_parallel | saved, one H200 | no

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common.job import Job
from torch import Tensor, nn
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.optim import Optimizer

VERSION = 2  # of the record
MARKER = ".sagemaker-upload"  # with -ing or -ed at its end, of the file beside each that SageMaker uploads
# The optimizer's state under the parameters' names too, as all of PyTorch but 2.2, which SMDDP has, can return it.
FLAT = {"flatten_optimizer_state_dict": True} if hasattr(StateDictOptions, "flatten_optimizer_state_dict") else {}
BY_NAME = StateDictOptions(**FLAT)
State = dict[str, Any]


class Stateful(Protocol):
    """What has a state of numbers, texts, lists and dicts, such as a gradient scaler or a reader of data."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Any) -> object: ...


@dataclass
class Progress:
    """How far a training is: ``samples`` are those that all ranks have read in its ``steps``."""

    steps: int = 0
    samples: int = 0


class Checkpointer:
    """Writes a training's checkpoints, and restores the newest; to be made and used on all ranks alike.

    Args:
        modules: This rank's: the model, or its stages of a pipeline.
        optimizers: One for each module. At a resume their settings, such as weight decay, stay those of this run.
        fixed: Settings that a resumed run must have too, such as the seed and the dataset's length, by name.
        free: Those that it may change, such as the batch's size, which are printed where it does.
        states: What is kept besides, by name; of equal content on all ranks.
        write: dcp.save where the states cannot be copied, and each step has to wait.
        on_host: Whether tensors are copied to the host's memory first, as those of XLA have to be.
    """

    def __init__(
        self,
        job: Job,
        modules: Iterable[nn.Module],
        optimizers: Iterable[Optimizer],
        *,
        fixed: Mapping[str, object],
        free: Mapping[str, object] = {},
        states: Mapping[str, Stateful] = {},
        write: Any = None,
        on_host: bool = False,
    ) -> None:
        self._job, self._folder, self._restored, self._newest = job, job.checkpoints, "", ""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._parts, self._states = list(zip(modules, optimizers, strict=True)), states
        self._fixed, self._free = dict(fixed), {"ranks": job.ranks, **free}
        self._write, self._on_host = write or (dcp.save if on_host else background_save()), on_host
        self._group = dist.new_group(backend="gloo")  # of the writing thread: the training's collectives are others
        self._writing: Any = None

    def save(self, progress: Progress) -> None:
        """Begin to write a step's checkpoint, unless there is one, from a copy in memory, once the last is complete."""
        self.wait()
        if (folder := self._folder / f"step-{progress.steps:08d}").name == self._newest:
            return
        self._newest = folder.name
        own = {name: dict(state.state_dict()) for name, state in self._states.items()}
        record = {"version": VERSION, **vars(progress), "fixed": self._fixed, "free": self._free, "states": own}
        text = torch.frombuffer(bytearray(json.dumps(record).encode()), dtype=torch.uint8)
        states = {**self._weights(), "record": text}
        self._writing = self._write(states, checkpoint_id=folder, process_group=self._group)

    def wait(self) -> None:
        """Return when what was saved is complete on all ranks. Older ones are removed, but for the newest that S3 has."""
        if self._writing is None:
            return
        if isinstance(self._writing, Future):
            self._writing.result()
        self._writing = None
        older = sorted(self._folder.glob("step-*"))[:-1] if self._job.local_rank == 0 else []
        for old in [old for old in older if old.name <= self._restored or is_uploaded(old)][:-1]:
            shutil.rmtree(old, ignore_errors=True)  # SageMaker may leave a marker meanwhile

    def restore(self) -> Progress:
        """Load the newest checkpoint that is complete on every host; without one the training begins.

        Raises ValueError, with the name of a file, tensor or setting, where there are checkpoints but none is complete, or the
        newest is not of this training.
        """
        source = newest(self._folder)
        self._newest = self._restored = source.name if source else ""
        if self._job.local_rank == 0:  # what is not complete: a step's files are written into an empty folder
            for rest in (at for at in self._folder.glob("step-*") if at.name > self._restored):
                shutil.rmtree(rest, ignore_errors=True)
        dist.barrier(group=self._group)
        if source is None:
            return Progress()
        stored = dcp.FileSystemReader(source).read_metadata().state_dict_metadata
        if not isinstance(size := stored.get("record"), TensorStorageMetadata):
            raise ValueError(f"{source} has no record of its run: another version of this script has written it")
        text = torch.empty(size.size, dtype=torch.uint8)
        dcp.load({"record": text}, storage_reader=dcp.FileSystemReader(source))
        record = json.loads(bytes(text.tolist()))
        self._check(source, record, stored)
        loaded = self._weights()
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(source))
        for module, optimizer in self._parts:
            model, state = get_state_dict(module, optimizer, options=BY_NAME)
            names = {name: loaded["model"][name] for name in model}
            kept = {name: loaded["optimizer"].get(name, value) for name, value in state.items()}
            set_state_dict(module, optimizer, model_state_dict=names, optim_state_dict=kept, options=BY_NAME)
        for name, of_it in self._states.items():
            if name in record["states"]:
                of_it.load_state_dict(record["states"][name])
        progress = Progress(record["steps"], record["samples"])
        if self._job.rank == 0:
            changed = [f"{n} {was} -> {self._free[n]}" for n, was in record["free"].items() if self._free.get(n) != was]
            print(f"resumes at step {progress.steps}, sample {progress.samples}", *changed, sep=", ", flush=True)
        return progress

    def _check(self, source: Path, record: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
        """Raise ValueError unless the checkpoint is one of this training."""
        if record["version"] != VERSION:
            raise ValueError(f"{source} must be of version {VERSION} of this script, got version {record['version']}")
        for name, was in record["fixed"].items():
            if name in self._fixed and self._fixed[name] != was:
                raise ValueError(
                    f"{name} must be {was!r} as in {source}, which this run would resume, got {self._fixed[name]!r}: "
                    "resume with that value, or begin with an empty folder of checkpoints"
                )
        for name, value in self._weights()["model"].items():
            found = stored.get(f"model.{name}")
            if not isinstance(found, TensorStorageMetadata) or found.size != value.shape:
                has = f"of {list(found.size)}" if isinstance(found, TensorStorageMetadata) else "none"
                raise ValueError(f"{source} must have model.{name} of {list(value.shape)}, got {has}: of another model")

    def _weights(self) -> dict[str, State]:
        """Weights and optimizer states by the parameters' names. The optimizer's settings are this run's, not a checkpoint's."""
        found: dict[str, State] = {"model": {}, "optimizer": {}}
        for module, optimizer in self._parts:
            model, state = get_state_dict(module, optimizer, options=BY_NAME)
            found["model"] |= model
            found["optimizer"] |= {name: value for name, value in state.items() if not name.startswith("param_groups")}
        return on_the_host(found) if self._on_host else found


def background_save() -> Any:
    """A function like dcp.save that returns once the tensors are copied, those of a GPU to pinned memory."""
    if not hasattr(dcp, "async_save"):  # before PyTorch 2.3, which makes no writer of a folder either
        return lambda states, checkpoint_id, **group: dcp.save(states, dcp.FileSystemWriter(checkpoint_id), **group)
    kept: dict[str, Any] = {}

    def write(states: Any, **where: Any) -> Any:
        with contextlib.suppress(ImportError):  # before PyTorch 2.9, to memory that is not pinned
            from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

            # Its memory is used again, but in PyTorch 2.11, where a stager closes itself after each use.
            if torch.cuda.device_count() and not (kept and kept["async_stager"]._state_dict_stager._deepcopy_dispatch):
                kept["async_stager"] = DefaultStager(StagingOptions(True, False, False, True))
        return dcp.async_save(states, **where, **kept)

    return write


def on_the_host(states: Any) -> Any:
    if isinstance(states, dict):
        return {name: on_the_host(value) for name, value in states.items()}
    return states.cpu() if isinstance(states, Tensor) else states


def newest(folder: Path) -> Path | None:
    """The newest checkpoint that is complete on every host. Raises ValueError where there are some, but none is complete."""
    here = {at.name: missing(at) for at in sorted(folder.glob("step-*"))}
    ranks: list[dict[str, str | None]] = [{}] * dist.get_world_size()
    dist.all_gather_object(ranks, here)
    names = sorted({name for found in ranks for name in found}, reverse=True)
    faults = {}
    for name in names:
        lacks = [found.get(name, f"rank {rank} lacks it") for rank, found in enumerate(ranks)]
        if (fault := next(filter(None, lacks), None)) is None:
            if faults and dist.get_rank() == 0:
                print(f"resumes from {name}, not from what is not complete: {faults}", flush=True)
            return folder / name
        faults[name] = fault
    # A write that was interrupted has left no .metadata.
    if broken := {name: fault for name, fault in faults.items() if ".metadata does not exist" not in fault}:
        cure = "Restore the file, or begin with an empty folder"
        raise ValueError(f"no checkpoint in {folder} is complete: {broken}. {cure}")
    return None


def missing(checkpoint: Path) -> str | None:
    """What a checkpoint lacks; None where all files that its metadata names are in its folder with their full size."""
    if not (checkpoint / ".metadata").is_file():
        return ".metadata does not exist"
    try:
        pieces = dcp.FileSystemReader(checkpoint).read_metadata().storage_data.values()
    except Exception as error:
        return f".metadata cannot be read ({type(error).__name__})"
    ends: dict[str, int] = {}
    for piece in pieces:
        ends[piece.relative_path] = max(ends.get(piece.relative_path, 0), piece.offset + piece.length)
    for name, end in ends.items():
        size = (checkpoint / name).stat().st_size if (checkpoint / name).is_file() else 0
        if size < end:
            return f"{name} has {size} of {end} bytes"
    return None


def is_uploaded(checkpoint: Path) -> bool:
    """Whether S3 has this host's files, by SageMaker's marker of each; True where there is none, as nothing is uploaded.

    aws/sagemaker-xgboost-container waits for the same markers before it removes a file (checkpointing.py).
    """
    names = {file.name for file in checkpoint.iterdir()}
    uploads = any(checkpoint.parent.glob(f"step-*/*{MARKER}*"))
    return not uploads or all(f"{name}{MARKER}ed" in names for name in names if MARKER not in name)
