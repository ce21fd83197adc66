"""A file is refused where DeepSpeed, or transformers' Trainer, ends at it: as recorded, and in the soak as they say now."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from training_jobs.lint.deepspeed_file import deepspeed_refusals
from training_jobs.lint.options import Option, Options
from training_jobs.lint.script import Job

HERE = Path(__file__).parent
Case = tuple[str, int, dict[str, Any]]
DRAWN, SOAK = 120, 3000
VERSION = "0.18.9"
ZERO = {"stage": 3, "overlap_comm": True, "stage3_prefetch_bucket_size": "auto", "offload_optimizer": {"device": "cpu"}}
AUTO = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
NAMED: dict[str, Case] = {
    "all by auto": (json.dumps({"zero_optimization": ZERO, "bf16": {"enabled": "auto"}, **AUTO}), 8, {"bf16": True}),
    "a comma too many": ('{"zero_optimization": {"stage": 3,}, "train_batch_size": 8}', 1, {}),
    "no object": ("[1]", 1, {}),
    "a key with a typo": (json.dumps({"zero_optimization": {"stage": 3, "stage3_prefetch_bucket": 1}, **AUTO}), 1, {}),
    "a key of offload_param in offload_optimizer": (
        json.dumps({"zero_optimization": {"stage": 2, "offload_optimizer": {"max_in_cpu": 1}}, **AUTO}), 1, {},
    ),
    "a stage beyond": (json.dumps({"zero_optimization": {"stage": 4}, **AUTO}), 1, {}),
    "a device beyond": (json.dumps({"zero_optimization": {"stage": 3, "offload_param": {"device": "disk"}}, **AUTO}), 1, {}),
    "a bucket in words": (json.dumps({"zero_optimization": {"stage": 3, "reduce_bucket_size": "5e8"}, **AUTO}), 1, {}),
    "a bucket as a float": ('{"zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8}, "train_batch_size": "auto"}', 1, {}),
    "half a bucket": (json.dumps({"zero_optimization": {"stage": 3, "reduce_bucket_size": 1.5}, **AUTO}), 1, {}),
    "both precisions": (
        json.dumps({"fp16": {"enabled": True}, "bf16": {"enabled": True}, **AUTO}), 1, {"fp16": True, "bf16": True},
    ),
    "a batch of other processes": (json.dumps({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8}), 6, {}),
    "a batch of these processes": (json.dumps({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8}), 8, {}),
    "a batch by auto of others": (json.dumps({**AUTO, "train_batch_size": 32}), 8, {}),
    "steps that differ": (json.dumps({**AUTO, "gradient_accumulation_steps": 4}), 1, {"gradient_accumulation_steps": 2}),
    "clipping that differs": (json.dumps({**AUTO, "gradient_clipping": 0.5}), 1, {}),
    "a rate that differs": (json.dumps({**AUTO, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}), 1, {}),
    "a rate that is the same": (
        json.dumps({**AUTO, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}), 1, {"learning_rate": 1e-4},
    ),
    "bf16 in the file alone": (json.dumps({**AUTO, "bf16": {"enabled": True}}), 1, {}),
    "fp16 in arguments alone": (json.dumps({**AUTO, "fp16": {"enabled": False}}), 1, {"fp16": True}),
    "fp16 in the file for evaluations": (json.dumps({**AUTO, "fp16": {"enabled": True}}), 1, {"fp16_full_eval": True}),
    "a batch that is found": (
        json.dumps({**AUTO, "train_micro_batch_size_per_gpu": 4}), 1, {"auto_find_batch_size": True},
    ),
    "no batch": (json.dumps({"train_batch_size": 0}), 1, {}),
}  # fmt: skip


def drawn(number: int) -> Case:
    """A file of keys and values that people write, and some that they should not."""
    rng = random.Random(number)
    some = rng.choice
    zero: dict[str, Any] = {"stage": some([0, 1, 2, 3, 3, 3, 4, "3"])}
    for key, values in {
        "overlap_comm": [True, False, "true", 1],
        "contiguous_gradients": [True, "auto"],
        "reduce_bucket_size": ["auto", 5e8, 500000000, "5e8", "500000000", 0.5],
        "sub_group_size": [1e9, 1000000000],
        "stage3_max_live_parameters": [1e9, "auto"],
        "stage3_gather_16bit_weights_on_model_save": [True, False, "auto"],
        "stage3_prefetch_buket_size": ["auto"],
        "zero_hpz_partition_size": [8],
        "offload_param": [{"device": "cpu", "pin_memory": True}, {"device": "none"}, {"device": "gpu"}],
        "offload_optimizer": [{"device": "cpu"}, {"device": "nvme", "nvme_path": "/tmp"}, {"devices": "cpu"}],
    }.items():
        if rng.random() < 0.25:
            zero[key] = some(values)
    found: dict[str, Any] = {"zero_optimization": zero}
    for key, values in {
        "train_batch_size": ["auto", "auto", 16, 64, 0],
        "train_micro_batch_size_per_gpu": ["auto", "auto", 8, 4],
        "gradient_accumulation_steps": ["auto", "auto", 1, 2],
        "gradient_clipping": ["auto", 1.0, 0.5],
        "bf16": [{"enabled": "auto"}, {"enabled": True}, {"enabled": False}],
        "fp16": [{"enabled": "auto"}, {"enabled": False}, {"enabled": True, "loss_scale": 0}],
        "optimizer": [
            {"type": "AdamW", "params": {"lr": some(["auto", 5e-5, 1e-4]), "weight_decay": some(["auto", 0.0])}}
        ],
        "scheduler": [{"type": "WarmupLR", "params": {"warmup_max_lr": some(["auto", 5e-5])}}],
        "wall_clock_breakdown": [False],
        "steps_per_print": [10],
    }.items():
        if rng.random() < 0.4:
            found[key] = some(values)
    found.setdefault("train_batch_size", "auto")
    given: dict[str, Any] = {}
    for key, values in {
        "bf16": [True],
        "fp16": [True, False],
        "learning_rate": [1e-4, 5e-5],
        "gradient_accumulation_steps": [1, 2],
        "per_device_train_batch_size": [4, 8],
        "max_grad_norm": [0.5],
    }.items():
        if rng.random() < 0.25:
            given[key] = some(values)
    return json.dumps(found), some([1, 2, 8]), given


def cases(numbers: range) -> list[Case]:
    return [*NAMED.values(), *map(drawn, numbers)]


def told(folder: Path, text: str, world: int, given: Mapping[str, Any]) -> list[str]:
    """What is said of the file ``zero.json`` of a script of TrainingArguments."""
    (folder / "zero.json").write_text(text)
    texts = {"deepspeed": "zero.json", **{key: json.dumps(value) for key, value in given.items()}}
    option = Option(("--deepspeed",), 1, "value", False, "str", None, "transformers.TrainingArguments")
    classes, versions = ("transformers.TrainingArguments",), {"transformers": "5.23.0"}
    options = Options("train.py", (option,), False, False, False, classes=classes, versions=versions)
    return [
        refusal.rule
        for refusal in deepspeed_refusals(texts, folder, world, Job(versions={"deepspeed": VERSION}), options)
    ]


def recorded() -> list[list[Any]]:
    answers: list[list[Any]] = json.loads((HERE / "deepspeed_answers.json").read_text())
    return answers


def test_the_recorded_answers_are_of_these_cases() -> None:
    assert [(text, world, given) for text, world, given, _ in recorded()] == cases(range(DRAWN))
    assert sum(not error for *_, error in recorded()) > DRAWN / 5


def test_files_are_refused_at_which_deepspeed_or_trainer_ended_and_no_others(tmp_path: Path) -> None:
    wrong = [(case, error) for *case, error in recorded() if bool(told(tmp_path, *case)) != bool(error)]
    assert wrong == []


@pytest.mark.soak
def test_many_drawn_files_are_refused_at_which_deepspeed_or_trainer_ends(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(packages),
    ]
    needed = [f"deepspeed=={VERSION}", "hjson", "py-cpuinfo", "msgpack", "einops", "ninja"]
    subprocess.run([*install, *needed], check=True, env={**os.environ, "DS_BUILD_OPS": "0"})
    given = cases(range(DRAWN, SOAK))
    program = subprocess.run(
        [sys.executable, str(HERE / "deepspeed_answers.py")],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(packages)},
    )
    answers = json.loads(program.stdout)
    assert [(case, error) for *case, error in answers if bool(told(tmp_path, *case)) != bool(error)] == []


@pytest.mark.parametrize(
    ("name", "job", "found"),
    [
        ("zero.json", Job(), []),
        ("./zero.json", Job(), []),
        ("/opt/ml/code/zero.json", Job(), []),
        ("/opt/ml/input/data/config/zero.json", Job(), []),
        ("zreo.json", Job(), ["deepspeed: name a file of code's folder, like 'zero.json', got 'zreo.json'"]),
        ("zero.json", Job(absent=frozenset({"deepspeed"})),
         ["deepspeed: be beside deepspeed in requirements.txt, which the container lacks, like deepspeed in requirements.txt, "
          "got 'zero.json'"]),
        ("zero.json", Job(modules=frozenset({"torch", "deepspeed"})), []),
    ],
)  # fmt: skip
def test_a_file_or_a_package_that_is_not_there_is_found(tmp_path: Path, name: str, job: Job, found: list[str]) -> None:
    (tmp_path / "zero.json").write_text(json.dumps(AUTO))
    refusals = deepspeed_refusals({"deepspeed": name}, tmp_path, None, job)
    assert [f"{one.key}: {one.rule}, like {one.example}, got {one.got}" for one in refusals] == found


def test_what_a_trl_class_has_by_default_is_not_held_against_the_file(tmp_path: Path) -> None:
    (tmp_path / "zero.json").write_text(json.dumps({**AUTO, "optimizer": {"type": "AdamW", "params": {"lr": 2e-5}}}))
    classes, versions = ("trl.SFTConfig",), {"trl": "0.28.0", "transformers": "5.0.0"}
    options = Options("train.py", (), False, False, False, classes=classes, versions=versions)
    assert [*deepspeed_refusals({"deepspeed": "zero.json"}, tmp_path, 1, Job(), options)] == []
    given = {"deepspeed": "zero.json", "learning_rate": "1e-4"}
    [refusal] = deepspeed_refusals(given, tmp_path, 1, Job(), options)
    assert refusal.got == "zero.json with 2e-05 with learning_rate=0.0001"
