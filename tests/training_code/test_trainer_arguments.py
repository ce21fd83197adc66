"""Scripts of Hugging Face's Trainer beside the library: the parser of its dataclasses, and the arguments of its classes."""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import inspect
import io
import random
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest
import transformers

from training_jobs.adopt.from_script import read_script
from training_jobs.facts.libraries import arguments_of, arguments_of_others
from training_jobs.lint import Job, lint, options_of, refusals
from training_jobs.lint.dataclass_options import field_type
from training_jobs.lint.script import Script
from training_jobs.lint.trainer_values import Device

VERSION = transformers.__version__
VERSIONS = {"transformers": VERSION}
SCRIPT = """
import sys
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, List, Literal, Optional, Union
import transformers
from transformers import {imported}

class Kind(Enum):
    NEW = "new"
    OLD = "old"

@dataclass
class DataArguments:
{fields}

parser = {parser}({classes})
if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
    parsed = parser.parse_json_file(json_file=sys.argv[1])
else:
    parsed = parser.parse_args_into_dataclasses()
"""
FIELDS = [
    "path: str = 'text'",
    "path: str",
    "max_length: int = field(default=128, metadata={'help': 'tokens'})",
    "max_length: Optional[int] = field(default=None, metadata={'help': 'tokens', 'aliases': ['--length', '-l']})",
    "learning_rate: float = 0.1",
    "rate: 'Optional[float]' = None",
    "shuffle: bool = True",
    "stream: bool",
    "stream: bool = field(default=False)",
    "pack: Optional[bool] = None",
    "pack: Optional[bool] = field(default=True)",
    "sizes: List[int] = field(default_factory=list)",
    "names: list[str] = field(default_factory=lambda: ['a'])",
    "names: list[str]",
    "mode: Literal['fast', 'slow'] = 'fast'",
    "mode: Literal['fast', 'slow']",
    "size: Literal[1, 2] = 1",
    "kind: Kind = Kind.NEW",
    "either: Union[str, None] = None",
    "either: int | None = None",
    "either: Union[int, str] = 1",
    "color: str = field(default='red', metadata={'choices': ['red', 'blue']})",
    "count: int = field(default=0, metadata={'nargs': 2})",
    "seen: ClassVar[int] = 0",
    "inner: int = field(init=False, default=3)",
    "x: int = 3",
]
VALUES = ["1", "0.5", "-2", "3.0", "text", "-text", "", "True", "False", "yes", "maybe", "fast", "red", "new", "[1, 2]"]


PARSER = "HfArgumentParser"


def script(fields: Sequence[str] = (), imported: str = PARSER, classes: str = "DataArguments") -> Script:
    body = "\n".join(f"    {line}" for line in fields) or "    pass"
    text = SCRIPT.replace("{fields}", body).replace("{imported}", imported).replace("{classes}", classes)
    return Script("train.py", text.replace("{parser}", PARSER))


def runs(one: Script, argv: Sequence[str]) -> bool:
    """Whether the real parser takes the arguments."""
    module = types.ModuleType("train")
    try:
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()):
            patch.setattr(sys, "argv", ["train.py", *argv])
            patch.setitem(sys.modules, "train", module)
            # It asks for devices and for other libraries.
            patch.setattr(transformers.TrainingArguments, "__post_init__", lambda self: None)
            exec(compile(one.tree, "train.py", "exec", dont_inherit=True), vars(module))
    except (SystemExit, ValueError, argparse.ArgumentError):
        return False
    return True


def refused(one: Script, given: dict[str, str], flags: Sequence[str] = (), version: str = VERSION) -> list[str]:
    found = options_of(one, {"transformers": version})
    assert found is not None
    return [f"{refusal.key}: {refusal.rule}, got {refusal.got}" for refusal in refusals(found, given, flags, True)]


@pytest.mark.parametrize(
    "seed", [*range(120), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(120, 300))]
)
def test_dataclasses_and_hyperparameters_drawn_at_random_are_refused_as_the_real_parser_refuses_them(seed: int) -> None:
    draw = random.Random(seed)
    by_name = {line.partition(":")[0]: line for line in draw.sample(FIELDS, draw.randint(1, 8))}
    # Python wants fields without a default first.
    one = script(sorted(by_name.values(), key=lambda line: " = " in line))
    found = options_of(one, VERSIONS)
    assert found is not None
    keys = sorted(
        {name.lstrip("-") for option in found.options for name in option.names if name[:2] == "--" or len(name) == 2}
    )
    needed = {option.key for option in found.options if option.required and draw.random() < 0.9}
    others = draw.sample(keys, draw.randint(0, min(3, len(keys))))
    odd = draw.sample(["max", "unknown", "seen", "inner"], draw.random() < 0.15)
    suits = {"int": "3", "float": "0.5", "string_to_bool": "True"}
    given = {
        key: draw.choice(VALUES)
        if draw.random() < 0.2
        else next((suits.get(option.type, str((option.choices or ["text"])[0])) for option in found.of(key)), "text")
        for key in (*needed, *others, *odd)
    }
    flags = [key for key in given if draw.random() < 0.1]
    argv = [
        word
        for key, text in given.items()
        for word in ("--"[: min(len(key), 2)] + key, *([] if key in flags else [text]))
    ]
    told = refused(one, given, flags)
    if told:
        assert not runs(one, argv), (told, argv)
    elif not any(option.takes == "unknown" or option.type == "" for key in given for option in found.of(key)):
        assert runs(one, argv), argv


@pytest.mark.parametrize(
    ("field", "argv"),
    [
        ("size: int = field(default=3, metadata={'aliases': ['--length', '-l']})", ["--length", "4"]),
        ("size: int = field(default=3, metadata={'aliases': '-l'})", ["-l", "4"]),
        ("shuffle: bool = True", ["--no_shuffle"]),
        ("shuffle: bool = False", ["--no_shuffle"]),
        ("shuffle: Optional[bool] = None", ["--no_shuffle"]),
        ("batch_size: int = 3", ["--batch-size", "4"]),
    ],
)
def test_other_names_of_a_field_are_those_of_the_parser(field: str, argv: list[str]) -> None:
    one, key = script([field]), argv[0].lstrip("-")
    told = refused(one, {key: "".join(argv[1:])}, () if argv[1:] else [key])
    assert bool(told) is not runs(one, argv)


@pytest.mark.parametrize("field", ["seen: ClassVar[int] = 0", "inner: int = field(init=False, default=3)"])
def test_what_the_parser_leaves_out_is_no_option(field: str) -> None:
    one, name = script(["x: int = 3", field]), field.partition(":")[0]
    assert len(refused(one, {name: "1"})) == 1
    assert not runs(one, [f"--{name}", "1"])
    of_base = Script(
        "train.py",
        one.text.replace("x: int = 3", f"{name}: int = 3")
        .replace(f"    {field}", f"\n@dataclass\nclass Mine(DataArguments):\n    {field}")
        .replace("(DataArguments)\nif", "(Mine)\nif"),
    )
    assert bool(refused(of_base, {name: "1"})) is not runs(of_base, [f"--{name}", "1"])


@pytest.mark.parametrize("name", ["TrainingArguments", "Seq2SeqTrainingArguments", "Trainer", "Seq2SeqTrainer"])
def test_the_table_of_arguments_is_that_of_the_library(name: str) -> None:
    made = getattr(transformers, name)
    known = arguments_of(f"transformers.{name}", VERSIONS)
    assert known is not None
    if dataclasses.is_dataclass(made):
        fields = {field.name: field for field in dataclasses.fields(made) if field.init}
        # HfArgumentParser changes the types of fields, which their annotations keep.
        annotations = {name: it for one in reversed(made.__mro__) for name, it in inspect.get_annotations(one).items()}
        assert known.keys() == fields.keys()
        for argument, field in fields.items():
            default = str(field.default) if field.default is True or field.default is None else ""
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                default = "required"
            assert known[argument].default == default, argument
            kind = annotations[argument]
            shown = kind.__name__ if isinstance(kind, type) and not isinstance(kind, types.GenericAlias) else str(kind)
            assert known[argument].type == field_type(ast.Constant(shown)), argument
    else:
        assert known.keys() == inspect.signature(made).parameters.keys()


TRAINER = "HfArgumentParser, TrainingArguments"
TYPES = "(DataArguments, TrainingArguments)"


def test_hyperparameters_of_training_arguments_are_refused_as_the_library_refuses_them() -> None:
    one = script(["path: str = 'text'"], TRAINER, TYPES)
    taken = {
        "output_dir": "/opt/ml/model",
        "num_train_epochs": "3",
        "learning_rate": "1e-4",
        "do_train": "True",
        "path": "x",
    }
    assert refused(one, taken) == []
    assert runs(one, [word for key, text in taken.items() for word in (f"--{key}", text)])
    for key, text in {
        "evaluation_strategy": "epoch",
        "num_train_epochs": "three",
        "do_train": "maybe",
        "epochs": "3",
    }.items():
        assert len(refused(one, {"output_dir": "x", key: text})) == 1, key
        assert not runs(one, ["--output_dir", "x", f"--{key}", text]), key


def test_the_refusal_of_a_boolean_has_one_as_its_example() -> None:
    found = options_of(script(["shuffle: bool = True"]), VERSIONS)
    assert found is not None
    [told] = refusals(found, {"shuffle": "maybe"}, (), True)
    assert (told.example, told.got) == ("True", "'maybe' of train.py:15")


def test_the_refusal_names_the_versions_that_take_an_argument_and_what_it_is_now() -> None:
    one = script([], TRAINER, TYPES)
    [told] = refused(one, {"evaluation_strategy": "epoch"}, version="5.3.0")
    assert told.endswith(
        "got none of train.py, nor of TrainingArguments of transformers 5.3.0, which versions 4.4 to 4.50 take, and now it is "
        "eval_strategy"
    )
    assert refused(one, {"evaluation_strategy": "epoch", "output_dir": "x"}, version="4.46.1") == []
    [told] = refused(one, {"eval_strategy": "epoch", "output_dir": "x"}, version="4.36.0")
    assert "which versions 4.41 to" in told


def test_training_arguments_need_a_folder_in_the_versions_that_say_so() -> None:
    one = script([], TRAINER, TYPES)
    [told] = refused(one, {"seed": "1"}, version="4.28.1")
    assert told.startswith(": have 'output_dir', which the script requires, got none for train.py:")
    assert told.endswith("TrainingArguments of transformers 4.28.1")
    assert refused(one, {"seed": "1"}, version="4.49.0") == []


@pytest.mark.parametrize(
    "text",
    [
        script([], TRAINER, TYPES).text.replace("from transformers", "from optimum.neuron"),
        script([], TRAINER, TYPES).text.replace("parser = ", "sys.argv += ['--output_dir', 'x']\nparser = "),
        script([], TRAINER, TYPES).text.replace("parser = ", "from sys import argv\nparser = "),
        script([], TRAINER, TYPES).text.replace(
            "parse_args_into_dataclasses()", "parse_args_into_dataclasses(args=[])"
        ),
        script([], TRAINER, TYPES).text.replace(
            "parse_args_into_dataclasses()", "parse_args_into_dataclasses(args_file_flag='--file')"
        ),
        script([], TRAINER, TYPES).text.replace("\nif len", "\nparser.add_argument('--more')\nif len"),
        script([], TRAINER, TYPES).text.replace("\nif len", "\nadd_more(parser)\nif len"),
        script([], TRAINER, TYPES).text.replace("if len(sys.argv) == 2", "if len(sys.argv) > 2"),
        script([], TRAINER, TYPES).text.replace("@dataclass\n", ""),
        script([], TRAINER, TYPES).text.replace("class DataArguments:", "class DataArguments(Others):"),
        script([], TRAINER, "types_of_all").text,
        script(["made: InitVar[int] = 0"], TRAINER, TYPES).text,
        script(["made: int = field(**ones)"], TRAINER, TYPES).text,
        script(["made: int = field(default=0, metadata=texts('made'))"], TRAINER, TYPES).text,
        script([], TRAINER, TYPES).text + "\nsubprocess.run(['pip', 'install', 'transformers==4.40'])\n",
        "# training-jobs: allow options\n" + script([], TRAINER, TYPES).text,
    ],
)
def test_of_a_script_whose_options_are_not_certain_nothing_is_said(text: str) -> None:
    assert options_of(Script("train.py", text), VERSIONS) is None


def test_of_a_library_whose_version_is_not_known_nothing_is_said() -> None:
    one = script([], TRAINER, TYPES)
    assert options_of(one) is None
    assert all(options_of(one, {"transformers": version}) is None for version in ("9.0.0", "4.3.3"))
    assert options_of(script(["a: int = 1"])) is not None


def test_a_field_that_a_new_version_has_too_is_refused_as_the_parser_refuses_it() -> None:
    one = script(["project: str = 'mine'"], TRAINER, TYPES)
    assert refused(one, {"output_dir": "x"}, version="4.56.2") == []
    [told] = refused(one, {"output_dir": "x"})
    assert told.startswith(": be those of a script whose options have different names")
    assert f"'project' of train.py:15 and of train.py:17, TrainingArguments of transformers {VERSION}" in told
    assert not runs(one, ["--output_dir", "x"])
    resolved = one.text.replace(TYPES, f"{TYPES}, conflict_handler='resolve'")
    assert options_of(Script("train.py", resolved), VERSIONS) is None


def test_a_parser_may_look_for_no_file_of_arguments() -> None:
    text = script(["a: int = 1"]).text.replace("dataclasses()", "dataclasses(look_for_args_file=False)")
    assert len(refused(Script("train.py", text), {"b": "1"})) == 1


def test_rest_that_a_script_takes_is_not_refused() -> None:
    text = script(["a: int = 1"]).text.replace(
        "parse_args_into_dataclasses()", "parse_args_into_dataclasses(return_remaining_strings=True)"
    )
    assert refused(Script("train.py", text), {"b": "1"}) == []
    assert runs(Script("train.py", text), ["--b", "1"])


def test_the_options_that_init_reads_are_taken_by_the_parser(tmp_path: Path) -> None:
    left_out = ("path", "count", "learning_rate")
    others = (line for line in FIELDS if " = " in line and line.partition(":")[0] not in left_out)
    fields = ["path: str", *others]
    one = script([*{line.partition(":")[0]: line for line in fields}.values()], TRAINER, TYPES)
    (tmp_path / "train.py").write_text(one.text)
    found = read_script(tmp_path / "train.py")
    assert {"path", "shuffle", "stream", "mode", "color"} <= {option.name for option in found.options}
    given = {
        option.name: str("a text" if option.required else option.default) for option in found.options
    } | found.folders
    assert refused(one, given) == []
    assert runs(one, [word for key, text in given.items() for word in (f"--{key}", text)])


CALLS = """
from transformers import Trainer, TrainingArguments as Arguments
import transformers

class Weighted(Trainer):
    def compute_loss(self, model, inputs):
        return model(**inputs).loss

@dataclass
class Mine(Arguments):
    rank: int = 8

class Other(Trainer):
    def __init__(self, tokenizer):
        super().__init__()

args = Arguments(output_dir="x", evaluation_strategy="epoch", learning_rat=1e-4, **more)
args = Mine(output_dir="x", rank=4, no_cuda=True)
trainer = Weighted(args=args, tokenizer=tokenizer)
trainer = transformers.Trainer(args=args, model=model, tokenizer=tokenizer)
trainer = Other(tokenizer=tokenizer)
try:
    trainer = Trainer(args=args, tokenizer=tokenizer)
except TypeError:
    trainer = Trainer(args=args, processing_class=tokenizer)
if version.parse(transformers.__version__) < version.parse("5.0"):
    trainer = Trainer(args=args, tokenizer=tokenizer)
"""


def found(text: str, version: str | None) -> list[tuple[int, str]]:
    mistakes = lint([Script("train.py", text)], Job(versions={"transformers": version} if version else {}))
    return [(one.line, one.reason) for one in mistakes if one.rule == "training-arguments"]


def test_arguments_that_a_version_does_not_take_are_found() -> None:
    renamed = "which versions 4.4 to 4.50 take, and now it is eval_strategy: a TypeError"
    renamed_cpu = "which versions 4.4 to 4.57 take, and now it is use_cpu: a TypeError"
    processing = "takes no tokenizer, which versions 4.4 to 4.57 take, and now it is processing_class: a TypeError"
    assert found(CALLS, "5.3.0") == [
        (17, f"TrainingArguments of transformers 5.3.0 takes no evaluation_strategy, {renamed}"),
        (17, "TrainingArguments of transformers 5.3.0 takes no learning_rat, which has learning_rate: a TypeError"),
        (18, f"TrainingArguments of transformers 5.3.0 takes no no_cuda, {renamed_cpu}"),
        (19, f"Trainer of transformers 5.3.0 {processing}"),
        (20, f"Trainer of transformers 5.3.0 {processing}"),
    ]
    assert [line for line, _ in found(CALLS, "4.46.1")] == [17]
    assert found(CALLS, None) == found(CALLS, "9.0.0") == []
    assert found(CALLS + "\nos.system('pip install transformers==4.40')\n", "5.3.0") == []


def test_what_a_script_is_told_is_what_the_library_raises() -> None:
    told = [reason.split(" takes no ")[1].split(",")[0] for _, reason in found(CALLS, VERSION)]
    assert told == ["evaluation_strategy", "learning_rat", "no_cuda", "tokenizer", "tokenizer"]
    for argument in told[:3]:
        with pytest.raises(TypeError, match=argument):
            transformers.TrainingArguments(output_dir="x", **{argument: 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tokenizer"):
        transformers.Trainer(tokenizer=None)  # type: ignore[call-arg]


def test_an_argument_of_no_version_is_not_one_of_others() -> None:
    assert "learning_rat" not in arguments_of_others("transformers.TrainingArguments", {"transformers": "5.3.0"})
    assert "output_dir" not in arguments_of_others("transformers.TrainingArguments", {"transformers": "5.3.0"})
    assert arguments_of_others("transformers.TrainingArguments", {"transformers": "4.6.1"})["eval_strategy"].startswith(
        "which versions 4.41 to 5."
    )


def test_a_value_that_a_class_of_the_script_may_have_is_not_told() -> None:
    text = (
        "from dataclasses import dataclass\nfrom transformers import TrainingArguments\n\n@dataclass\n"
        "class Own(TrainingArguments):\n    {field}\n\nOwn('model', load_best_model_at_end=True, eval_strategy='epoch')\n"
    )
    for field, told in (("save_strategy: str = 'epoch'", 0), ("tokens: int = 3", 0)):
        found = lint([Script("train.py", text.replace("{field}", field))], Job(versions=VERSIONS))
        assert len(found) == told, field


DRAWN: dict[str, Sequence[object]] = {
    "eval_strategy": ["no", "steps", "epoch", "epochs", "best", False],
    "save_strategy": ["no", "steps", "epoch", "best", "EPOCH"],
    "logging_strategy": ["no", "steps", "never"],
    "hub_strategy": ["end", "checkpoint", "each"],
    "lr_scheduler_type": ["linear", "cosine", "cosine_warmup", "reduce_lr_on_plateau", "step"],
    "optim": ["adamw_torch", "adamw_hf", "adamw_torch_fused", "adamw", "sgd"],
    "bf16": [True, False],
    "fp16": [True, False],
    "bf16_full_eval": [True, False],
    "tf32": [True, False],
    "use_cpu": [True, False],
    "load_best_model_at_end": [True, False],
}


@pytest.mark.parametrize("seed", range(150))
def test_values_drawn_at_random_are_told_where_the_class_ends_at_them_on_a_cpu(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    given = {name: draw.choice(DRAWN[name]) for name in draw.sample([*DRAWN], draw.randint(1, 5))}
    given = {name: value for name, value in given.items() if name == "bf16_full_eval" or draw.random() < 0.9}
    keywords = ", ".join(f"{name}={value!r}" for name, value in given.items())
    text = f"from transformers import TrainingArguments\nTrainingArguments(output_dir={str(tmp_path)!r}, {keywords})\n"
    try:
        exec(compile(text, "train.py", "exec"), {})
        ends = ""
    except (ValueError, RuntimeError) as error:
        ends = repr(error)
    told = lint([Script("train.py", text)], Job(versions=VERSIONS, device="cpu"))
    assert bool(told) is bool(ends), (keywords, ends, told)


@pytest.mark.parametrize("seed", range(60))
def test_hyperparameters_drawn_at_random_are_refused_where_the_class_ends_at_them_on_a_cpu(seed: int) -> None:
    draw = random.Random(seed)
    given = {name: str(draw.choice(DRAWN[name])) for name in draw.sample([*DRAWN], draw.randint(1, 4))}
    parser = transformers.HfArgumentParser([transformers.TrainingArguments])
    argv = [word for name, text in given.items() for word in (f"--{name}", text)]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parser.parse_args_into_dataclasses(["--output_dir", "/tmp/model", *argv])
        ends = ""
    except (SystemExit, ValueError) as error:
        ends = repr(error)
    found = options_of(script(imported=f"{PARSER}, TrainingArguments", classes="TrainingArguments"), VERSIONS)
    assert found is not None
    told = [*refusals(found, {"output_dir": "/tmp/model", **given}, (), True, device="cpu")]
    assert bool(told) is bool(ends), (given, ends, told)


@pytest.mark.parametrize(
    ("version", "keywords", "device", "told"),
    [
        ("4.49.0", "optim='adamw_hf'", "", ""),
        ("4.50.0", "optim='adamw_hf'", "", "optim of TrainingArguments of transformers 4.50.0 must be one of"),
        ("4.40.0", "lr_scheduler_type='cosine_with_min_lr'", "", ""),
        (
            "4.39.0",
            "lr_scheduler_type='cosine_with_min_lr'",
            "",
            "got 'cosine_with_min_lr', which transformers 4.40 to",
        ),
        ("4.51.0", "bf16=True", "cpu", ""),
        (
            "4.52.0",
            "bf16=True",
            "cpu",
            "bf16 of TrainingArguments of transformers 4.52.0 must be False, or with use_cpu=True",
        ),
        ("5.3.0", "bf16=True", "older gpu", ""),
        ("5.3.0", "bf16=True, use_cpu=cpu", "cpu", ""),
        ("5.3.0", "bf16=True, **more", "cpu", ""),
        ("5.3.0", "bf16=half", "cpu", ""),
        ("5.3.0", "tf32=True", "older gpu", "like False, or 'ml.g5.xlarge', got True on an older GPU"),
        ("5.3.0", "tf32=True", "", ""),
        (
            "5.3.0",
            "fp16=True, bf16=True",
            "",
            "fp16 of TrainingArguments of transformers 5.3.0 must be left out beside bf16",
        ),
        ("4.46.0", "save_strategy='best', eval_strategy='epoch'", "", "save_strategy of"),
        ("4.47.0", "save_strategy='best', eval_strategy='epoch', load_best_model_at_end=True", "", ""),
        ("4.47.0", "eval_strategy='epoch', load_best_model_at_end=True", "", "save_strategy='steps'"),
        ("4.47.0", "eval_strategy='epoch', load_best_model_at_end=True, **more", "", ""),
        ("4.40.0", "evaluation_strategy='epoch', load_best_model_at_end=True", "", "evaluation_strategy='epoch' and"),
        ("4.40.0", "evaluation_strategy=IntervalStrategy.EPOCH, load_best_model_at_end=True", "", ""),
    ],
)
def test_a_value_is_told_in_the_versions_whose_class_ends_at_it(
    version: str, keywords: str, device: Device, told: str
) -> None:
    text = f"from transformers import TrainingArguments\nTrainingArguments(output_dir='m', {keywords})\n"
    found = lint([Script("train.py", text)], Job(versions={"transformers": version}, device=device))
    assert [told in one.reason for one in found] == [True] * bool(told)
