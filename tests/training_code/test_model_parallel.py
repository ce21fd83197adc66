"""Every layout trains like one process, and what one wrote, others go on from: real ranks over gloo, on this machine's CPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRAINING_CODE = HERE.parents[1] / "training_code"
KIND = TRAINING_CODE / "model_parallel"
SECONDS = 400  # until a launch that would hang fails
ALONE_STEPS, STEPS = 20, 8
COMMON = "--log-every 1 --checkpoint-every 0 --width 32 --heads 8 --hidden 64 --context 16 --batch-size 16 --text-bytes 200000"
TWO, FOUR, EIGHT = (f"--steps {STEPS} --layers {layers}" for layers in (2, 4, 8))  # as few as the stages allow
AS_LONG = "2 layers for as many steps"
RECOMPUTED = "--activation-checkpointing"

ON_FOUR_RANKS = {
    "fsdp": f"{TWO} --data-shard 4",
    "optimizer state alone sharded": f"{TWO} --data-shard 4 --sharded optimizer",
    "hybrid shard": f"{TWO} --data-replicate 2 --data-shard 2",
    "replicas": f"{TWO} --data-replicate 4 --data-shard 1",
    "microbatches without a pipeline": f"{TWO} --data-shard 4 --microbatches 2",
    "parameters in the CPU's memory": f"{TWO} --data-shard 4 --cpu-offload",
    "tensor": f"{TWO} --tensor 4",
    "tensor, checkpointed": f"{TWO} --tensor 4 {RECOMPUTED}",
    "tensor x fsdp": f"{TWO} --tensor 2 --data-shard 2",
    "tensor x fsdp, checkpointed": f"{TWO} --tensor 2 --data-shard 2 {RECOMPUTED} --activation-offloading",
    "GPipe": f"{FOUR} --pipeline 4 --microbatches 4 --schedule GPipe",
    "1F1B": f"{FOUR} --pipeline 4 --microbatches 4 --schedule 1F1B",
    "1F1B cut by hand": f"{FOUR} --pipeline 2 --microbatches 4 --cut 3",
    "pipeline x fsdp": f"{TWO} --pipeline 2 --data-shard 2 --microbatches 4",
    "interleaved": f"{EIGHT} --pipeline 4 --microbatches 4 --schedule Interleaved1F1B",
}
ON_EIGHT_RANKS = {
    "fsdp, checkpointed": f"{TWO} --data-shard 8 {RECOMPUTED}",
    "hybrid shard, checkpointed": f"{TWO} --data-replicate 2 --data-shard 4 {RECOMPUTED}",
    "GPipe x fsdp, checkpointed": f"{TWO} --pipeline 2 --data-shard 4 --microbatches 2 --schedule GPipe {RECOMPUTED}",
    "1F1B x fsdp, checkpointed": f"{TWO} --pipeline 2 --data-shard 4 --microbatches 2 {RECOMPUTED}",
    "interleaved x fsdp, checkpointed": (
        f"{FOUR} --pipeline 2 --data-shard 4 --microbatches 2 --schedule Interleaved1F1B {RECOMPUTED}"
    ),
    "tensor x pipeline x fsdp": f"{TWO} --tensor 2 --pipeline 2 --data-shard 2 --microbatches 2",
    "tensor x pipeline x fsdp, checkpointed": (
        f"{TWO} --tensor 2 --pipeline 2 --data-shard 2 --microbatches 2 --schedule GPipe {RECOMPUTED}"
    ),
}
COMPILED = "--steps 5 --layers 2 --compiler inductor"
ON_TWO_RANKS = {
    "fsdp, compiled": f"{COMPILED} --data-shard 2",
    "tensor, checkpointed, compiled": f"{COMPILED} --tensor 2 {RECOMPUTED}",
}
# Each goes on for five steps from what another layout kept after ten.
TEN = "--steps 10 --layers 4 --checkpoint-every 5"
FIVE_MORE = "--steps 15 --layers 4"
RESUMED = {
    "kept by fsdp": f"{TEN} --data-shard 4",
    "fsdp to tensor x pipeline": f"{FIVE_MORE} --from kept-by-fsdp --tensor 2 --pipeline 2 --microbatches 2",
    "fsdp to hybrid shard": f"{FIVE_MORE} --from kept-by-fsdp --data-replicate 2 --data-shard 2",
    "kept by interleaved": f"{TEN} --pipeline 2 --data-shard 2 --microbatches 2 --schedule Interleaved1F1B",
    "interleaved to fsdp": f"{FIVE_MORE} --from kept-by-interleaved --data-shard 4 {RECOMPUTED}",
    "interleaved to 1F1B": f"{FIVE_MORE} --from kept-by-interleaved --pipeline 4 --microbatches 4",
}


@dataclass(frozen=True)
class Launch:
    """What a launch of several layouts printed."""

    folder: Path

    def printed(self, layout: str, rank: int = 0) -> str:
        return (self.folder / folder_of(layout) / f"rank-{rank}.txt").read_text()

    def losses(self, layout: str) -> dict[int, float]:
        return {
            int(step): float(loss)
            for step, loss in re.findall(r"^step (\d+) loss ([\d.]+) ", self.printed(layout), re.M)
        }


def folder_of(layout: str) -> str:
    return layout.replace(" ", "-")


def environment() -> dict[str, str]:
    paths = os.pathsep.join(map(str, (TRAINING_CODE, KIND, HERE)))
    return {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


def launch(folder: Path, ranks: int, layouts: dict[str, str]) -> Launch:
    pairs = [(folder_of(name), [*COMMON.split(), *arguments.split()]) for name, arguments in layouts.items()]
    ended = subprocess.run(
        [sys.executable, HERE / "parallel_layouts.py", str(ranks), folder, json.dumps(pairs)],
        env=environment() | {"TORCHINDUCTOR_CACHE_DIR": str(folder / "compiler-cache")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    return Launch(folder)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """One process, with as many layers as the layouts have."""
    sizes = {f"{layers} layers": f"--steps {ALONE_STEPS} --layers {layers}" for layers in (2, 4, 8)}
    return launch(tmp_path_factory.mktemp("alone"), 1, sizes | {AS_LONG: TWO})


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return launch(tmp_path_factory.mktemp("two"), 2, ON_TWO_RANKS)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return launch(tmp_path_factory.mktemp("four"), 4, ON_FOUR_RANKS | RESUMED)


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return launch(tmp_path_factory.mktemp("eight"), 8, ON_EIGHT_RANKS)


def farthest(losses: dict[int, float], reference: dict[int, float]) -> float:
    return max(abs(loss - reference[step]) for step, loss in losses.items())


def reference(alone: Launch, arguments: str) -> dict[int, float]:
    """The losses of one process with as many layers."""
    [layers] = re.findall(r"--layers (\d)", arguments)
    return alone.losses(f"{layers} layers")


@pytest.mark.parametrize("layout", ON_FOUR_RANKS)
def test_four_ranks_have_the_losses_of_one_process(alone: Launch, four: Launch, layout: str) -> None:
    assert list(four.losses(layout)) == list(range(1, STEPS + 1))
    assert farthest(four.losses(layout), reference(alone, ON_FOUR_RANKS[layout])) <= 1e-4


@pytest.mark.parametrize("layout", ON_EIGHT_RANKS)
def test_eight_ranks_have_the_losses_of_one_process(alone: Launch, eight: Launch, layout: str) -> None:
    assert list(eight.losses(layout)) == list(range(1, STEPS + 1))
    assert farthest(eight.losses(layout), reference(alone, ON_EIGHT_RANKS[layout])) <= 1e-4


@pytest.mark.parametrize("layout", ON_TWO_RANKS)
def test_compiled_layers_have_the_losses_of_one_process(alone: Launch, two: Launch, layout: str) -> None:
    assert "compiler inductor" in two.printed(layout)
    assert list(two.losses(layout)) == [1, 2, 3, 4, 5]
    assert farthest(two.losses(layout), reference(alone, ON_TWO_RANKS[layout])) <= 1e-4


def test_the_loss_falls(alone: Launch) -> None:
    losses = alone.losses("4 layers")
    assert losses[ALONE_STEPS] < losses[1] - 0.5


def test_each_rank_says_what_it_holds(four: Launch) -> None:
    said = [four.printed("1F1B cut by hand", rank).splitlines()[0] for rank in range(4)]
    assert [re.sub(r"\d+ parameters, \d+ bytes", "", line) for line in said] == [
        "rank 0 on localhost: stage 0 of 2 (layers 0-2), ",
        "rank 1 on localhost: stage 0 of 2 (layers 0-2), ",
        "rank 2 on localhost: stage 1 of 2 (layers 3-3), ",
        "rank 3 on localhost: stage 1 of 2 (layers 3-3), ",
    ]


@pytest.mark.parametrize("layout", [name for name, arguments in RESUMED.items() if "--from" in arguments])
def test_another_layout_goes_on_from_a_checkpoint(alone: Launch, four: Launch, layout: str) -> None:
    assert list(four.losses(layout)) == [11, 12, 13, 14, 15]
    assert farthest(four.losses(layout), reference(alone, RESUMED[layout])) <= 1e-4


@pytest.mark.parametrize(
    ("launched", "layout"),
    [("four", "tensor x fsdp"), ("four", "pipeline x fsdp"), ("eight", "tensor x pipeline x fsdp, checkpointed")],
)
def test_the_model_is_left_as_one_plain_file(
    alone: Launch, launched: str, layout: str, request: pytest.FixtureRequest
) -> None:
    """It is loaded by a process that knows no mesh, and predicts as the one that a single process left."""
    folder = request.getfixturevalue(launched).folder
    files = [
        alone.folder / folder_of(AS_LONG) / "model" / "model.pt",
        folder / folder_of(layout) / "model" / "model.pt",
    ]
    code = (
        "import sys, torch; from exported_model import load\n"
        "one, other = map(load, sys.argv[1:])\n"
        "tokens = torch.arange(16)[None]\n"
        "print((one(tokens) - other(tokens)).abs().max().item())"
    )
    ended = subprocess.run([sys.executable, "-c", code, *files], env=environment(), capture_output=True, text=True)
    assert float(ended.stdout) < 1e-3, ended.stderr
