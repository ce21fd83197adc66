"""Classes that scripts make of transformers' Trainer and its callbacks, and gradients that it accumulates; it says so itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import transformers
from distributed_scripts import changed
from pages import by_ranges, part
from planted import found_in, line_of, outcomes_of
from trainer_scripts import CLASSES, FUNCTION, GIVEN, MEAN, ONE, OWN, RANKS, SCRIPT, SUM, TRAINER_PLANTS, VERSION

from training_jobs.facts.accumulation import models_of, wrong_length
from training_jobs.lint import Job, lint_folder
from training_jobs.lint.trainers import TRAINERS

PAGE = Path(__file__).parents[2] / "docs" / "huggingface.md"
OF_CONTAINER = Path(__file__).with_name("requirements-trl.txt")
CONTAINERS = "5.3.0"  # of transformers, which is there
RELEASE = Path(__file__).parents[2] / "release"


def of_version(version: str, job: Job = ONE) -> Job:
    return replace(job, versions={"transformers": version})


def told(folder: Path, text: str, job: Job) -> list[str]:
    (folder / "train.py").write_text(text)
    return [one.reason for one in lint_folder(folder, job) if one.rule in TRAINERS]


def test_the_planted_scripts_are_of_the_version_that_is_installed() -> None:
    assert transformers.__version__ == VERSION


@pytest.mark.parametrize("name", TRAINER_PLANTS)
def test_a_mistake_is_found_on_its_line_and_the_right_script_has_none(name: str, tmp_path: Path) -> None:
    plant = TRAINER_PLANTS[name]
    right, wrong = plant.scripts()
    assert found_in(tmp_path, right, plant.job) == []
    assert found_in(tmp_path, wrong, plant.job) == [(plant.rule, line_of(wrong))]
    assert found_in(tmp_path, wrong, replace(plant.job, versions={})) == []


SUBCLASS = """from transformers import Trainer, TrainerCallback
class Own({of}):
    def {method}:
        pass
trainer = Own(model, args)
"""


OF_TRAINER = [
    ("compute_loss(self, model, inputs, return_outputs=False)", "4.45.2", ""),
    ("compute_loss(self, model, inputs, return_outputs=False)", "4.46.1", "takes no num_items_in_batch"),
    ("compute_loss(self, model, inputs, return_outputs=False, **kwargs)", "5.3.0", ""),
    ("compute_loss(self, *args, **kwargs)", "5.3.0", ""),
    ("compute_loss(self, model, inputs, return_outputs=False, *, num_items_in_batch)", "4.56.2", "prediction_step"),
    ("compute_loss(self, model, inputs, return_outputs=False, *, num_items_in_batch)", "4.57.1", ""),
    ("training_step(self, model, inputs)", "4.45.2", ""),
    ("training_step(self, model, inputs)", "4.49.0", "takes 2 and is given 3 arguments"),
    ("training_step(self, model, inputs, *more)", "4.49.0", ""),
    ("log(self, logs)", "4.46.1", ""),
    ("log(self, logs)", "4.49.0", "takes 1 and is given 2 arguments"),
    ("_get_train_sampler(self)", "4.51.3", ""),
    ("_get_train_sampler(self)", "4.56.2", "takes 0 and is given 1"),
    ("_save_checkpoint(self, model, trial)", "4.36.0", "takes no metrics"),
    ("_save_checkpoint(self, model, trial)", "4.56.2", ""),
    ("_save_checkpoint(self, model, trial, metrics)", "4.56.2", "needs metrics"),
    ("save_model(self, output_dir=None)", "4.15.0", ""),
    ("save_model(self, output_dir=None)", "4.17.0", "takes no _internal_call"),
    ("evaluate(self)", "5.3.0", ""),  # which nothing asks for
    ("create_optimizer(self)", "5.3.0", ""),  # as it calls that of some models
    ("get_train_dataloader(self)", "5.3.0", ""),
    ("helper(self)", "5.3.0", ""),
]
OF_CALLBACK = [
    ("on_log(self, args, state, control, logs=None, **kwargs)", "5.3.0", ""),
    ("on_log(self, args, state, control, logs, **kwargs)", "5.3.0", ""),
    ("on_log(self, args, state, control, logs=None)", "5.3.0", "takes no model, processing_class,"),
    ("on_log(self, args, state, logs=None, **kwargs)", "5.3.0", "is given logs twice"),
    ("on_save(self, args, state, control, model, tokenizer, **kwargs)", "4.45.2", ""),
    ("on_save(self, args, state, control, model, tokenizer, **kwargs)", "4.56.2", "needs tokenizer"),
    ("on_save(self, args, state, control, processing_class, **kwargs)", "4.45.2", "needs processing_class"),
    ("on_epoch_end(self, *args, **kwargs)", "5.3.0", ""),
    ("on_epoch_end(self, args, state, control, others, **kwargs)", "5.3.0", "needs others"),
    ("on_epoch_end(self, args, state, control, others, **kwargs)", "5.24.0", ""),  # which may give more
    ("on_anything(self)", "5.3.0", ""),
]


@pytest.mark.parametrize(
    ("of", "method", "version", "reason"),
    [*(("Trainer", *row) for row in OF_TRAINER), *(("TrainerCallback", *row) for row in OF_CALLBACK)],
)
def test_a_method_must_take_what_the_version_gives_it(
    of: str, method: str, version: str, reason: str, tmp_path: Path
) -> None:
    reasons = told(tmp_path, SUBCLASS.format(of=of, method=method), of_version(version))
    assert [reason in text for text in reasons] == [True] * bool(reason)


@pytest.mark.parametrize(
    "text",
    [
        SUBCLASS.format(of="Other", method="log(self, logs)"),
        SUBCLASS.format(of="Trainer", method="log(self, logs)").replace("Own(model", "Trainer(model"),
        SUBCLASS.format(of="Trainer", method="log(self, logs)").replace("    def", "    @wraps(Trainer.log)\n    def"),
        "import transformers\nif transformers.__version__ < '4.47':\n    "
        + SUBCLASS.format(of="Trainer", method="log(self, logs)").rstrip().replace("\n", "\n    "),
        "import subprocess\nsubprocess.run(['pip', 'install', 'transformers==4.40.0'])\n"
        + SUBCLASS.format(of="Trainer", method="log(self, logs)"),
        SUBCLASS.format(of="Trainer", method="save_model(self, output_dir)") + "args = Arguments(save_strategy='no')\n",
    ],
    ids=[
        "another class",
        "a class that nothing makes",
        "a decorator",
        "another version",
        "an installation",
        "no checkpoint",
    ],
)
def test_what_may_be_called_otherwise_is_not_reported(text: str, tmp_path: Path) -> None:
    assert told(tmp_path, text, of_version("5.3.0")) == []


def test_a_method_that_is_called_in_two_ways_must_take_one_of_them(tmp_path: Path) -> None:
    text = SUBCLASS + "args = TrainingArguments(eval_strategy='steps')\n"
    for method, found in (("evaluate(self, ignore_keys=None)", False), ("evaluate(self)", True)):
        reasons = told(tmp_path, text.format(of="Trainer", method=method), of_version("4.36.0"))
        assert ["which it is given" in reason for reason in reasons] == [True] * found


def test_a_class_of_a_class_is_followed_and_a_method_that_it_calls_itself_is_not(tmp_path: Path) -> None:
    base = SUBCLASS.format(of="Trainer", method="helper(self)").replace("trainer = Own(model, args)\n", "")
    text = base + "class Last(Own):\n    def log(self, logs):\n        pass\nLast(model, args)\n"
    assert len(told(tmp_path, text, of_version("5.3.0"))) == 1
    calls = text.replace("helper(self)", "_maybe_log_save_evaluate(self, *args, **kwargs)")
    assert told(tmp_path, calls, of_version("5.3.0")) == []
    (tmp_path / "base.py").write_text(base)
    other = text[len(base) :]
    assert len(told(tmp_path, f"from base import Own\n{other}", of_version("5.3.0"))) == 1


ITEMS_OF = "num_items_in_batch=None"
LOSS = "    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())"
HANDED = "    return loss(logits, labels, **items)"
STEPS = "    def training_step(self, *args, **kwargs):\n        return super().training_step(*args, **kwargs)"
LLAMA = "LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2))"
AUTO = 'AutoModelFor{}.from_pretrained("model")'
PARSED = (
    "args = TrainingArguments(",
    "args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nold = dict(",
)


def with_model(model: str) -> str:
    name = model.partition("(")[0].partition(".")[0]
    return changed(SCRIPT, (LLAMA, model), ("LlamaForCausalLM\n", f"{name}\n"))


@pytest.mark.parametrize(
    ("model", "changes", "version", "length"),
    [
        (AUTO.format("CausalLM"), (), "4.45.2", ""),
        (AUTO.format("CausalLM"), (), "4.46.1", ""),  # Llama's is right, GPT-2's is not
        ("GPT2LMHeadModel(config)", (), "4.46.1", "too long"),
        (AUTO.format("CausalLM"), (), "4.56.2", ""),
        (AUTO.format("CausalLM"), (), "5.3.0", "too short"),
        (AUTO.format("CausalLM"), (), "5.13.1", ""),
        (AUTO.format("CausalLM"), (("SIZES =", MEAN), OWN), "4.56.2", "too long"),
        (AUTO.format("CausalLM"), (("SIZES =", MEAN), OWN), "5.3.0", ""),
        (AUTO.format("CausalLM"), (("logging_steps=1", "label_smoothing_factor=0.1"),), "4.56.2", "too long"),
        (AUTO.format("CausalLM"), (("logging_steps=1", "label_smoothing_factor=0.1"),), "5.15.0", ""),
        (AUTO.format("CausalLM"), (("logging_steps=1", "label_smoothing_factor=0.0"),), "5.13.1", ""),
        (AUTO.format("SequenceClassification"), (), "4.56.2", ""),  # BERT's is right, Llama's is not
        ("LlamaForSequenceClassification(config)", (), "4.56.2", "too long"),
        (AUTO.format("SequenceClassification"), (), "5.3.0", ""),  # divided twice, but for what it is not divided by
        (AUTO.format("SequenceClassification"), (), "5.13.1", "too long"),
        (AUTO.format("Seq2SeqLM"), (), "5.13.1", "too long"),
        (AUTO.format("QuestionAnswering"), (), "5.3.0", "too short"),
        (AUTO.format("QuestionAnswering"), (), "5.13.1", ""),
        ("Model()", (), "5.13.1", ""),  # the script's own, of which nothing was measured
        ("MambaForCausalLM(config)", (), "5.3.0", ""),
        ("Model()", (("SIZES =", f"{FUNCTION}{SUM}\n\n\nSIZES ="), GIVEN), "5.3.0", "too short"),
        ("Model()", (("SIZES =", f"{FUNCTION}{SUM}\n\n\nSIZES ="), GIVEN), "5.13.1", ""),
        ("MambaForCausalLM(config)", (("SIZES =", f"{FUNCTION}{LOSS}\n\n\nSIZES ="), GIVEN), "5.13.1", "too long"),
        (
            "Model()",
            (("SIZES =", f"{FUNCTION.replace(ITEMS_OF, '**items')}{HANDED}\n\n\nSIZES ="), GIVEN),
            "5.13.1",
            "",
        ),
        (
            LLAMA,
            (("SIZES =", MEAN), OWN, ("logits, labels =", "self.args.accumulated\n        logits, labels =")),
            "5.13.1",
            "",
        ),
        (LLAMA, (("SIZES =", MEAN.replace(ITEMS_OF, "**items")), OWN), "5.13.1", "too long"),
        (
            LLAMA,
            (("SIZES =", MEAN.replace(ITEMS_OF, "**items").replace("]).logits", "], **items).logits")), OWN),
            "5.13.1",
            "",
        ),
        (LLAMA, (("SIZES =", f"{MEAN.removesuffix('SIZES =')}{STEPS}\n\n\nSIZES ="), OWN), "5.13.1", ""),
        (AUTO.format("CausalLM"), (("_steps=4", "_steps=1"),), "5.3.0", ""),
        (AUTO.format("CausalLM"), (("    gradient_accumulation_steps=4,\n", ""),), "5.3.0", ""),
        (AUTO.format("CausalLM"), (("logging_steps=1", 'deepspeed="zero.json"'),), "5.3.0", ""),
        (
            AUTO.format("CausalLM"),
            (("trainer.train()", "trainer.accelerator.gradient_accumulation_steps = 1"),),
            "5.3.0",
            "",
        ),
    ],
)
def test_gradients_are_as_long_as_they_were_measured(
    model: str, changes: Sequence[tuple[str, str]], version: str, length: str, tmp_path: Path
) -> None:
    reasons = told(tmp_path, changed(with_model(model), *changes), of_version(version))
    assert [f"makes a gradient 4 times {length} with transformers {version}" in text for text in reasons] == [
        True
    ] * bool(length)


@pytest.mark.parametrize(
    ("given", "arguments", "steps"),
    [
        ("gradient_accumulation_steps=4", {"gradient_accumulation_steps": "8"}, "4"),
        ("gradient_accumulation_steps=options.accum", {"accum": "8"}, "8"),
        ("gradient_accumulation_steps=int(options['accum'])", {"accum": "8"}, "8"),
        ("gradient_accumulation_steps=options.accum", {}, ""),
        ("gradient_accumulation_steps=options.accum", {"accum": None}, ""),  # an execution decides
        ("gradient_accumulation_steps=options.accum", {"accum": "1"}, ""),
        ("seed=1", {"gradient_accumulation_steps": "8"}, ""),
    ],
)
def test_accumulated_steps_are_those_of_the_call_or_of_the_option_that_it_reads(
    given: str, arguments: dict[str, str | None], steps: str, tmp_path: Path
) -> None:
    text = changed(SCRIPT, ("gradient_accumulation_steps=4", given))
    reasons = told(tmp_path, text, replace(of_version("5.3.0"), arguments=arguments))
    assert [f"gradient_accumulation_steps={steps} makes a gradient {steps} times" in one for one in reasons] == [
        True
    ] * bool(steps)


def test_a_default_of_argparse_and_an_option_of_hf_argument_parser_are_known(tmp_path: Path) -> None:
    default = 'parser.add_argument("--accum", type=int, default=2)\nsamples ='
    text = changed(SCRIPT, ("_steps=4", "_steps=options.accum"), ("samples =", default))
    [reason] = told(tmp_path, text, of_version("5.3.0"))
    assert "2 times too short" in reason
    parsed = changed(SCRIPT, PARSED, ("gradient_accumulation_steps=4", "seed=1"))
    job = replace(of_version("5.3.0"), arguments={"gradient_accumulation_steps": '"16"'})
    [reason] = told(tmp_path, parsed, job)
    assert "16 times too short" in reason
    assert told(tmp_path, parsed, of_version("5.3.0")) == []


@pytest.mark.parametrize("name", ["SFT", "DPO", "GRPO", "Reward"])
def test_the_trainers_of_trl_accumulate_as_those_of_transformers(name: str, tmp_path: Path) -> None:
    text = f"from trl import {name}Config, {name}Trainer\nargs = {name}Config(gradient_accumulation_steps=4)\n"
    text += f"{name}Trainer(model='small', args=args, train_dataset=samples).train()\n"
    [reason] = told(tmp_path, text, of_version("5.3.0"))
    assert f"4 times too short with transformers 5.3.0 for trl.{name}Trainer" in reason
    for version in ("4.46.1", "5.13.1"):
        assert told(tmp_path, text, of_version(version)) == []
    own = text.replace("Trainer(model=", "Trainer(label_smoothing=0, model=").replace(f"\n{name}Trainer", "\nOwn")
    own = own.replace("args =", f"class Own({name}Trainer):\n    def helper(self):\n        pass\nargs =")
    assert told(tmp_path, own, of_version("5.3.0")) == [reason]


def test_a_trainer_by_its_module_is_the_same(tmp_path: Path) -> None:
    text = changed(SCRIPT, ("import Trainer, TrainerCallback, TrainingArguments", "import TrainingArguments"))
    module = f"from transformers.trainer import Trainer\nfrom transformers import TrainerCallback\n{text}"
    assert len(told(tmp_path, module, of_version("5.3.0"))) == 1
    own = changed(module, ("SIZES =", MEAN), OWN)
    assert len(told(tmp_path, own, of_version("5.13.1"))) == 1


ITEMS = TRAINER_PLANTS["the items of all processes"].scripts()[1]


@pytest.mark.parametrize(
    ("change", "job", "found"),
    [
        (("use_cpu=True", "use_cpu=True"), of_version("4.56.2", RANKS), True),
        (("use_cpu=True", "use_cpu=True"), of_version("4.49.0", RANKS), False),  # each counts its own there
        (("use_cpu=True", "use_cpu=True"), ONE, False),
        (("use_cpu=True", "use_cpu=True"), replace(ONE, processes_per_host=None), True),
        (("use_cpu=True", "average_tokens_across_devices=False"), RANKS, False),
        (("use_cpu=True", "average_tokens_across_devices=True"), RANKS, True),
        (("/ num_items_in_batch  # HERE", "/ num_items_in_batch * self.args.world_size"), RANKS, False),
    ],
)
def test_the_items_of_all_processes_are_those_of_versions_that_count_them(
    change: tuple[str, str], job: Job, found: bool, tmp_path: Path
) -> None:
    reasons = told(tmp_path, changed(ITEMS, change), job)
    assert ["num_items_in_batch counts those of all processes" in text for text in reasons] == [True] * found


def test_a_loss_of_another_file_is_found_there_and_one_of_another_divisor_is_not(tmp_path: Path) -> None:
    start, end = ITEMS.index("class Own"), ITEMS.index("SIZES =")
    own = f"import torch\nfrom transformers import Trainer\n{ITEMS[start:end]}"
    (tmp_path / "losses.py").write_text(own)
    (tmp_path / "train.py").write_text("from losses import Own\n" + ITEMS[:start] + ITEMS[end:])
    [found] = lint_folder(tmp_path, RANKS)
    assert (found.path, found.rule, found.line) == ("losses.py", "items-of-all", line_of(own))
    for other in ("/ labels.numel()", "/ 2", "* num_items_in_batch"):
        reasons = told(tmp_path, changed(ITEMS, ("/ num_items_in_batch  # HERE", other)), RANKS)
        assert not any("counts" in text for text in reasons)
    handed = "return super().compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)"
    text = changed(ITEMS, ("        logits, labels = ", f"        {handed}\n        logits, labels = "))
    assert "counts" in told(tmp_path, text, RANKS)[0]
    text = text.replace(" / num_items_in_batch", "")
    (tmp_path / "losses.py").unlink()
    assert told(tmp_path, text, RANKS) == []


def test_the_text_of_an_error_that_says_what_to_install_installs_nothing(tmp_path: Path) -> None:
    asks = 'require_version("datasets>=1.8.0", "To fix: pip install -r requirements.txt")\nsamples ='
    job = of_version("5.3.0")
    assert len(told(tmp_path, changed(SCRIPT, ("samples =", asks)), job)) == 1
    for says in ('raise ImportError("pip install this")', 'logger.warning("use pip")', 'assert torch, "pip it"'):
        assert len(told(tmp_path, changed(SCRIPT, ("samples =", f"{says}\nsamples =")), job)) == 1
    for does in (
        'os.system("pip install this")',
        'print_and_run("pip install this")',
        'command = "pip install this"',
        "import pip",
    ):
        assert told(tmp_path, changed(SCRIPT, ("samples =", f"{does}\nsamples =")), job) == []


def test_what_was_not_measured_has_no_length() -> None:
    assert models_of("AutoModelForMaskedLM") == ["BertForMaskedLM", "DistilBertForMaskedLM"]
    assert models_of("MambaForCausalLM") == []
    assert wrong_length("LlamaForCausalLM", "model", "5.3.0") == "too short"
    assert (
        wrong_length("MambaForCausalLM", "model", "5.3.0") == wrong_length("LlamaForCausalLM", "model", "9.0.0") == ""
    )
    assert {wrong_length(name, "model", "4.45.2") for name in models_of("")} == {""}


WAYS = {
    "label_smoothing_factor": "`label_smoothing_factor`",
    "compute_loss": "a `compute_loss` that returns a batch's mean",
    "compute_loss_func": "a `compute_loss_func` that does",
    "num_items_in_batch": "one that divides the sum by `num_items_in_batch`",
}
SIGNS = {"": "", "too long": "N times", "too short": "1/N"}


def test_the_page_has_how_long_the_gradients_of_each_version_are() -> None:
    table = json.loads(files("training_jobs.facts").joinpath("accumulation.json").read_text())
    heads = {head: f"`{head}`" for head in table["heads"]}

    def cell(name: str, way: str, version: str) -> str:
        found = {
            wrong_length(model, way, version)
            for model in table["heads"].get(name, models_of(""))
            if way == "model" or not model.endswith("QuestionAnswering")
        }
        wrong = found - {""}
        return " or ".join(SIGNS[one] for one in sorted(wrong)) + (", for some" if len(found) > 1 else "") or "right"

    def cells(version: str) -> list[str]:
        return [cell(head, "model", version) for head in heads] + [cell("", way, version) for way in WAYS]

    ranges, columns = by_ranges(table["versions"], cells)
    rows = [f"| the loss is of | {' | '.join(ranges)} |", "|---" * (1 + len(columns)) + "|"]
    for number, name in enumerate([*heads.values(), *WAYS.values()]):
        rows.append(f"| {name} | {' | '.join(one[number] for one in columns)} |")
    assert part(PAGE, "accumulation", "\n".join(rows)) == "\n".join(rows)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    return outcomes_of("run_trainer_scripts.py")


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name, plant in TRAINER_PLANTS.items() if plant.rule == "override"])
def test_the_trainer_ends_with_a_type_error_where_it_calls_what_a_script_overrides(
    name: str, outcomes: dict[str, Any]
) -> None:
    [right], [wrong] = outcomes[name].values()
    assert len(right["norms"]) == 1
    assert "TypeError" in wrong["error"]


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name, plant in TRAINER_PLANTS.items() if plant.rule != "override"])
def test_gradients_are_those_of_the_whole_batch_or_a_multiple(name: str, outcomes: dict[str, Any]) -> None:
    of_classes = CLASSES[0] in TRAINER_PLANTS[name].also
    [whole] = outcomes["whole, of classes" if of_classes else "whole"]
    for ran in outcomes[name]["right"]:
        assert ran["norms"] == pytest.approx(whole["norms"])
    times = 0.5 if TRAINER_PLANTS[name].rule == "items-of-all" else 4
    for ran in outcomes[name]["wrong"]:
        assert ran["norms"][0] / whole["norms"][0] == pytest.approx(times)


@pytest.mark.soak
@pytest.mark.parametrize("version", [VERSION, CONTAINERS])
def test_the_table_has_what_the_installed_version_does_and_that_of_a_container(
    version: str, programs_of: Callable[[Path], Path]
) -> None:
    python = sys.executable if version == VERSION else programs_of(OF_CONTAINER) / "python"
    command = [str(python), str(RELEASE / "measure_accumulation.py")]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    lengths = json.loads(ran.stdout.splitlines()[-1])["lengths"]
    assert {*lengths} == {*models_of("")}
    found = {
        (name, way): {1.0: "", 4.0: "too long", 0.25: "too short"}[round(length, 2)]
        for name, of_ways in lengths.items()
        for way, length in of_ways.items()
    }
    assert found == {(name, way): wrong_length(name, way, version) for name, way in found}


@pytest.mark.soak
@pytest.mark.parametrize(("version", "length"), [(VERSION, 1), (CONTAINERS, 0.25)])
def test_trls_trainers_make_gradients_as_long_as_the_table_has_them(
    version: str, length: float, programs_of: Callable[[Path], Path]
) -> None:
    python = sys.executable if version == VERSION else programs_of(OF_CONTAINER) / "python"
    command = [str(python), str(Path(__file__).with_name("run_trl.py"))]
    variables = {**os.environ, "PYTHONPATH": str(RELEASE)}
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=variables)
    lengths = json.loads(ran.stderr.splitlines()[-1])
    assert lengths == pytest.approx(dict.fromkeys(("SFT", "DPO", "GRPO", "Reward"), length), rel=0.01)
