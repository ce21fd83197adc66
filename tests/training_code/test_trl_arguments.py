"""Scripts of Hugging Face's trl, accelerate and datasets beside the libraries: TrlParser with its files, and the classes."""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import importlib
import inspect
import io
import random
import sys
import types
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest
import transformers
import trl

from training_jobs.facts.libraries import LIBRARIES, arguments_of, names_of_others
from training_jobs.lint import Job, ignored_keys, lint, options_of, refusals
from training_jobs.lint.dataclass_options import field_type
from training_jobs.lint.script import Script

VERSIONS = {"trl": trl.__version__, "transformers": transformers.__version__}
SCRIPT = """
\"\"\"Fine-tunes a model: pip install trl\"\"\"
from dataclasses import dataclass, field
from typing import Optional
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser

@dataclass
class DataArguments:
    path: str = field(metadata={"help": "where the text is"})
    rows: Optional[int] = None

parser = TrlParser((DataArguments, SFTConfig, ModelConfig))
parsed = parser.parse_args_and_config()
"""


def runs(text: str, folder: Path, argv: Sequence[str]) -> bool:
    """Whether the real parser takes the arguments."""
    try:
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()):
            patch.setattr(sys, "argv", ["train.py", *argv])
            patch.setitem(sys.modules, "train", module := types.ModuleType("train"))
            patch.chdir(folder)
            for kind in (trl.SFTConfig, trl.ModelConfig):  # they ask for devices, and for values that go together
                patch.setattr(kind, "__post_init__", lambda self: None)
            exec(compile(ast.parse(text), "train.py", "exec", dont_inherit=True), vars(module))
    except (SystemExit, ValueError, argparse.ArgumentError):
        return False
    return True


def refused(text: str, folder: Path, given: dict[str, str], *, pairs: bool = True) -> list[str]:
    found = options_of(Script("train.py", text), VERSIONS)
    assert found is not None
    return [f"{one.key}: {one.rule}, got {one.got}" for one in refusals(found, given, (), pairs, folder)]


KEYS = {
    "path": "data",
    "rows": "3",
    "learning_rate": "2.0e-5",
    "max_length": "128",
    "max_seq_length": "128",
    "evaluation_strategy": "'no'",
    "use_peft": "true",
    "model_name_or_path": "small",
    "lora_target_modules": "[q, v]",
    "torch_dtype": "auto",
    "per-device-batch": "1",
    "dtype": "auto",
    "packing": "false",
}


@pytest.mark.parametrize("seed", range(120))
def test_files_and_hyperparameters_drawn_at_random_are_refused_as_trl_refuses_them(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    in_file = draw.sample([*KEYS], draw.randint(0, 4))
    lines = ["# a recipe", "env:", "  WANDB_MODE: offline", *(f"{key}: {KEYS[key]}" for key in in_file)]
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "sft.yaml").write_text("\n".join(draw.choice([lines, ["---", *lines]])) + "\n")
    names = draw.sample(
        ["path", "rows", "learning_rate", "max_length", "max_seq_length", "nothing"], draw.randint(0, 3)
    )
    given = {key: KEYS.get(key, "1") for key in names} | ({"config": "recipes/sft.yaml"} if draw.random() < 0.8 else {})
    argv = [word for key, text in given.items() for word in (f"--{key}", text)]
    told = refused(SCRIPT, tmp_path, given)
    assert bool(told) is not runs(SCRIPT, tmp_path, argv), (told, argv, lines)


def test_a_parser_without_a_name_is_read_as_one_with_a_name(tmp_path: Path) -> None:
    text = SCRIPT.replace("parser = TrlParser", "parsed = TrlParser").replace(")\nparsed = parser", ")")
    assert "ModelConfig)).parse_args_and_config()" in text
    for keys in ("path: data\n", "path: data\nmax_seq_length: 128\n"):
        (tmp_path / "sft.yaml").write_text(keys)
        told = refused(text, tmp_path, {"config": "sft.yaml"})
        assert bool(told) is not runs(text, tmp_path, ["--config", "sft.yaml"])


def test_a_key_of_a_file_that_a_version_no_longer_has_is_named_with_its_line_and_its_new_name(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text("path: data\nmax_seq_length: 128\n")
    [told] = refused(SCRIPT, tmp_path, {"config": "/opt/ml/code/sft.yaml"})
    assert told == (
        "config: name a file whose keys are options of the script, since TrlParser ends it at others, like 'max_seq_length', got "
        f"/opt/ml/code/sft.yaml:2, none of train.py, nor of SFTConfig of trl {trl.__version__}, "
        "which versions 0.9 to 0.19 take, and now it is max_length of SFTConfig"
    )


def test_of_a_file_that_is_not_in_the_folder_nothing_is_said_nor_of_what_is_required(tmp_path: Path) -> None:
    assert refused(SCRIPT, tmp_path, {"config": "/opt/ml/input/data/config/args.yaml"}) == []
    assert [told.partition(",")[0] for told in refused(SCRIPT, tmp_path, {})] == [": have 'path'"]


@pytest.mark.parametrize("line", ["{path: data}", "<<: *base", "path data", "- path", '"path": data'])
def test_of_a_file_that_is_more_than_plain_keys_nothing_is_said(tmp_path: Path, line: str) -> None:
    (tmp_path / "sft.yaml").write_text(f"max_seq_length: 1\n{line}\n")
    told = refused(SCRIPT, tmp_path, {"config": "sft.yaml"})
    assert (told == []) is (line != "- path")


def ignored(text: str, folder: Path, **versions: str) -> list[tuple[str, str, str]]:
    found = options_of(Script("train.py", text), {**VERSIONS, **versions})
    assert found is not None
    return [*ignored_keys(found, {"config": "sft.yaml"}, folder)]


# By hand, 200 drawn files beside the real TrlParser of 0.12, 0.14, 0.17 and 0.23: no difference.
@pytest.mark.parametrize(
    ("version", "ignores"), [("0.12.2", False), ("0.13.0", True), ("0.18.2", True), ("0.19.1", False)]
)
def test_versions_of_trl_that_ignore_keys_of_a_file_are_told_apart(tmp_path: Path, version: str, ignores: bool) -> None:
    (tmp_path / "sft.yaml").write_text("path: data\nlearning_rat: 1.0\n")
    found = ignored(SCRIPT, tmp_path, trl=version, transformers="4.48.3")
    assert found == ([("'learning_rat' of sft.yaml:2", "", "'learning_rate'")] if ignores else [])


def test_keys_that_a_script_asks_to_ignore_are_told_and_those_that_it_keeps_are_not(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text("path: data\nlearning_rat: 1.0\n")
    calls = ("fail_with_unknown_args=False", "return_remaining_strings=True", "")
    texts = [SCRIPT.replace("parse_args_and_config()", f"parse_args_and_config({call})") for call in calls]
    assert [len(ignored(text, tmp_path)) for text in texts] == [1, 0, 0]


@pytest.mark.parametrize("call", ["fail_with_unknown_args=False", "return_remaining_strings=True"])
def test_keys_of_a_file_that_a_script_may_leave_are_not_refused(tmp_path: Path, call: str) -> None:
    text = SCRIPT.replace("parse_args_and_config()", f"parse_args_and_config({call})")
    (tmp_path / "sft.yaml").write_text("path: data\nmax_seq_length: 128\n")
    assert refused(text, tmp_path, {"config": "sft.yaml"}) == []
    assert runs(text, tmp_path, ["--config", "sft.yaml"])


def test_config_by_an_equals_sign_is_refused_as_trl_refuses_it(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text("path: data\n")
    [told] = refused(SCRIPT, tmp_path, {"config": "sft.yaml"}, pairs=False)
    assert told.startswith("config: be an argument of its own after --config")
    assert runs(SCRIPT, tmp_path, ["--config", "sft.yaml"])
    assert not runs(SCRIPT, tmp_path, ["--config=sft.yaml"])


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT.replace("SFTConfig, ModelConfig))", "SFTConfig, ModelConfig, Others))"),
        SCRIPT.replace("parse_args_and_config()", "parse_args_and_config(args=['--path', 'x'])"),
        SCRIPT.replace("ModelConfig, ScriptArguments, SFTConfig", "ModelConfig").replace(
            "from trl import", "from trl.experimental.gkd import SFTConfig\nfrom trl import"
        ),
        SCRIPT + "\nsubprocess.run(['pip', 'install', 'trl==0.9'])\n",
    ],
)
def test_of_a_script_whose_options_are_not_certain_nothing_is_said(text: str) -> None:
    assert options_of(Script("train.py", text), VERSIONS) is None


def test_of_versions_that_are_not_known_nothing_is_said() -> None:
    one = Script("train.py", SCRIPT)
    for versions in ({}, {"trl": "0.23.0"}, {"transformers": "4.56.2"}, {"trl": "9.0", "transformers": "4.56.2"}):
        assert options_of(one, versions) is None


CLASSES = [
    "SFTConfig",
    "DPOConfig",
    "GRPOConfig",
    "KTOConfig",
    "RewardConfig",
    "RLOOConfig",
    "ModelConfig",
    "ScriptArguments",
]
CLASSES += ["SFTTrainer", "DPOTrainer", "GRPOTrainer", "KTOTrainer", "RewardTrainer", "RLOOTrainer"]


@pytest.mark.parametrize("name", [*(f"trl.{name}" for name in CLASSES), "accelerate.Accelerator"])
def test_the_table_of_arguments_is_that_of_the_library(name: str) -> None:
    library, _, own = name.partition(".")
    module = importlib.import_module(library)
    made = getattr(module, own)
    known = arguments_of(name, {**VERSIONS, library: module.__version__})
    assert known is not None
    if not dataclasses.is_dataclass(made):
        assert known.keys() == inspect.signature(made).parameters.keys()
        return
    fields = {field.name: field for field in dataclasses.fields(made) if field.init}
    # HfArgumentParser changes the types of fields, which their annotations keep.
    annotations = {name: it for one in reversed(made.__mro__) for name, it in inspect.get_annotations(one).items()}
    assert known.keys() == fields.keys()
    for argument, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        default = str(field.default) if field.default is True or field.default is None else ""
        assert known[argument].default == ("required" if required else default), argument
        kind = annotations[argument]
        shown = kind.__name__ if isinstance(kind, type) and not isinstance(kind, types.GenericAlias) else str(kind)
        assert known[argument].type == field_type(ast.Constant(shown)), argument


@pytest.mark.parametrize("library", ["transformers", "trl", "accelerate", "datasets"])
def test_a_library_lacks_each_name_that_is_said_to_be_of_other_versions(library: str) -> None:
    module = importlib.import_module(library)
    oldest = {"transformers": "4.4", "trl": "0.7", "accelerate": "0.19", "datasets": "1.6"}[library]
    assert [name for name in names_of_others(library, module.__version__) if hasattr(module, name)] == []
    later = names_of_others(library, oldest)
    assert later
    if library != "transformers":  # of which the names of inner modules count as its own
        assert {name for name in later if name not in names_of_others(library, module.__version__)} <= {*dir(module)}
    assert not names_of_others(library, "99.0")


CALLS = """
from trl import SFTConfig, SFTTrainer, DataCollatorForCompletionOnlyLM
from trl.trainer.sft_trainer import SFTTrainer as Other
from transformers import Mxfp4Config
from peft import LoraConfig
from datasets import load_dataset, load_metric
trainer = SFTTrainer(model, dataset_text_field="text", max_seq_length=128, tokenizer=tokenizer)
config = SFTConfig(output_dir="x", max_seq_length=128, evaluation_strategy="no")
lora = LoraConfig(r=8, use_everything=True)
"""


def found(**versions: str) -> list[str]:
    mistakes = lint([Script("train.py", CALLS)], Job(versions=versions))
    rules = ("training-arguments", "removed")
    return [f"{one.line}: {one.reason.split(':')[0]}" for one in mistakes if one.rule in rules]


def test_what_the_libraries_of_a_container_do_not_have_is_found() -> None:
    renamed = "and now it is max_length of SFTConfig"
    assert found(trl="0.28.0", transformers="5.3.0", peft="0.18.1", datasets="4.5.0") == [
        "2: trl 0.28.0 has no DataCollatorForCompletionOnlyLM, which 0.19 had last",
        "6: datasets 4.5.0 has no load_metric, which 2.21 had last",
        "7: SFTTrainer of trl 0.28.0 takes no dataset_text_field, which versions 0.7 to 0.12 take, and now it is of SFTConfig",
        f"7: SFTTrainer of trl 0.28.0 takes no max_seq_length, which versions 0.7 to 0.12 take, {renamed}",
        "7: SFTTrainer of trl 0.28.0 takes no tokenizer, which versions 0.7 to 0.15 take, and now it is processing_class",
        "8: SFTConfig of trl 0.28.0 takes no evaluation_strategy, which versions 4.4 to 4.50 take, and now it is eval_strategy",
        f"8: SFTConfig of trl 0.28.0 takes no max_seq_length, which versions 0.9 to 0.19 take, {renamed}",
        "9: LoraConfig of peft 0.18.1 takes no use_everything, nor does another version",
    ]
    assert found(trl="0.11.4", transformers="4.46.1", peft="0.13.2", datasets="2.18.0") == [
        "4: transformers 4.46.1 has no Mxfp4Config, which 4.55 has first",
        "9: LoraConfig of peft 0.13.2 takes no use_everything, nor does another version",
    ]
    assert found() == []


def test_what_a_script_is_told_is_what_trl_raises() -> None:
    for name, argument in (
        ("SFTTrainer", "max_seq_length"),
        ("SFTTrainer", "tokenizer"),
        ("SFTConfig", "max_seq_length"),
    ):
        with pytest.raises(TypeError, match=argument):
            getattr(trl, name)(**{argument: 1})
    for name in ("DataCollatorForCompletionOnlyLM", "PPOv2Trainer"):
        assert name in names_of_others("trl", trl.__version__)
        with pytest.raises(ImportError):
            exec(f"from trl import {name}")


def test_each_library_has_its_table() -> None:
    assert set(LIBRARIES) == {"transformers", "trl", "peft", "accelerate", "datasets"}


IN_YAML = {
    "eval_strategy": [
        "no",
        '"no"',
        "'no'",
        "No",
        "off",
        "steps  # each 500",
        "epoch",
        "epochs",
        '"steps"',
        "false",
        "1",
    ],
    "save_strategy": ["no", '"no"', "steps", "epoch", "best", "yes"],
    "lr_scheduler_type": ["cosine", "'linear'", "cosine_decay", "constant_with_warmup", "true"],
    "optim": ["adamw_torch_fused", "adamw_hf", "'paged_adamw'", "sgd"],
    "bf16": ["true", "false", "yes", "on", '"true"', "'False'"],
    "fp16": ["true", "false", "no"],
    "tf32": ["true", "false"],
    "use_cpu": ["true", "yes", "false"],
    "load_best_model_at_end": ["true", "false"],
}


@pytest.mark.parametrize("seed", range(80))
def test_values_of_a_file_drawn_at_random_are_refused_where_the_class_ends_at_them(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    given = {name: draw.choice(IN_YAML[name]) for name in draw.sample([*IN_YAML], draw.randint(1, 4))}
    over = {name: draw.choice(["no", "epoch", "sgd"]) for name in given if draw.random() < 0.15 and name != "tf32"}
    lines = ["path: data", f"output_dir: {tmp_path}", *(f"{name}: {text}" for name, text in given.items())]
    (tmp_path / "sft.yaml").write_text("\n".join(lines) + "\n")
    argv = ["--config", "sft.yaml", *(word for name, text in over.items() for word in (f"--{name}", text))]
    text = SCRIPT.replace("SFTConfig, ModelConfig)", "SFTConfig)").replace("ModelConfig, Script", "Script")
    try:
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            patch.setattr(sys, "argv", ["train.py", *argv])
            patch.setitem(sys.modules, "train", module := types.ModuleType("train"))
            patch.chdir(tmp_path)
            exec(compile(ast.parse(text), "train.py", "exec", dont_inherit=True), vars(module))
        ends = ""
    except (SystemExit, ValueError, KeyError, TypeError) as error:
        ends = repr(error)
    found = options_of(Script("train.py", text), VERSIONS)
    assert found is not None
    told = [*refusals(found, {"config": "sft.yaml", **over}, (), True, tmp_path, "cpu")]
    assert bool(told) is bool(ends), (lines, argv, ends, told)


@pytest.mark.parametrize(
    ("given", "told"), [("", 1), (", fp16=False", 1), (", fp16=True", 0), (", fp16=half", 0), (", bf16=False", 0)]
)
def test_a_call_that_leaves_trls_precision_as_it_is_is_told_on_a_cpu(given: str, told: int) -> None:
    script = Script("train.py", f"from trl import SFTConfig\nSFTConfig('model'{given})\n")
    assert len(lint([script], Job(versions=VERSIONS, device="cpu"))) == told
    assert lint([script], Job(versions=VERSIONS)) == []


def test_a_hyperparameter_comes_before_the_file_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text("path: data\neval_strategy: 'no'\n")
    [told] = refused(SCRIPT, tmp_path, {"config": "sft.yaml", "eval_strategy": "each"})
    assert told.startswith("eval_strategy: be one of 'epoch', 'no', 'steps'")


def test_a_no_of_yaml_without_quotes_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text("path: data\neval_strategy: no\n")
    [told] = refused(SCRIPT, tmp_path, {"config": "sft.yaml"})
    assert told == (
        "config: name a file whose eval_strategy is right: it must be one of 'epoch', 'no', 'steps', got sft.yaml:2 with False"
    )
