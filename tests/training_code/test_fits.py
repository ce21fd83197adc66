"""The predicted memory of layouts, against what was measured on real ranks, and what cannot be predicted."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from preloaded import start

ROOT = Path(__file__).parents[2]
TRAINING_CODE = ROOT / "training_code"
SCRIPTS = ROOT / "training_jobs" / "training_jobs" / "torch_scripts"
PATHS = os.pathsep.join(map(str, (TRAINING_CODE, TRAINING_CODE / "model_parallel", SCRIPTS)))
sys.path.insert(0, str(SCRIPTS))
try:
    from fits_search import smallest_layout
finally:
    sys.path.pop(0)  # its other modules' names are those of other tests' modules too
DOCUMENT = (ROOT / "docs" / "memory-by-layout.md").read_text()
MODEL = re.search(r"The model: `(.*)`", DOCUMENT)
MEASURED = {  # KiB of parameters, optimizer state and activations
    layout.strip(): [int(re.sub(r"\(.*\)|,", "", cell)) for cell in cells.split("|")]
    for layout, cells in re.findall(r"^\| ([^|]+) \| (\d.*\|.*\|.*) \|$", DOCUMENT, re.M)
}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512}
LLAMA |= {"num_attention_heads": 8, "num_key_value_heads": 8, "num_hidden_layers": 2, "vocab_size": 1024}
LLAMA |= {"tie_word_embeddings": False}


def fits(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and what it printed."""
    errors = folder / "errors"
    settings = {"PATH": os.environ["PATH"], "PYTHONPATH": PATHS}
    with start([SCRIPTS / "fits.py", *arguments], cwd=folder, env=settings, errors=errors) as program:
        printed, _ = program.communicate()
        return program.wait(), printed + errors.read_text()


def predicted(folder: Path, *arguments: str) -> dict[str, float]:
    code, printed = fits(folder, "--json", *arguments)
    assert code == 0, printed
    return dict(json.loads(printed.splitlines()[0]))


def layouts() -> dict[str, str]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import memory
    finally:
        sys.path.pop(0)
    return memory.LAYOUTS


@pytest.mark.parametrize(
    "layout",
    [pytest.param(layout, marks=pytest.mark.soak) for layout in layouts()],  # four ranks each
)
def test_a_prediction_is_within_3_percent_of_what_four_real_ranks_take(tmp_path: Path, layout: str) -> None:
    assert MODEL is not None
    found = predicted(tmp_path, "--ranks=4", *MODEL[1].split(), *layouts()[layout].split())
    taken = [found[name] / 1024 for name in ("parameters", "optimizer", "activations")]
    assert taken == pytest.approx(MEASURED[layout], rel=0.03)


def test_every_measured_layout_is_compared() -> None:
    assert list(MEASURED) == list(layouts())


SMALL = "--layers 2 --width 64 --heads 8 --hidden 128 --context 64 --vocabulary 1024 --loss-chunk 128"
FSDP = f"{SMALL} --data-shard 4"
PEAKS = {  # eight sequences of each rank in a microbatch
    "FSDP": f"{FSDP} --batch-size 32",
    "FSDP, 4 microbatches": f"{FSDP} --batch-size 128 --microbatches 4",
}
# What gloo and DTensor allocate of their own is a twentieth of the smaller model's.
LARGER = "--layers 4 --width 128 --heads 8 --hidden 352 --context 64 --vocabulary 2048 --loss-chunk 128"
TWO_BY_TWO = f"{LARGER} --data-shard 2 --batch-size 32"
MORE_PEAKS = {
    "FSDP, 16 microbatches": f"{FSDP} --batch-size 512 --microbatches 16",
    "FSDP, 4 microbatches, reduced last": f"{FSDP} --batch-size 128 --microbatches 4 --gradient-sync last",
    "FSDP, all logits": f"{FSDP} --batch-size 32 --loss-chunk 0",
    "FSDP, checkpointed": f"{FSDP} --batch-size 32 --activation-checkpointing",
    "FSDP, optimizer alone, 4 microbatches": f"{FSDP} --batch-size 128 --microbatches 4 --sharded optimizer",
    "FSDP, bf16": f"{FSDP} --batch-size 32 --precision bf16",
    "FSDP, bf16, 4 microbatches": f"{FSDP} --batch-size 128 --microbatches 4 --precision bf16",
    "hybrid shard": f"{TWO_BY_TWO} --data-replicate 2",
    "hybrid shard, 4 microbatches, checkpointed": f"{TWO_BY_TWO} --data-replicate 2 --microbatches 4 --activation-checkpointing",
    "tensor": f"{LARGER} --tensor 4 --batch-size 8",
    "tensor x FSDP": f"{TWO_BY_TWO} --tensor 2",
    "tensor x FSDP, bf16, 2 microbatches": f"{TWO_BY_TWO} --tensor 2 --microbatches 2 --precision bf16",
    "pipeline x FSDP, 4 microbatches": f"{TWO_BY_TWO} --pipeline 2 --microbatches 4",
    "pipeline x FSDP, bf16, 8 microbatches": f"{TWO_BY_TWO} --pipeline 2 --microbatches 8 --precision bf16 --batch-size 64",
    "pipeline x tensor, GPipe": f"{LARGER} --pipeline 2 --tensor 2 --batch-size 16 --microbatches 4 --schedule gpipe",
}
PREDICT = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from fits import predict
print(json.dumps([predict(4, arguments).peak for arguments in json.loads(sys.argv[1])]))
"""


def peaks(folder: Path, layouts: dict[str, str]) -> tuple[dict[str, float], dict[str, float]]:
    """The peaks that four real ranks have measured in these layouts, and those that are predicted."""
    (folder / "predict.py").write_text(PREDICT)
    found, settings = [], {"PATH": os.environ["PATH"], "PYTHONPATH": PATHS}
    arguments = json.dumps([layout.split() for layout in layouts.values()])
    for script, ranks in ((Path(__file__).parent / "peaks.py", 4), (folder / "predict.py", 1)):
        errors = folder / "errors"
        with start([script, arguments], cwd=folder, env=settings, ranks=ranks, errors=errors) as program:
            printed, _ = program.communicate()
            assert program.wait() == 0, errors.read_text()
        found.append(dict(zip(layouts, json.loads(printed.splitlines()[-1]), strict=True)))
    return found[0], found[1]


@pytest.fixture(scope="module")
def two_peaks(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, float], dict[str, float]]:
    return peaks(tmp_path_factory.mktemp("peaks"), PEAKS)


@pytest.mark.soak  # four real ranks
@pytest.mark.parametrize("layout", PEAKS)
def test_a_predicted_peak_is_within_5_percent_of_what_four_real_ranks_allocate(
    two_peaks: tuple[dict[str, float], dict[str, float]], layout: str
) -> None:
    measured, predicted_peaks = two_peaks
    assert predicted_peaks[layout] == pytest.approx(measured[layout], rel=0.05)


@pytest.mark.soak  # four real ranks
def test_four_microbatches_have_the_peak_of_one_and_a_shard_of_the_gradients(
    two_peaks: tuple[dict[str, float], dict[str, float]],
) -> None:
    measured, _ = two_peaks
    assert measured["FSDP"] < measured["FSDP, 4 microbatches"] <= 1.05 * measured["FSDP"]


@pytest.mark.soak
def test_the_peak_of_each_layout_is_predicted_within_5_percent_and_that_of_16_microbatches_is_no_higher(
    tmp_path: Path,
) -> None:
    measured, predicted_peaks = peaks(tmp_path, PEAKS | MORE_PEAKS)
    assert predicted_peaks == {layout: pytest.approx(peak, rel=0.05) for layout, peak in measured.items()}
    assert measured["FSDP, 16 microbatches"] <= 1.05 * measured["FSDP"]
    for more in ("FSDP, 4 microbatches, reduced last", "FSDP, all logits"):
        less = more.removesuffix(", reduced last").removesuffix(", all logits")
        assert measured[more] > 1.05 * measured[less]


def test_a_model_of_transformers_is_predicted_for_more_ranks_than_there_are_processors(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    layout = ("--tensor=8", "--batch-size=64", "--context=64", "--precision=bf16")
    found = predicted(tmp_path, "--ranks=256", f"--model={tmp_path}", *layout)
    weights = 4 * (2 * 1024 * 256 + 2 * (4 * 256 * 256 + 3 * 256 * 512))
    assert found["parameters"] == pytest.approx(weights / 256, rel=0.03)  # norms are not divided by tensor
    assert found["optimizer"] == pytest.approx(2 * found["parameters"], rel=0.03)
    assert found["peak"] > found["parameters"] + found["gradients"] + found["optimizer"]


OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 256)
        self.blocks = nn.ModuleList(nn.Linear(256, 256) for _ in range(8))
        self.last = nn.Linear(256, 16)

    def forward(self, inputs, labels):
        values = self.first(inputs)
        for block in self.blocks:
            values = torch.relu(block(values))
        return nn.functional.cross_entropy(self.last(values), labels)

def build(batch_size):
    assert batch_size == 4
    return Net(), (torch.zeros(batch_size, 64), torch.zeros(batch_size, dtype=torch.long))
"""


def test_a_module_of_ones_own_is_predicted_as_fsdp2_shards_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(OWN)
    found = predicted(tmp_path, "--ranks=16", "--module=model.py:build", "--batch-size=64")
    numbers = 65 * 256 + 8 * 257 * 256 + 257 * 16
    assert found["parameters"] == found["gradients"] == numbers * 4 / 16
    assert found["optimizer"] == pytest.approx(2 * found["parameters"], rel=0.001)  # and a count of steps for each
    assert found["communicated"]["reduce_scatter"] > 0  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["--module=nowhere.py:build"],
            "must be a file and a function in it, like model.py:build, got 'nowhere.py:build'",
        ),
        (["--module=model.py:make"], "must name a function of model.py, like model.py:build, got 'model.py:make'"),
        (["--module=model.py:build", "--layers=rows"], "layers must name a module list, like blocks, got 'rows'"),
        (
            ["--module=model.py:build", "--batch-size=3"],
            "batch_size must be divisible by 2 (data_replicate 1 x data_shard 2 x microbatches 1), got 3",
        ),
    ],
)
def test_a_module_that_cannot_be_predicted_is_an_error_that_says_why(
    tmp_path: Path, words: list[str], error: str
) -> None:
    (tmp_path / "model.py").write_text(OWN.replace("== 4", "> 0"))
    code, printed = fits(tmp_path, "--ranks=2", "--batch-size=2", *words)
    assert code == 1
    assert error in printed


def test_a_layout_that_does_not_fit_ends_with_1_and_says_so(tmp_path: Path) -> None:
    code, printed = fits(tmp_path, "--gpu-memory=0.001", "--layers=2", "--batch-size=1")
    assert code == 1
    assert "does not fit into 0.001 GiB" in printed


def test_degrees_that_the_model_does_not_allow_are_named(tmp_path: Path) -> None:
    code, printed = fits(tmp_path, "--ranks=3", "--tensor=3")
    assert code == 1
    assert "heads must be divisible by tensor, got 8 and 3" in printed


@pytest.mark.soak
def test_the_largest_batch_fits_and_a_larger_one_does_not(tmp_path: Path) -> None:
    layout = ("--layers=2", "--width=64", "--heads=2", "--hidden=64", "--context=64", "--microbatches=2")
    limit = "--gpu-memory=0.004"
    found = predicted(tmp_path, *layout, limit, "--largest-batch")
    assert found["batch_size"] % 2 == 0
    assert predicted(tmp_path, *layout, f"--batch-size={found['batch_size']}")["peak"] == found["peak"]
    assert fits(tmp_path, *layout, limit, f"--batch-size={found['batch_size'] + 2}")[0] == 1


def sizes(ranks: int, layout: list[str]) -> Any:
    """A model of 96 bytes of state and 8 of activations, of which checkpointing leaves 2; its heads do not divide by 3."""
    if layout[:2] == ["--tensor", "3"]:
        raise ValueError("heads must be divisible by tensor, got 8 and 3")
    activations = 2 if "--activation-checkpointing" in layout else 8
    state = 96 / ranks
    return SimpleNamespace(parameters=state / 4, gradients=state / 4, optimizer=state / 2, peak=state + activations)


@pytest.mark.parametrize(
    ("devices", "limit", "machines", "layout"),
    [
        (4, 32, 1, []),
        (4, 26, 1, ["--activation-checkpointing"]),
        (4, 20, 2, []),
        (4, 5, 8, ["--activation-checkpointing"]),
        (3, 11, 4, ["--activation-checkpointing"]),
    ],
)
def test_the_smallest_layout_has_the_fewest_machines_and_recomputes_only_where_it_has_to(
    devices: int, limit: float, machines: int, layout: list[str]
) -> None:
    assert smallest_layout(sizes, devices, limit)[:2] == (machines, layout)


def test_a_model_that_fits_on_no_number_of_machines_is_an_error() -> None:
    with pytest.raises(ValueError, match="gpu_memory must hold a layout on 128 machines"):
        smallest_layout(sizes, 4, 1)


@pytest.mark.soak
def test_the_smallest_layout_fits_where_none_of_one_machine_does(tmp_path: Path) -> None:
    model = ("--layers=2", "--width=64", "--heads=2", "--hidden=64", "--context=64")
    found = predicted(tmp_path, *model, "--ranks=2", "--gpu-memory=0.0007", "--smallest-layout")
    assert found["machines"] > 1
    assert found["peak"] <= 0.0007 * 2**30
    for layout in ((), ("--tensor=2",)):
        smallest = ("--activation-checkpointing", f"--batch-size={1 if layout else 2}")
        assert fits(tmp_path, *model, "--ranks=2", *layout, *smallest, "--gpu-memory=0.0007")[0] == 1
