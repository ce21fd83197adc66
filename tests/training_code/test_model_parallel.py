"""Every layout trains like one process, and what one wrote, others go on from: real ranks over gloo, on this machine's CPU."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from preloaded import start

HERE = Path(__file__).parent
TRAINING_CODE = HERE.parents[1] / "training_code"
KIND = TRAINING_CODE / "model_parallel"
ALONE_STEPS, STEPS = 20, 4
COMMON = "--log-every 1 --checkpoint-every 0 --width 32 --heads 8 --hidden 64 --context 16 --batch-size 16 --text-bytes 200000"
TWO, FOUR = (f"--steps {STEPS} --layers {layers}" for layers in (2, 4))  # as few as the stages allow
SCHEDULED = "--clip 0.5 --warm-up 2 --least-rate 0.1 --weight-decay 0.1 --evaluate-every 2"
RISING = f"--warm-up {STEPS + 1}"  # one step longer than what is kept: a schedule that began again would have a fifth of the peak
LONG_TWO, LONG_FOUR, LONG_EIGHT = (f"--steps {2 * STEPS} --layers {layers}" for layers in (2, 4, 8))
EVALUATING = "--evaluate-every 4"
CLIPPED = "2 layers, clipped"
EVALUATED = "2 layers, evaluated"
RISEN = "4 layers, rising rate"
RECOMPUTED = "--activation-checkpointing"

# What several kinds of layout share, each once; `make soak` has the rest of the product.
ON_FOUR_RANKS = {
    "parameters in the CPU's memory": f"{TWO} --data-shard 4 --cpu-offload --microbatches 2",
    "tensor x fsdp, checkpointed": f"{TWO} --tensor 2 --data-shard 2 {RECOMPUTED} --activation-offloading",
    "clipped, tensor x pipeline": f"{TWO} --tensor 2 --pipeline 2 --microbatches 2 {SCHEDULED}",
    "1F1B cut by hand": f"{FOUR} --pipeline 2 --microbatches 4 --cut 3",
}
MORE_ON_FOUR_RANKS = {
    "tensor x fsdp": f"{TWO} --tensor 2 --data-shard 2",
    "optimizer state alone sharded": f"{TWO} --data-shard 4 --sharded optimizer",
    "hybrid shard": f"{TWO} --data-replicate 2 --data-shard 2",
    "fsdp": f"{LONG_TWO} --data-shard 4 {EVALUATING}",
    "replicas": f"{LONG_TWO} --data-replicate 4 --data-shard 1",
    "microbatches without a pipeline": f"{LONG_TWO} --data-shard 4 --microbatches 2",
    "parameters in the CPU's memory, one batch": f"{LONG_TWO} --data-shard 4 --cpu-offload",
    "tensor": f"{LONG_TWO} --tensor 4 {EVALUATING}",
    "tensor, checkpointed": f"{LONG_TWO} --tensor 4 {RECOMPUTED}",
    "GPipe": f"{LONG_FOUR} --pipeline 4 --microbatches 4 --schedule GPipe {EVALUATING}",
    "1F1B": f"{LONG_FOUR} --pipeline 4 --microbatches 4 --schedule 1F1B {EVALUATING}",
    "pipeline x fsdp": f"{TWO} --pipeline 2 --data-shard 2 --microbatches 4",
    "interleaved": f"{LONG_EIGHT} --pipeline 4 --microbatches 4 --schedule Interleaved1F1B {EVALUATING}",
}
# Three kinds at once: every two of them are among those on four ranks.
ON_EIGHT_RANKS = {
    "tensor x pipeline x fsdp, checkpointed": (
        f"{TWO} --tensor 2 --pipeline 2 --data-shard 2 --microbatches 2 --schedule GPipe {RECOMPUTED}"
    ),
    "fsdp, checkpointed": f"{LONG_TWO} --data-shard 8 {RECOMPUTED}",
    "hybrid shard, checkpointed": f"{LONG_TWO} --data-replicate 2 --data-shard 4 {RECOMPUTED}",
    "GPipe x fsdp, checkpointed": f"{LONG_TWO} --pipeline 2 --data-shard 4 --microbatches 2 --schedule GPipe {RECOMPUTED}",
    "1F1B x fsdp, checkpointed": f"{LONG_TWO} --pipeline 2 --data-shard 4 --microbatches 2 {RECOMPUTED}",
    "interleaved x fsdp, checkpointed": (
        f"{LONG_FOUR} --pipeline 2 --data-shard 4 --microbatches 2 --schedule Interleaved1F1B {RECOMPUTED}"
    ),
    "tensor x pipeline x fsdp": f"{LONG_TWO} --tensor 2 --pipeline 2 --data-shard 2 --microbatches 2",
}
COMPILED = f"--steps {STEPS} --layers 2 --compiler inductor"
ON_TWO_RANKS = {"fsdp, compiled": f"{COMPILED} --data-shard 2"}
MORE_ON_TWO_RANKS = {"tensor, checkpointed, compiled": f"{COMPILED} --tensor 2 {RECOMPUTED}"}
# Each goes on for two steps from what another layout kept after four.
KEPT = f"--steps {STEPS} --layers 4 --checkpoint-every 2"
GONE_ON = f"--steps {STEPS + 2} --layers 4"
# An evaluation leaves parameters gathered.
KEPT_BY_FSDP = {"kept by fsdp": f"{KEPT} --data-shard 4 {RISING} --evaluate-every 2"}
KEPT_BY_INTERLEAVED = {
    "kept by interleaved": f"{KEPT} --pipeline 2 --data-shard 2 --microbatches 2 --schedule Interleaved1F1B"
}
RESUMED = {
    "fsdp to tensor x pipeline": f"{GONE_ON} {RISING} --from kept-by-fsdp --tensor 2 --pipeline 2 --microbatches 2",
}
MORE_RESUMED = {
    "interleaved to 1F1B": f"{GONE_ON} --from kept-by-interleaved --pipeline 4 --microbatches 4",
    "fsdp to hybrid shard": f"{GONE_ON} {RISING} --from kept-by-fsdp --data-replicate 2 --data-shard 2",
    "interleaved to fsdp": f"{GONE_ON} --from kept-by-interleaved --data-shard 4 {RECOMPUTED}",
}

LONGER = f"--steps {ALONE_STEPS} --layers 2"
IN_HALF_PRECISION = {
    "tensor x fsdp": f"{LONGER} --tensor 2 --data-shard 2",
    "pipeline x fsdp": f"{LONGER} --pipeline 2 --data-shard 2 --microbatches 2 --evaluate-every 4",
    "tensor x pipeline, clipped": f"{TWO} --tensor 2 --pipeline 2 --microbatches 2 {SCHEDULED}",
    "interleaved": f"--steps {ALONE_STEPS} --layers 4 --pipeline 2 --microbatches 2 --schedule Interleaved1F1B",
}
KEPT_IN_HALF_PRECISION = {
    "kept": f"{KEPT} --data-shard 4 {RISING}",
    "resumed": f"{GONE_ON} {RISING} --from kept --tensor 2 --pipeline 2 --microbatches 2",
}


@dataclass(frozen=True)
class Launch:
    """What a launch of several layouts printed."""

    folder: Path

    def printed(self, layout: str, rank: int = 0) -> str:
        return (self.folder / folder_of(layout) / f"rank-{rank}.txt").read_text()

    def losses(self, layout: str, name: str = "loss") -> dict[int, float]:
        found = re.findall(rf"^step (\d+) .*?\b{name} ([\d.]+) ", self.printed(layout), re.M)
        return {int(step): float(loss) for step, loss in found}


def folder_of(layout: str) -> str:
    return layout.replace(" ", "-")


def environment(folder: Path) -> dict[str, str]:
    paths = os.pathsep.join(map(str, (TRAINING_CODE, KIND, HERE)))
    return {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiler-cache")}


def launch(folder: Path, ranks: int, layouts: dict[str, str], script: Path = HERE / "parallel_layouts.py") -> Launch:
    # One process has the logits of all tokens at once, and several those of a few: 64 of a rank are two chunks.
    common = [*COMMON.split(), "--loss-chunk", "0" if ranks == 1 else "48"]
    pairs = [(folder_of(name), [*common, *arguments.split()]) for name, arguments in layouts.items()]
    command = [script, folder, json.dumps(pairs)]
    with start(command, cwd=folder, env=environment(folder), ranks=ranks) as program:
        printed, _ = program.communicate()
        assert program.wait() == 0, printed
    return Launch(folder)


def with_first_scale(folder: Path, scale: int) -> Path:
    """A script in which the scale of an fp16 loss begins with another value."""
    script = folder / "with_first_scale.py"
    script.write_text(
        f"import loss_scale, parallel_layouts; loss_scale.FIRST = {float(scale)}\n"
        "if __name__ == '__main__': parallel_layouts.main()"
    )
    return script


class Alone(Launch):
    """One process, with as many layers as the layouts have; for as many steps as soak has where that is wanted."""

    def losses(self, layout: str, name: str = "loss") -> dict[int, float]:
        if not (self.folder / folder_of(layout)).exists():
            launch(self.folder, 1, {layout: f"--steps {ALONE_STEPS} --layers {layout[0]}"})
        return super().losses(layout, name)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    folder = tmp_path_factory.mktemp("alone")
    quick = {"2 layers": TWO, "4 layers": GONE_ON, CLIPPED: f"{TWO} {SCHEDULED}", RISEN: f"{GONE_ON} {RISING}"}
    launch(folder, 1, quick | {EVALUATED: f"{TWO} --evaluate-every 1"})
    return Alone(folder)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return launch(tmp_path_factory.mktemp("two"), 2, ON_TWO_RANKS)


@pytest.fixture(scope="module")
def more_two(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return launch(tmp_path_factory.mktemp("two"), 2, MORE_ON_TWO_RANKS)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return launch(tmp_path_factory.mktemp("four"), 4, ON_FOUR_RANKS | KEPT_BY_FSDP | RESUMED)


@pytest.fixture(scope="module")
def more_four(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    layouts = MORE_ON_FOUR_RANKS | KEPT_BY_FSDP | KEPT_BY_INTERLEAVED | MORE_RESUMED
    return launch(tmp_path_factory.mktemp("four"), 4, layouts)


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return launch(tmp_path_factory.mktemp("eight"), 8, ON_EIGHT_RANKS)


def layouts(launched: str, usual: dict[str, str], more: dict[str, str]) -> pytest.MarkDecorator:
    """A test of each layout, in the launch of the usual ones or in that of the others, which soak alone runs."""
    return pytest.mark.parametrize(
        ("launched", "layout", "arguments"),
        [
            *(pytest.param(launched, *one, id=one[0]) for one in usual.items()),
            *(pytest.param(f"more_{launched}", *one, id=one[0], marks=pytest.mark.soak) for one in more.items()),
        ],
        indirect=["launched"],
    )


@pytest.fixture
def launched(request: pytest.FixtureRequest) -> Launch:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def farthest(losses: dict[int, float], reference: dict[int, float]) -> float:
    return max(abs(loss - reference[step]) for step, loss in losses.items())


def steps(arguments: str) -> list[int]:
    [last] = re.findall(r"--steps (\d+)", arguments)
    return list(range(1, int(last) + 1))


def reference(alone: Launch, arguments: str, name: str = "loss") -> dict[int, float]:
    """The losses of one process with as many layers."""
    if SCHEDULED in arguments:
        return alone.losses(CLIPPED, name)
    if RISING in arguments:
        return alone.losses(RISEN, name)
    [layers] = re.findall(r"--layers (\d)", arguments)
    quick = layers in "24" and steps(arguments)[-1] <= (STEPS if layers == "2" else STEPS + 2)
    return alone.losses(f"{layers} layers" if quick else f"{layers} layers, long", name)


@layouts("four", ON_FOUR_RANKS, MORE_ON_FOUR_RANKS)
def test_four_ranks_have_the_norm_of_the_gradients_of_one_process(
    alone: Launch, launched: Launch, layout: str, arguments: str
) -> None:
    """AdamW's steps do not depend on the gradients' scale, so that losses alone would not show a wrong one."""
    norms, expected = launched.losses(layout, "grad_norm"), reference(alone, arguments, "grad_norm")
    assert farthest(norms, expected) <= 1e-5
    assert min(norms.values()) > 0.1


@layouts("four", ON_FOUR_RANKS | KEPT_BY_FSDP, MORE_ON_FOUR_RANKS | KEPT_BY_INTERLEAVED)
def test_four_ranks_have_the_losses_of_one_process(
    alone: Launch, launched: Launch, layout: str, arguments: str
) -> None:
    assert list(launched.losses(layout)) == steps(arguments)
    assert farthest(launched.losses(layout), reference(alone, arguments)) <= 2e-6


@pytest.mark.soak
@pytest.mark.parametrize("layout", ON_EIGHT_RANKS)
def test_eight_ranks_have_the_losses_of_one_process(alone: Launch, eight: Launch, layout: str) -> None:
    arguments = ON_EIGHT_RANKS[layout]
    assert list(eight.losses(layout)) == steps(arguments)
    assert farthest(eight.losses(layout), reference(alone, arguments)) <= 2e-6


@pytest.mark.soak  # each rank compiles; test_compiled_train.py compiles in the suite
@layouts("two", ON_TWO_RANKS, MORE_ON_TWO_RANKS)
def test_compiled_layers_have_the_losses_of_one_process(
    alone: Launch, launched: Launch, layout: str, arguments: str
) -> None:
    assert "compiler inductor" in launched.printed(layout)
    assert list(launched.losses(layout)) == steps(arguments)
    assert farthest(launched.losses(layout), reference(alone, arguments)) <= 2e-6


def test_clipping_and_the_schedule_change_the_losses(alone: Launch) -> None:
    assert abs(alone.losses(CLIPPED)[2] - alone.losses("2 layers")[2]) > 1e-3


def test_ranks_evaluate_to_the_loss_of_one_process(alone: Launch, four: Launch) -> None:
    found, expected = (
        launched.losses(layout, "validation_loss")
        for launched, layout in ((four, "clipped, tensor x pipeline"), (alone, CLIPPED))
    )
    assert list(found) == [2, 4]
    assert farthest(found, expected) <= 2e-6
    assert found[4] < found[2]


@pytest.mark.soak
def test_each_axis_and_schedule_evaluates_to_the_loss_of_one_process(
    more_four: Launch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lengths = (LONG_TWO, LONG_FOUR, LONG_EIGHT)
    alone = launch(tmp_path_factory.mktemp("alone"), 1, {length: f"{length} {EVALUATING}" for length in lengths})
    evaluated = {name: arguments for name, arguments in MORE_ON_FOUR_RANKS.items() if EVALUATING in arguments}
    assert len(evaluated) == 5
    for layout, arguments in evaluated.items():
        [length] = [length for length in lengths if arguments.startswith(length)]
        found = more_four.losses(layout, "validation_loss")
        assert list(found) == [4, 8], layout
        assert farthest(found, alone.losses(length, "validation_loss")) <= 2e-6, layout


def test_an_evaluation_leaves_the_training_as_it_is(alone: Launch) -> None:
    assert alone.losses(EVALUATED) == {step: alone.losses("2 layers")[step] for step in range(1, STEPS + 1)}


def test_each_rank_says_what_it_holds(four: Launch) -> None:
    said = [four.printed("1F1B cut by hand", rank).splitlines()[0] for rank in range(4)]
    assert [re.sub(r"\d+ parameters, \d+ bytes", "", line) for line in said] == [
        "rank 0 on localhost: stage 0 of 2 (layers 0-2), ",
        "rank 1 on localhost: stage 0 of 2 (layers 0-2), ",
        "rank 2 on localhost: stage 1 of 2 (layers 3-3), ",
        "rank 3 on localhost: stage 1 of 2 (layers 3-3), ",
    ]


@pytest.mark.soak
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_layouts_of_two_axes_have_nearly_the_losses_of_one_process_in_fp32(
    alone: Launch, tmp_path: Path, precision: str
) -> None:
    layouts = IN_HALF_PRECISION | KEPT_IN_HALF_PRECISION
    given = {name: f"{arguments} --precision {precision}" for name, arguments in layouts.items()}
    launched = launch(tmp_path, 4, given, with_first_scale(tmp_path, 2**12))  # by which fp16 leaves no step out
    for layout, arguments in layouts.items():
        expected = reference(alone, arguments)
        found = launched.losses(layout)
        assert list(found) == ([STEPS + 1, STEPS + 2] if layout == "resumed" else steps(arguments))
        assert 0 < farthest(found, expected) <= 0.02, layout


@pytest.mark.soak
def test_no_step_is_taken_until_the_scale_is_so_small_that_all_gradients_are_finite(tmp_path: Path) -> None:
    """On two tensor-parallel ranks of each of two stages: with a step on some of them, the losses would be neither's."""
    script = with_first_scale(tmp_path, 2**40)
    layout = "--steps 50 --layers 2 --tensor 2 --pipeline 2 --microbatches 2 --clip 1 --precision fp16"
    launched = launch(tmp_path, 4, {"trained": layout, "untrained": f"{layout} --learning-rate 0"}, script)
    losses, at_first = (list(launched.losses(name).values()) for name in ("trained", "untrained"))
    left_out = [loss == first for loss, first in zip(losses, at_first, strict=True)].index(False) - 1
    assert 5 < left_out < 30
    assert losses[-1] < losses[left_out] - 0.3


@layouts("four", RESUMED, MORE_RESUMED)
def test_another_layout_goes_on_from_a_checkpoint(alone: Launch, launched: Launch, layout: str, arguments: str) -> None:
    assert list(launched.losses(layout)) == [STEPS + 1, STEPS + 2]
    assert farthest(launched.losses(layout), reference(alone, arguments)) <= 2e-6


@pytest.mark.parametrize(
    ("launched", "layout"),
    [
        ("four", "tensor x fsdp, checkpointed"),
        pytest.param("more_four", "pipeline x fsdp", marks=pytest.mark.soak),
        pytest.param("eight", "tensor x pipeline x fsdp, checkpointed", marks=pytest.mark.soak),
    ],
    indirect=["launched"],
)
def test_the_model_is_left_as_one_plain_file(alone: Launch, launched: Launch, layout: str, tmp_path: Path) -> None:
    """It is loaded by a process that knows no mesh, and predicts as the one that a single process left."""
    both = (alone, "2 layers"), (launched, layout)
    files = [at.folder / folder_of(name) / "model" / "model.pt" for at, name in both]
    program = tmp_path / "compared.py"
    program.write_text(
        "import sys, torch; from exported_model import load\n"
        "one, other = map(load, sys.argv[1:])\n"
        "tokens = torch.arange(16)[None]\n"
        "print((one(tokens) - other(tokens)).abs().max().item())"
    )
    with start([program, *files], cwd=tmp_path, env=environment(tmp_path)) as comparing:
        assert float(comparing.communicate()[0]) < 1e-3
