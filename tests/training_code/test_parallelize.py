"""A step on one of 64 or 512 ranks, in PyTorch's fake process group: its collectives, groups of parameters, copies and waits."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from preloaded import start

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
CONTEXT, VOCABULARY = 64, 512
PROGRAM = """
import dataclasses, json, math, sys
import torch, torch.distributed as dist, train
from common.job import Job
from parallelize import Offloaded
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

class Calls(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.gathered, self.reduced, self.read, self.collectives = [], 0, 0, []
    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if any(kind is DTensor for kind in types):
            return NotImplemented
        result = function(*arguments, **(named or {}))
        name = str(function)
        if name.split(".")[0] in ("c10d", "_c10d_functional") and "wait" not in name and "barrier" not in name:
            self.collectives.append([name, result.numel() if isinstance(result, torch.Tensor) else 0])
        if "all_gather_into_tensor" in name or "allgather" in name:
            self.gathered.append(result.numel() if isinstance(result, torch.Tensor) else 0)
        self.reduced += "reduce_scatter" in name
        self.read += "_local_scalar_dense" in name
        return result

rank, ranks = map(int, sys.argv[1:3])
dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
job = dataclasses.replace(Job.here({}), rank=rank, ranks=ranks)

built = []
class Built(train.Transformer):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        built.extend(parameter.device.type for parameter in self.parameters())
train.Transformer = Built

def training_of(arguments):
    sizes = "--layers 4 --width 64 --heads 8 --hidden 128 --context 64 --vocabulary 512 --batch-size 64".split()
    options = train.config([*sizes, *arguments.split()])
    return train.Training(options, train.degrees_of(options, job), torch.device("cpu"))

def step(training):
    tokens = torch.zeros(4 * training.degrees.microbatches, 64, dtype=torch.long)
    train.step(training, tokens, tokens)  # the first allocates
    with Calls() as calls:
        train.step(training, tokens, tokens)
    return calls

if sys.argv[3:]:
    print(json.dumps(step(training_of(" ".join(sys.argv[3:]))).collectives))
    sys.exit()

divided = training_of("--tensor 8 --data-shard 8 --microbatches 2")
calls = step(divided)
[model] = divided.stage_modules.values()
data_parallel, reduced_last = (
    step(training_of(f"--data-shard 64 --microbatches 2 --batch-size 512 --gradient-sync {sync}")) for sync in ("each", "last")
)
hybrid = step(training_of("--data-replicate 8 --data-shard 8 --microbatches 2 --batch-size 512"))
found = {
    "largest gathered": max(calls.gathered),
    "values read": calls.read,
    "built on": sorted(set(built)),
    "reduced": [data_parallel.reduced, reduced_last.reduced, hybrid.reduced],
    "all reduced": sum("allreduce" in name for name, _ in hybrid.collectives),
    "gathered": len(data_parallel.gathered),
    "other collectives": [name for name, _ in data_parallel.collectives if "gather" not in name and "scatter" not in name],
    "sharded apart": [name for name, part in model.named_modules() if isinstance(part, FSDPModule)],
    "shard": train.local_size(model)[0],
    "parameters": sum(parameter.numel() for parameter in model.parameters()),
}
with torch.no_grad():
    next(model.parameters()).fill_(float("nan"))
taken = divided.optimizers[0].state_dict()["state"][0]["step"].item()
try:
    step(divided)
except RuntimeError as error:
    found["not finite"] = [str(error), divided.optimizers[0].state_dict()["state"][0]["step"].item() - taken]
cut = training_of("--pipeline 4 --microbatches 4 --data-shard 16")
found["resharded"] = [
    part._get_fsdp_state()._fsdp_param_group.post_forward_mesh_info is not None
    for stage in cut.stage_modules.values() for part in stage.layers.values()
]

from model import Block, Config, rotations
sizes = Config()
layer = Offloaded(Block(sizes), pin_memory=False)
storages = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
moved = []
to_cpu = torch.Tensor.cpu
torch.Tensor.cpu = lambda tensor: (moved.append(tensor), to_cpu(tensor))[1]
out = layer(torch.randn(2, 128, 128, requires_grad=True), rotations(sizes))
torch.Tensor.cpu = to_cpu
out.sum().backward()
of_weights = [tensor.nbytes for tensor in moved if tensor.untyped_storage().data_ptr() in storages]
from common.optimization import sync_gradients
from torch.nn.parallel import DistributedDataParallel
synced = []
def hook(state, bucket):
    synced.append(bucket.buffer().numel())
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
replica = DistributedDataParallel(torch.nn.Linear(4, 4))
replica.register_comm_hook(None, hook)
for microbatch in range(3):
    sync_gradients(replica, microbatch == 2)
    replica(torch.ones(2, 4)).sum().backward()
found["synced by DDP"] = synced

found["moved"] = {"weights": sum(of_weights), "others": sum(tensor.nbytes for tensor in moved) - sum(of_weights)}
print(json.dumps(found))
"""


def run(folder: Path, rank: int, ranks: int, *layout: str) -> Any:
    script, errors = folder / "program.py", folder / "errors"
    script.write_text(PROGRAM)
    paths = os.pathsep.join(map(str, (TRAINING_CODE, TRAINING_CODE / "model_parallel")))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": paths}
    with start([script, rank, ranks, *layout], cwd=folder, env=environment, errors=errors) as program:
        printed, _ = program.communicate()
        assert program.wait() == 0, errors.read_text()
    return json.loads(printed.splitlines()[-1])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return dict(run(tmp_path_factory.mktemp("fake"), 0, 64))


@pytest.mark.soak  # 64 ranks
def test_tensor_parallel_ranks_never_gather_the_logits(found: dict[str, Any]) -> None:
    """Of the four sequences of a microbatch: the loss is computed on shards of the vocabulary."""
    assert found["largest gathered"] < 4 * CONTEXT * VOCABULARY


def test_embedding_and_head_are_gathered_apart_from_the_layers(found: dict[str, Any]) -> None:
    apart = ["", "embed", "layers.0", "layers.1", "layers.2", "layers.3", "norm", "head"]
    assert found["sharded apart"] == apart


def test_a_pipeline_keeps_gathered_parameters_for_its_next_microbatch(found: dict[str, Any]) -> None:
    assert found["resharded"] == [False]


def test_the_host_reads_no_value_of_the_device_in_a_step(found: dict[str, Any]) -> None:
    assert found["values read"] == 0


def test_a_rank_allocates_its_shard_of_the_parameters_alone(found: dict[str, Any]) -> None:
    """The whole model is built on the meta device, which has no memory."""
    assert found["built on"] == ["meta"]
    assert found["shard"] == pytest.approx(found["parameters"] / 64, rel=0.05)


def test_a_loss_that_is_not_finite_ends_the_training_before_the_weights_are_updated(found: dict[str, Any]) -> None:
    assert found["not finite"] == ["the loss is not finite, so that the weights are not updated", 0]


def test_offloading_leaves_the_weights_on_the_device(found: dict[str, Any]) -> None:
    assert found["moved"]["weights"] == 0
    assert found["moved"]["others"] > 0


def test_gradients_are_reduced_in_each_microbatch_or_if_wanted_in_the_last(found: dict[str, Any]) -> None:
    """Once for each group of parameters: four layers, the embedding, and norm with head."""
    assert found["reduced"] == [2 * 6, 6, 2 * 6]


def test_replicas_reduce_among_themselves_in_the_last_microbatch_alone(found: dict[str, Any]) -> None:
    """The six groups, and the number of targets."""
    assert found["all reduced"] == 6 + 1


def test_the_embedding_is_gathered_for_the_forward_only(found: dict[str, Any]) -> None:
    """In each of two microbatches: six groups in the forward, and the four layers again in the backward.

    A look-up's gradient needs the indices alone, as PyTorch's `FSDPModule.set_unshard_in_backward` says; the head stays gathered.
    """
    assert found["gathered"] == 2 * (6 + 4)


def test_a_step_has_no_collectives_but_those_of_parameters_gradients_their_norm_and_the_number_of_targets(
    found: dict[str, Any],
) -> None:
    kinds = [name for name in found["other collectives"] if "wrap" not in name]
    assert kinds == ["c10d.allreduce_.default", "_c10d_functional.all_reduce.default"]


def test_distributed_data_parallel_reduces_in_the_last_microbatch_only(found: dict[str, Any]) -> None:
    """Once, the weight and the bias in one bucket."""
    assert found["synced by DDP"] == [20]


@pytest.mark.soak  # 64 ranks
@pytest.mark.parametrize(
    ("ranks", "layout"),
    [
        (64, "--tensor 8 --data-replicate 2 --data-shard 4"),
        (512, "--tensor 8 --data-replicate 8 --data-shard 8 --batch-size 256"),
    ],
)
def test_ranks_have_the_same_collectives_in_the_same_order(tmp_path: Path, ranks: int, layout: str) -> None:
    """Ranks whose order differs wait for each other without end."""
    first, last = (run(tmp_path, rank, ranks, *layout.split(), "--clip", "1") for rank in (0, ranks - 1))
    assert {name.partition(".")[0] for name, _ in first} == {"c10d", "_c10d_functional"}
    assert first == last
