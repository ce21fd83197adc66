"""Hyperparameters beside the options of a script, held against the real toolkit's arguments and Python's own argparse."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import aws_stepfunctions as sfn
from sagemaker_training import environment
from sagemaker_training.mapping import to_cmd_args
from stacks import UserStack

from cdk_sagemaker_training import (
    Alternative,
    ChoiceField,
    DataParallelJob,
    InstanceGroup,
    NumberField,
    TextField,
    TrainingCode,
    TrainingImage,
    training_code_path,
)
from cdk_sagemaker_training.jobs.hyperparameters import encode_hyperparameter
from training_jobs.lint import options_of, refusals
from training_jobs.lint.options import Refusal
from training_jobs.lint.script import Script

SCRIPT = """
import argparse
import os

parser = argparse.ArgumentParser({parser})
{options}
args = parser.parse_args()
"""
KNOWN = SCRIPT.replace("args = parser.parse_args()", "args, rest = parser.parse_known_args()")
STARTER = Path(training_code_path(), "entrypoint", "script_arguments.py")
OFF = "; a comment `# training-jobs: allow options` at its beginning switches this off"
LR = '"--learning-rate", type=float, default=0.1'
OTHER_OF_GROUP = DataParallelJob(InstanceGroup("ml.p4d.24xlarge"))


def written(folder: Path, *options: str, parser: str = "", text: str = SCRIPT) -> Path:
    lines = "\n".join(f"parser.add_argument({option})" for option in options)
    (folder / "train.py").write_text(text.replace("{parser}", parser).replace("{options}", lines))
    return folder


def synthesized(folder: Path, given: dict[str, Any], **code: Any) -> UserStack:
    stack = UserStack()
    stack.workflow(code=TrainingCode(str(folder), **code), hyperparameters=given)
    return stack


def refusal(folder: Path, given: dict[str, Any], **code: Any) -> str:
    """What synth says of the hyperparameters; "" where it takes them."""
    try:
        synthesized(folder, given, **code)
    except ValueError as error:
        return str(error)
    return ""


def parsed(folder: Path, given: dict[str, Any], flags: Any = (), arguments: str = "--key value") -> Any:
    """The arguments as the script has them that the toolkit starts; None where argparse ends it."""
    texts = {name: encode_hyperparameter(name, value) for name, value in given.items()}
    (folder / "hyperparameters.json").write_text(json.dumps(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "hyperparameters_file_dir", str(folder / "hyperparameters.json"))
        argv = to_cmd_args(environment.read_hyperparameters())
    if flags or arguments != "--key value":
        spec = importlib.util.spec_from_file_location("starter", STARTER)
        assert spec is not None
        assert spec.loader is not None
        starter = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(starter)
        argv = starter.converted(argv, arguments, flags)
    before, sys.argv = sys.argv, ["train.py", *argv]
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            exec((folder / "train.py").read_text(), names)
    except SystemExit:
        return None
    finally:
        sys.argv = before
    return names["args"]


# Options of a script, the hyperparameters, and what differs in TrainingCode or the parser.
CASES: list[tuple[list[str], dict[str, Any], dict[str, Any]]] = [
    ([LR], {"learning-rate": 0.01}, {}),
    ([LR], {"learning_rate": 0.01}, {}),
    ([LR], {"lr": 0.01}, {}),
    ([LR], {"learning": 0.01}, {}),
    ([LR], {"learning": 0.01}, {"parser": "allow_abbrev=False"}),
    ([LR, '"--learning-decay"'], {"learning": 0.01}, {}),
    ([LR], {}, {}),
    ([LR], {"help": True}, {}),
    (['"-e", "--epochs", type=int'], {"e": 3}, {}),
    (['"-e", "--epochs", type=int'], {"epochs": "3"}, {}),
    (['"-e", "--epochs", type=int'], {"epochs": 3.0}, {}),
    (['"-e", "--epochs", type=int'], {"epochs": 0.5}, {}),
    (['"-e", "--epochs", type=int'], {"epochs": "many"}, {}),
    (['"-e", "--epochs", type=int'], {"epochs": [1, 2]}, {}),
    (['"-e", "--epochs", type=int'], {"f": 3}, {}),
    (['"-lr", type=float'], {"lr": 0.1}, {}),
    (['"-lr", type=float'], {"l": 0.1}, {}),
    ([LR], {"learning-rate": "fast"}, {}),
    ([LR], {"learning-rate": True}, {}),
    ([LR], {"learning-rate": 1e-05}, {}),
    ([LR], {"learning-rate": -1e-05}, {}),
    ([LR], {"learning-rate": -1e-05}, {"arguments": "--key=value"}),
    ([LR], {"learning-rate": -0.5}, {}),
    ([LR], {"learning-rate": -3}, {}),
    (['"--name"'], {"name": "-fast"}, {}),
    (['"--name"'], {"name": "-not fast"}, {}),
    (['"--name"'], {"name": ""}, {}),
    (['"--name"'], {"name": {"a": 1}}, {}),
    (['"--name"'], {"name": ["a", "b"]}, {}),
    (['"--model", choices=["small", "large"]'], {"model": "small"}, {}),
    (['"--model", choices=["small", "large"]'], {"model": "tiny"}, {}),
    (['"--layers", type=int, choices=range(1, 4)'], {"layers": 3}, {}),
    (['"--layers", type=int, choices=range(1, 4)'], {"layers": 4}, {}),
    (['"--layers", choices=[1, 2]'], {"layers": 1}, {}),
    (['"--amp", action="store_true"'], {"amp": True}, {}),
    (['"--amp", action="store_true"'], {"amp": True}, {"arguments": "--key=value"}),
    (['"--amp", action="store_true"'], {"amp": True}, {"flags": ["amp"]}),
    (['"--amp", action="store_true"'], {"amp": False}, {"flags": ["amp"]}),
    (['"--amp", action=argparse.BooleanOptionalAction'], {"amp": True}, {}),
    (['"--amp", action=argparse.BooleanOptionalAction'], {"no-amp": True}, {"flags": ["no-amp"]}),
    ([LR], {"learning-rate": True}, {"flags": ["learning-rate"]}),
    (['"--data", required=True'], {}, {}),
    (['"--data", required=True'], {"data": "s3"}, {}),
    (['"--data", required=True'], {"da": "s3"}, {}),
    (['"epochs", type=int', LR], {"learning-rate": 0.1}, {}),
    (['"epochs", type=int'], {"epochs": 3}, {}),
    (['"epochs", type=int, nargs="?", default=3', LR], {"learning-rate": 0.1}, {}),
    (['"files", nargs="*"', LR], {"learning-rate": 0.1}, {}),
    (['"files", nargs="+"', LR], {"learning-rate": 0.1}, {}),
    (['"--sizes", type=int, nargs="+"'], {"sizes": 3}, {}),
    (['"--sizes", action="append"'], {"sizes": 3}, {}),
    (['"--amp", nargs="?", const="bf16"'], {"amp": True}, {"flags": ["amp"]}),
    (['"--amp", nargs="?", const="bf16"'], {"amp": "bf16"}, {}),
    (['"--size", nargs="?", type=int'], {"size": "large"}, {}),
    (['"--verbose", "-v", action="count"'], {"verbose": 2}, {}),
    ([LR], {"sagemaker_unknown": 1, "learning-rate": 0.1}, {}),
]


@pytest.mark.parametrize(("options", "given", "others"), CASES)
def test_synth_refuses_what_argparse_refuses_of_the_toolkits_arguments_and_nothing_else(
    tmp_path: Path, options: list[str], given: dict[str, Any], others: dict[str, Any]
) -> None:
    code = {name: value for name, value in others.items() if name != "parser"}
    written(tmp_path, *options, parser=others.get("parser", ""))
    of_script = {name: value for name, value in given.items() if not name.startswith("sagemaker_")}
    assert bool(refusal(tmp_path, given, **code)) == (parsed(tmp_path, of_script, **code) is None)


def takes_false(refusal: Refusal, texts: dict[str, str | None]) -> bool:
    """Whether a script that goes on is refused since it takes False for True."""
    return "takes no value" in refusal.rule and str(texts.get(refusal.key)).lower() == "false"


DRAWN = sorted({option for options, _, _ in CASES for option in options})
VALUES: list[Any] = [1, 0.5, -2, -1e-05, 3.0, "3", "0.5", "text", "-text", "small", "", True, [1], {"a": 1}, False]


@pytest.mark.parametrize("seed", range(200))
def test_scripts_and_hyperparameters_drawn_at_random_are_refused_as_argparse_refuses_them(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    options = {option.split(",")[0]: option for option in draw.sample(DRAWN, draw.randint(1, 6))}
    # Some ignore what they do not know, and with it the values of options without one, unless those are false; in positional
    # arguments such a value lands by chance.
    ignores = seed % 2 == 1 and all(name.startswith('"-') for name in options)
    written(tmp_path, *options.values(), text=KNOWN if ignores else SCRIPT)
    found = options_of(Script("train.py", (tmp_path / "train.py").read_text()))
    assert found is not None
    keys = [option.key for option in found.options if option.key] + ["learning", "learning_rate", "x"]
    given = {key: draw.choice(VALUES) for key in draw.sample(keys, draw.randint(0, len(keys)))}
    flags = [option.key for option in found.options if option.takes == "nothing" and draw.random() < 0.8]
    texts: dict[str, str | None] = {key: encode_hyperparameter(key, value) for key, value in given.items()}
    refused = [one for one in refusals(found, texts, flags, pairs=True) if not (ignores and takes_false(one, texts))]
    assert bool(refused) == (parsed(tmp_path, given, flags) is None), (refused, given, flags)


@pytest.mark.parametrize("value", [True, False])
def test_a_script_that_ignores_the_value_of_an_option_without_one_is_refused_where_that_is_false(
    tmp_path: Path, value: bool
) -> None:
    written(tmp_path, '"--amp", action="store_true"', text=KNOWN)
    assert parsed(tmp_path, {"amp": value}).amp is True
    assert bool(refusal(tmp_path, {"amp": value})) is not value
    # Argparse does not ignore what follows `--amp=`.
    assert parsed(tmp_path, {"amp": value}, arguments="--key=value") is None
    assert "'amp'" in refusal(tmp_path, {"amp": value}, arguments="--key=value")


def test_the_refusal_names_the_hyperparameter_the_option_that_is_meant_and_how_to_switch_it_off(tmp_path: Path) -> None:
    written(tmp_path, LR, '"--epochs", type=int')
    assert refusal(tmp_path, {"learning_rate": 0.1}) == (
        "hyperparameters['learning_rate'] must be an option of the script, since argparse ends it at others, like "
        f"'learning-rate', got none of train.py{OFF}"
    )
    assert refusal(tmp_path, {"epochs": 0.5}) == (
        "hyperparameters['epochs'] must be one that type=int of the script takes, like 3, got '0.5' of train.py:7" + OFF
    )
    written(tmp_path, '"total_epochs", type=int')
    assert refusal(tmp_path, {}) == (
        "hyperparameters must be those of a script without positional arguments, since each is passed as an option, like "
        f"parser.add_argument('--total_epochs', required=True), got 'total_epochs' of train.py:6{OFF}"
    )


def test_the_refusal_of_an_option_without_a_value_names_flags(tmp_path: Path) -> None:
    written(tmp_path, '"--amp", action="store_true"')
    assert refusal(tmp_path, {"amp": True}) == (
        "hyperparameters['amp'] must be among the flags of code, since the script takes no value for it, like "
        f"TrainingCode('src', flags=['amp']), got train.py:6{OFF}"
    )


@pytest.mark.parametrize("value", [False, "False", 0, "no"])
def test_false_for_a_type_that_takes_each_text_for_true_is_refused(tmp_path: Path, value: Any) -> None:
    """Python's argparse, "type": "The bool() function is not recommended as a type converter"."""
    written(tmp_path, '"--amp", type=bool, default=False')
    assert parsed(tmp_path, {"amp": value}).amp is True
    assert "type=bool takes each text for True" in refusal(tmp_path, {"amp": value})
    assert refusal(tmp_path, {"amp": True}) == ""


@pytest.mark.parametrize(
    "text",
    [
        "# training-jobs: allow options\n" + SCRIPT,
        SCRIPT.replace("args =", "add_more(parser)\nargs ="),
        SCRIPT.replace("args =", "others = argparse.ArgumentParser()\nargs ="),
        SCRIPT.replace("args =", "kinds = parser.add_subparsers()\nargs ="),
        SCRIPT.replace("args =", "add = parser.add_argument\nadd('--learning_rate', type=float)\nargs ="),
        SCRIPT.replace("args =", "for name in os.environ:\n    parser.add_argument(name)\nargs ="),
        SCRIPT.replace("import argparse", "import configargparse as argparse"),
        SCRIPT.replace("argparse.ArgumentParser(", "argparse.ArgumentParser(parents=[common], "),
        SCRIPT.replace("parse_args()", "parse_args(os.environ['ARGUMENTS'].split())"),
        SCRIPT.replace("args =", "import sys; sys.argv = sys.argv[:1]\nargs ="),
        "from options import args\n",
    ],
)
def test_a_script_whose_options_are_not_certain_takes_any(tmp_path: Path, text: str) -> None:
    written(tmp_path, LR, text=text)
    assert refusal(tmp_path, {"learning_rate": 0.1}) == ""


def test_values_that_an_execution_decides_are_not_known_and_their_names_are(tmp_path: Path) -> None:
    written(tmp_path, '"--epochs", type=int, required=True')
    assert refusal(tmp_path, {"epochs": sfn.JsonPath.string_at("$.epochs")}) == ""
    assert "'epochs'" in refusal(tmp_path, {"epoch_count": sfn.JsonPath.string_at("$.epochs")})


@pytest.mark.parametrize(
    ("option", "field", "refused"),
    [
        ('"--optimizer", choices=["sgd", "adam"]', ChoiceField(["sgd", "lion"]), "lion"),
        ('"--epochs", type=int', NumberField(1, 20, default=2.5), "2.5"),
        ('"--epochs", type=int', NumberField(1, 20, whole=True, default=2), ""),
        ('"--epochs", type=int', NumberField(1.0, 20.0, default=2.0), ""),
        ('"--lr", type=float', NumberField(1e-6, 1, default=0.1), ""),
        ('"--lr", type=float', TextField(default="small"), "small"),
        ('"--optimizer", choices=["sgd", "adam"]', ChoiceField(["sgd", "adam"], default="adam"), ""),
    ],
)
def test_what_an_input_field_allows_is_held_against_the_option_that_gets_it(
    tmp_path: Path, option: str, field: Any, refused: str
) -> None:
    """As the text that `States.Format` makes, which the script has."""
    key = option.split('"')[1].lstrip("-")
    code = TrainingCode(str(written(tmp_path, option)))
    ended = {f"{value:g}" if isinstance(value, float) else str(value): False for value in field.listed}
    ended = {text: parsed(tmp_path, {key: text}) is None for text in ended}
    assert [value for value, is_refused in ended.items() if is_refused] == ([refused] if refused else [])
    place = sfn.JsonPath.string_at("$.given")
    for of_field in (sfn.JsonPath.format("{}", place), *(() if isinstance(field, NumberField) else (place,))):
        said = ""
        try:
            UserStack().workflow(code=code, hyperparameters={key: of_field}, input_fields={"given": field})
        except ValueError as error:
            said = str(error)
        assert (f"each value of input_fields['given'], which hyperparameters[{key!r}] has, must" in said) is bool(
            refused
        )
        assert repr(refused) in said or not refused


BASE = (
    "FROM 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-gpu-py312-cu126-ubuntu22.04-sagemaker\n"
)
COPIED = "COPY src/ /opt/ml/code/\n"
PROGRAM = "ENV SAGEMAKER_PROGRAM=train.py\n"


def refused_by_image(folder: Path, dockerfile: str, **props: Any) -> str:
    """What synth says of an image that is built; "" where it takes the hyperparameters."""
    (folder / "Dockerfile").write_text(BASE + dockerfile)
    stack = UserStack()
    try:
        stack.workflow(image=TrainingImage.from_asset(stack, "Built", str(folder)), **props)
    except ValueError as error:
        return str(error)
    return ""


def test_the_script_that_a_dockerfile_gives_the_toolkit_is_held_against_the_hyperparameters(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    written(tmp_path / "src", LR)
    given = {"learning_rate": 0.1}
    said = refused_by_image(tmp_path, COPIED + PROGRAM, hyperparameters=given)
    assert said.startswith(
        "hyperparameters['learning_rate'] must be an option of the script, since argparse ends it at others"
    )
    assert "got none of src/train.py" in said
    assert refused_by_image(tmp_path, COPIED + PROGRAM, hyperparameters={"learning-rate": 0.1}) == ""


def test_a_build_context_that_is_gone_once_the_image_is_made_is_not_read_again(tmp_path: Path) -> None:
    context = tmp_path / "context"
    (context / "src").mkdir(parents=True)
    written(context / "src", LR)
    (context / "Dockerfile").write_text(BASE + COPIED + PROGRAM)
    stack = UserStack()
    image = TrainingImage.from_asset(stack, "Built", str(context))
    shutil.rmtree(context)
    stack.workflow("Copied", image=image, hyperparameters={"learning_rate": 0.1})
    assert stack.template()


@pytest.mark.parametrize(
    ("dockerfile", "props"),
    [
        (COPIED + PROGRAM + 'ENTRYPOINT ["run", "/opt/ml/code/train.py"]\n', {}),
        (COPIED + PROGRAM, {"environment": {"SAGEMAKER_PROGRAM": "other.py"}}),
        (COPIED + PROGRAM, {"container_entrypoint": ["python", "/opt/ml/code/train.py"]}),
        (COPIED + "RUN make /opt/ml/code/other.py\n" + PROGRAM.replace("train.py", "other.py"), {}),
        (COPIED + "COPY other/ /opt/ml/code/other/\n" + PROGRAM, {}),
    ],
)
def test_where_an_image_starts_another_script_or_it_is_not_certain_which_nothing_is_said(
    tmp_path: Path, dockerfile: str, props: dict[str, Any]
) -> None:
    for name in ("src", "other"):
        (tmp_path / name).mkdir()
        written(tmp_path / name, LR)
    assert refused_by_image(tmp_path, dockerfile, hyperparameters={"learning_rate": 0.1}, **props) == ""


def test_the_hyperparameters_of_an_alternative_are_held_against_the_script_too(tmp_path: Path) -> None:
    stack, code = UserStack(), TrainingCode(str(written(tmp_path, LR)))
    alternative = Alternative(OTHER_OF_GROUP, hyperparameters={"learning_rate": 0.1})
    with pytest.raises(ValueError, match=r"hyperparameters\['learning_rate'\] must be an option of the script"):
        stack.workflow(code=code, alternatives=[alternative])


def test_where_the_toolkit_does_not_start_the_script_nothing_is_said(tmp_path: Path) -> None:
    stack, code = UserStack(), TrainingCode(str(written(tmp_path, LR)))
    stack.workflow(code=code, hyperparameters={"lr": 1}, container_entrypoint=["python", "train.py"])


@pytest.mark.parametrize(
    ("text", "given", "warns"),
    [
        (KNOWN, {"learning_rate": 0.1}, True),
        (
            KNOWN.replace("args, rest = parser.parse_known_args()", "args = parser.parse_known_args()[0]"),
            {"lr": 1},
            True,
        ),
        (KNOWN, {"learning-rate": 0.1}, False),
        (KNOWN + "print(rest)\n", {"learning_rate": 0.1}, False),
        (KNOWN + "print(json.load(file)['learning_rate'])\n", {"learning_rate": 0.1}, False),
        (KNOWN + "print(os.environ['SM_HPS'])\n", {"learning_rate": 0.1}, False),
    ],
)
def test_a_hyperparameter_that_the_script_ignores_is_warned_of(
    tmp_path: Path, text: str, given: dict[str, Any], warns: bool
) -> None:
    stack = synthesized(written(tmp_path, LR, text=text), given)
    assert ("script-ignores-hyperparameter" in stack.warned()) is warns
