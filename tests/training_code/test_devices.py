"""Where a rank computes, and what a step copies to a GPU: CUDA is a double here, or the meta device takes its place.

CUDA's fake tensors need a PyTorch that is linked with CUDA. Meta tensors have no values either: what would wait for a GPU, such
as `.item()`, is an error, and so is an operation on tensors of two devices.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from preloaded import start

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common.job import Job
from common.process_group import freeze_objects, process_group, to_device

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
SECOND_RANK = Job.here({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What a rank with a GPU does as it joins the others, in order."""
    done: list[tuple[str, Any]] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: done.append(("device", device.index)))
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda name: done.append(("float32", name)))
    monkeypatch.setattr(torch, "set_num_threads", lambda count: done.append(("threads", count)))
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **_: done.append(("group", backend)))
    with process_group(SECOND_RANK) as device:
        assert device == torch.device("cuda", 1)
    return done


def test_a_rank_takes_its_gpu_before_anything_uses_cuda(joined: list[tuple[str, Any]]) -> None:
    """Else each rank has a context on the first GPU too."""
    assert joined[0] == ("device", 1)


def test_messages_of_ranks_with_gpus_need_no_gpu(joined: list[tuple[str, Any]]) -> None:
    assert joined[-1] == ("group", "cpu:gloo,cuda:nccl")


def test_matrices_of_float32_are_multiplied_in_tf32(joined: list[tuple[str, Any]]) -> None:
    assert ("float32", "high") in joined


def test_a_rank_computes_with_one_thread_beside_the_others_of_its_host(joined: list[tuple[str, Any]]) -> None:
    assert ("threads", 1) in joined


def test_a_full_collection_of_garbage_looks_at_the_loops_own_objects_alone() -> None:
    before = [[] for _ in range(10)]
    freeze_objects()
    try:
        known = {id(one) for one in gc.get_objects()}
        assert not known & {id(one) for one in before}
        assert gc.is_tracked(before[0])
    finally:
        gc.unfreeze()


class Recorded:
    """In place of a tensor: how it is copied."""

    def __init__(self, pinned: bool) -> None:
        self.pinned = pinned

    def is_pinned(self) -> bool:
        return self.pinned

    def pin_memory(self) -> Recorded:
        return Recorded(pinned=True)

    def to(self, device: torch.device, non_blocking: bool = False) -> tuple[bool, str, bool]:
        return self.pinned, str(device), non_blocking


@pytest.mark.parametrize("pinned", [True, False])
def test_a_batch_comes_to_a_gpu_from_pinned_memory_without_waiting(pinned: bool) -> None:
    """A copy from other memory waits for the device, also with non_blocking (PyTorch's tutorial on pin_memory)."""
    tensor: Any = Recorded(pinned)
    assert to_device(tensor, torch.device("cuda", 1)) == (True, "cuda:1", True)


PROGRAM = """
import contextlib, json, sys
import torch, train
from common.job import Job
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("meta")
INDEXING = ("aten::index", "aten::index_select")

class Copies(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.shapes = []
    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        result = function(*arguments, **(named or {}))
        name = function._schema.name
        copied = []
        if name in ("aten::_to_copy", "aten::copy_"):
            copied = [arguments[name == "aten::copy_"]]
        if name in INDEXING:  # with indices on the host, which CUDA copies first
            copied = [index for index in arguments[1] if index is not None]
        self.shapes += [list(tensor.shape) for tensor in copied if tensor.device != result.device]
        return result

torch.autocast = lambda *_, **__: contextlib.nullcontext()  # has no meta device
labels = torch.zeros(4, dtype=torch.long)

def heterogeneous():
    model = train.network().to(DEVICE)
    optimizer, precision = torch.optim.Adam(model.parameters()), train.Precision("fp32", torch.device("cpu"))
    def step():
        images, on_device = (train.to_device(part, DEVICE) for part in (torch.zeros(4, 1, 28, 28), labels))
        return train.step(model, optimizer, precision, images, on_device, train.counted(on_device), 1)
    return step

def images():
    sys.argv += "--depth 26 --width 8 --size 32".split()
    model = train.build(train.config(), DEVICE)
    optimizer, precision = torch.optim.SGD(model.parameters(), 0.1), train.Precision("fp32", torch.device("cpu"))
    batch = {"image": torch.zeros(4, 32, 32, 3, dtype=torch.uint8), "label": labels}
    def step():
        images, labels = train.on_device(batch, DEVICE)
        return train.step(model, optimizer, precision, images, labels, train.counted(labels), 1, 0.1)
    return step

def compiled():
    options = train.config()
    model = train.build(options).to(DEVICE)
    optimizer, precision = torch.optim.AdamW(model.parameters()), train.Precision("fp32", torch.device("cpu"))
    tokens, count, shares = torch.zeros(4, 128, dtype=torch.long), torch.tensor(500), torch.ones((), device=DEVICE)
    def step():
        batch = train.to_device(tokens, DEVICE), train.to_device(count, DEVICE)
        return train.step(model, optimizer, precision, batch, shares, options)
    return step

def data_parallel():
    model = train.network().to(DEVICE)
    optimizer, precision = torch.optim.Adam(model.parameters()), train.Precision("fp32", torch.device("cpu"))
    data, order, job = tuple(tensor.to(DEVICE) for tensor in train.points(None)), train.Order(1000, 8, 0), Job.here({})
    epoch_loss = train.MeanLoss(DEVICE)
    def step():
        batch = train.batch_of(order, 0, job, data)
        loss = train.step((model, lambda: None), optimizer, precision, batch, 1)
        epoch_loss.add(loss, batch[-1])
        return loss
    return step

kind = sys.argv.pop()
step = globals()[kind]()
step()  # the first allocates
def from_numbers(*_, **__):
    raise AssertionError("numbers of Python are copied from memory that is not pinned, for which the step waits")
torch.tensor = torch.as_tensor = from_numbers
with Copies() as copies:
    loss = step()
print(json.dumps([str(loss.device), sorted(copies.shapes)]))
"""


@pytest.mark.parametrize(
    ("folder", "batch"),
    [
        ("heterogeneous", [[4], [4, 1, 28, 28]]),
        ("heterogeneous/images", [[4], [4, 32, 32, 3]]),
        ("compiled", [[], [4, 128]]),
        ("data_parallel", [[8]]),
    ],
)
def test_a_step_copies_its_batch_to_the_device_and_waits_for_nothing(
    folder: str, batch: list[list[int]], tmp_path: Path
) -> None:
    script, errors = tmp_path / "program.py", tmp_path / "errors"
    script.write_text(PROGRAM)
    paths = os.pathsep.join(map(str, (TRAINING_CODE / folder, TRAINING_CODE)))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": paths}
    with start([script, Path(folder).name], cwd=tmp_path, env=environment, errors=errors) as program:
        printed, _ = program.communicate()
        assert program.wait() == 0, errors.read_text()
    assert json.loads(printed.splitlines()[-1]) == ["meta", batch]
