"""Calls of transformers are warned of that end where a package is missing, which the script does not import itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from training_jobs.lint import Job, lint_folder, refusals
from training_jobs.lint.options import Option, Options

PACKAGES = (
    "accelerate",
    "bitsandbytes",
    "deepspeed",
    "flash_attn",
    "kernels",
    "liger_kernel",
    "mlflow",
    "tensorboard",
    "wandb",
)
LOAD = "transformers.AutoModelForCausalLM.from_pretrained(FOLDER, "
# A call, and the package without which it ends; "" where it does not.
CALLS: list[tuple[str, str]] = [
    ("transformers.TrainingArguments(output_dir='out')", "accelerate"),
    (f"{LOAD}quantization_config=transformers.BitsAndBytesConfig(load_in_4bit=True))", "bitsandbytes"),
    ("transformers.BitsAndBytesConfig(load_in_4bit=False)", ""),
    (
        "transformers.AutoModelForCausalLM.from_pretrained(FOLDER, attn_implementation='flash_attention_2')",
        "flash_attn",
    ),
    (f"{LOAD}attn_implementation='sdpa')", ""),
    (f"{LOAD}device_map='auto')", "accelerate"),
    (f"{LOAD}device_map=None)", ""),
]
# Arguments of TrainingArguments, whose Trainer ends.
ARGUMENTS: list[tuple[str, str]] = [
    ("report_to='wandb'", "wandb"),
    ("report_to=['tensorboard']", "tensorboard"),
    ("report_to='mlflow'", "mlflow"),
    ("report_to='none'", ""),
    ("report_to=[]", ""),
    ("optim='adamw_bnb_8bit'", "bitsandbytes"),
    ("optim='paged_adamw_32bit'", "bitsandbytes"),
    ("optim='lion_8bit'", "bitsandbytes"),
    ("optim='adamw_torch'", ""),
    ("optim='adamw_torch_fused'", ""),
    ("optim='adafactor'", ""),
    ("use_liger_kernel=True", "liger_kernel"),
    ("use_liger_kernel=False", ""),
]
# transformers itself, from which the packages are hidden.
ENDS = """
import importlib.metadata, importlib.util, json, sys
hidden = json.loads(sys.argv[1])
find_spec, version = importlib.util.find_spec, importlib.metadata.version
importlib.util.find_spec = lambda name, *given: None if name.split(".")[0] in hidden else find_spec(name, *given)
def version_of(name):
    if name.replace("-", "_") in hidden:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = version_of
sys.modules.update(dict.fromkeys(hidden))
import torch, transformers
FOLDER = sys.argv[2]
config = transformers.GPT2Config(vocab_size=8, n_positions=8, n_embd=8, n_layer=1, n_head=1)
model = transformers.AutoModelForCausalLM.from_config(config)
model.save_pretrained(FOLDER)
dataset = [{"input_ids": torch.arange(4), "labels": torch.arange(4)}] * 8
def train(**given):
    given = {"report_to": "none", **given}
    arguments = transformers.TrainingArguments(output_dir=FOLDER, use_cpu=True, max_steps=1, **given)
    transformers.Trainer(model, arguments, train_dataset=dataset).train()
for call in json.load(sys.stdin):
    try:
        eval(call)
        print(json.dumps(""), file=sys.stderr)
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"[:200]), file=sys.stderr)
"""


def told(call: str, folder: Path) -> list[str]:
    (folder / "train.py").write_text(f"import transformers\nFOLDER = 'model'\n{call}\n")
    job = Job(absent=frozenset(PACKAGES), entry_point="train.py")
    return [found.reason.partition(", which")[0] for found in lint_folder(folder, job) if found.rule == "import"]


@pytest.mark.parametrize(("call", "package"), CALLS)
def test_a_call_that_needs_a_package_is_a_warning_where_that_is_missing(
    tmp_path: Path, call: str, package: str
) -> None:
    assert [bool(package) and f"needs {package}" in text for text in told(call, tmp_path)] == [True] * bool(package)


@pytest.mark.parametrize(("argument", "package"), ARGUMENTS)
def test_an_argument_that_needs_a_package_is_a_warning_where_that_is_missing(
    tmp_path: Path, argument: str, package: str
) -> None:
    first, *more = told(f"transformers.TrainingArguments(output_dir='out', {argument})", tmp_path)
    assert first == "TrainingArguments needs accelerate"
    assert [f"needs {package}" in text for text in more] == [True] * bool(package)


def test_what_is_there_below_a_condition_or_of_another_library_is_no_warning(tmp_path: Path) -> None:
    text = "import transformers\nif transformers.utils.is_accelerate_available():\n    transformers.Trainer(None)\n"
    (tmp_path / "train.py").write_text(text)
    assert lint_folder(tmp_path, Job(absent=frozenset(PACKAGES), entry_point="train.py")) == []
    (tmp_path / "train.py").write_text("import transformers\ntransformers.TrainingArguments(output_dir='out')\n")
    assert lint_folder(tmp_path, Job(absent=frozenset({"wandb"}), entry_point="train.py")) == []
    (tmp_path / "train.py").write_text(
        f"import transformers\nFOLDER = '.'\n{LOAD}attn_implementation='flash_attention_2')\n"
    )
    assert lint_folder(tmp_path, Job(absent=frozenset({"flash_attn"}), entry_point="train.py")) == []
    (tmp_path / "train.py").write_text("import mine\nmine.TrainingArguments(report_to='wandb')\n")
    (tmp_path / "mine.py").write_text("")
    assert lint_folder(tmp_path, Job(absent=frozenset(PACKAGES), entry_point="train.py")) == []


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"report_to": "wandb"}, ["report_to: be another, or wandb be in requirements.txt, which the job's container lacks"]),
        ({"report_to": "none"}, []),
        ({"use_liger_kernel": "true"}, ["use_liger_kernel: be another, or liger_kernel be in requirements.txt, which the job's "
                                        "container lacks"]),
        ({"optim": "adamw_torch_8bit"}, []),  # which needs torchao
        ({"load_in_4bit": "True"}, []),  # which is none of TrainingArguments
    ],
)  # fmt: skip
def test_a_hyperparameter_that_needs_a_package_is_refused_where_that_is_missing(
    given: dict[str, str], found: list[str]
) -> None:
    takes = [Option((f"--{name}",), 1, "value", False, "str", None, "transformers.TrainingArguments") for name in given]
    versions, classes = {"transformers": "4.57.0"}, ("transformers.TrainingArguments",)
    options = Options("train.py", tuple(takes), False, False, False, classes=classes, versions=versions)
    absent = frozenset({"bitsandbytes", "wandb", "liger_kernel"})
    assert [f"{one.key}: {one.rule}" for one in refusals(options, given, (), True, absent=absent)] == found
    assert [*refusals(options, given, (), True)] == []


@pytest.mark.soak
def test_transformers_ends_where_the_package_is_missing_and_nowhere_else(tmp_path: Path) -> None:
    """What is found to need nothing may end too, at most of the packages that are missing here in any case."""
    calls = [(call, package) for call, package in CALLS if package != "accelerate"]
    calls += [(f"train({argument})", package) for argument, package in ARGUMENTS]
    of_accelerate = [(call, package) for call, package in CALLS if package == "accelerate"]
    for cases, hidden in ((calls, {*PACKAGES} - {"accelerate"}), (of_accelerate, {"accelerate"})):
        program = subprocess.run(
            [sys.executable, "-c", ENDS, json.dumps(sorted(hidden)), str(tmp_path / "model")],
            input=json.dumps([call for call, _ in cases]),
            capture_output=True,
            text=True,
            check=True,
        )
        answers = [json.loads(line) for line in program.stderr.splitlines() if line.startswith('"')]
        wrong = [
            (call, answer)
            for (call, package), answer in zip(cases, answers, strict=True)
            if bool(answer) != bool(package)
        ]
        assert wrong == []
