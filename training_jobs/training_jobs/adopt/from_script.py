"""The app of a training script as it is: its options, what it imports, and where it writes, as its source says."""

from __future__ import annotations

import ast
import dataclasses
import json
import operator
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_jobs.facts.packages import distribution_of
from training_jobs.lint import channels_of, options_of
from training_jobs.lint.dataclass_options import choices_of, declared_fields, takes_others
from training_jobs.lint.script import Script, always_imported

MODEL, CHECKPOINTS, LOGS = "/opt/ml/model", "/opt/ml/checkpoints", "/opt/ml/output/data"
# Options that name a folder to write to, by their words.
_FOLDERS = {
    MODEL: "output_dir out_dir outdir save_dir save_path model_dir output_path output",
    CHECKPOINTS: "checkpoint_dir checkpoints_dir checkpoint_path ckpt_dir",
    LOGS: "logging_dir log_dir logs_dir tensorboard_dir",
}
# The folder of an option by its name with underscores.
FOLDER_OF = {name: folder for folder, names in _FOLDERS.items() for name in names.split()}
# Modules of the frameworks of AWS's containers, and of their toolkit.
_OF_CONTAINERS = frozenset(
    ["boto3", "botocore", "numpy", "sagemaker_training", "tensorflow", "torch", "torchaudio", "torchvision"]
)
# The repository and the tag of AWS's container of a framework.
_CONTAINERS = {
    "pytorch": ("pytorch", "2.13-cpu-amzn2023-sagemaker"),
    "tensorflow": ("tensorflow-training", "2.21-cpu-amzn2023-sagemaker"),
}
_OF_TENSORFLOW = ("tensorflow", "keras")
_MOST_OPTIONS = 60  # a request has at most 100 hyperparameters
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


@dataclass(frozen=True)
class Option:
    """An option of a script.

    Attributes:
        name: As the script has it, without hyphens before it.
        default: What it is without the option; None where the source does not say.
        choices: What it may be; empty for anything.
        is_flag: Whether it has no value.
        required: Whether the script ends without it, so that each execution gives it.
        type: argparse's type, such as ``int``; "" where it has none.
    """

    name: str
    default: str | float | bool | None = None
    choices: tuple[Any, ...] = ()
    is_flag: bool = False
    required: bool = False
    type: str = ""

    @property
    def field(self) -> str:
        """Its name in an execution's input."""
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class TrainingScript:
    """A script, as far as its source says.

    Attributes:
        path: Its path.
        options: Its options that have a default or are required, but for those that name folders.
        folders: The folder for each option that names one to write to.
        form: How it takes options: ``--key value``, ``--key=value`` or ``key=value``.
        requirements: Packages to install beside those of AWS's container.
        framework: The container: ``pytorch`` or ``tensorflow``.
        keeps_model: Whether it is known to write to ``/opt/ml/model``.
        channels: The channels that it reads, and has nothing in their place.
        always_true: Options of ``type=bool``, which no text but the empty one makes False.
    """

    path: Path
    options: tuple[Option, ...]
    folders: Mapping[str, str]
    form: str
    requirements: tuple[str, ...]
    framework: str
    keeps_model: bool
    channels: tuple[str, ...]
    always_true: tuple[str, ...]


def read_script(path: Path) -> TrainingScript:
    """Read a script.

    Args:
        path: A file of Python.

    Raises:
        ValueError: It is no file, or not Python, or has positional arguments, which hyperparameters are not.
    """
    if not path.is_file() or path.suffix != ".py":
        raise ValueError(f"the script must be a file of Python, like 'nanoGPT/train.py', got {str(path)!r}")
    text = path.read_text(encoding="utf-8", errors="replace")
    tree, script = _parsed(path, text), Script(path.name, text)
    _check_positional(path, script)
    modules = _imported(path, tree)
    form, options = _options(tree, text)
    folders = {option.name: FOLDER_OF[option.field] for option in options if option.field in FOLDER_OF}
    if "HfArgumentParser" in text or "TrlParser" in text:
        declared = {one.name: one for one in (*options, *_declared(script))}
        folders |= {name: FOLDER_OF[name] for name in declared if name in FOLDER_OF}
        if takes_others(script):  # TrainingArguments, or a class of that
            folders.setdefault("output_dir", MODEL)
            # trl's classes compute in bf16 unless told not to, which transformers refuses without a GPU.
            precision = {"bf16": Option("bf16", False)} if "trl" in modules else {}
            declared = {"num_train_epochs": Option("num_train_epochs", 1.0), **precision} | declared
        options = [*declared.values()]
    wanted = (one for one in options if one.name not in folders and (one.required or one.default is not None))
    given = tuple(one for one in map(_on_cpu, wanted) if one.type != "bool" or one.required)
    tensorflow = bool(modules & {*_OF_TENSORFLOW}) and "torch" not in modules
    return TrainingScript(
        path,
        given[:_MOST_OPTIONS],
        folders,
        form,
        () if (path.parent / "requirements.txt").exists() else _requirements(modules, tensorflow),
        "tensorflow" if tensorflow else "pytorch",
        MODEL in folders.values() or "SM_MODEL_DIR" in text or MODEL in text,
        tuple(channels_of(script)),
        tuple(one.name for one in options if one.type == "bool" and not one.required),
    )


def _check_positional(path: Path, script: Script) -> None:
    options = options_of(script)
    found = [one for one in options.options if one.is_positional and one.required] if options else []
    if found:
        names = " and ".join(repr(one.names[0]) for one in found)
        raise ValueError(
            f"the script must take options alone, since hyperparameters are passed as options, like "
            f"parser.add_argument('--{found[0].names[0]}'), got the positional {names} in {str(path)!r}, line {found[0].line}"
        )


def _on_cpu(option: Option) -> Option:
    """An option whose default is a GPU, which the app's machine lacks, on its CPU."""
    if option.name == "device" and str(option.default).startswith("cuda"):
        return dataclasses.replace(option, default="cpu")
    return option


def _parsed(path: Path, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ValueError(
            f"the script must be Python, like 'import torch', got {str(path)!r}, line {error.lineno}: {error.msg}"
        ) from error


def _imported(path: Path, tree: ast.Module) -> set[str]:
    """The modules that a script imports, and those of the files beside it that it imports; of the latter not their own."""
    found: set[str] = set()
    seen: set[Path] = set()
    rest = [tree]
    while rest:
        for _, module in always_imported(rest.pop()):
            beside = path.parent / module
            inner = [file for file in (beside.with_suffix(".py"), beside / "__init__.py") if file.is_file()]
            if not inner and not beside.is_dir():
                found.add(module)
            for file in inner:
                if file not in seen:
                    seen.add(file)
                    rest.append(_parsed(file, file.read_text(encoding="utf-8", errors="replace")))
    return found


def _requirements(modules: set[str], tensorflow: bool) -> tuple[str, ...]:
    others = modules - sys.stdlib_module_names - _OF_CONTAINERS - ({"keras"} if tensorflow else set())
    found = (distribution_of(module) or module.replace("_", "-") for module in others)
    return tuple(sorted(one.removesuffix("[torch]") if tensorflow else one for one in found))


def _options(tree: ast.Module, text: str) -> tuple[str, list[Option]]:
    """How a script takes options, and the options."""
    found = [option for node in ast.walk(tree) if isinstance(node, ast.Call) for option in _option(node)]
    if found:
        return "--key value", found
    if "configurator.py" in text:  # nanoGPT's, which sets the module's variables
        return "--key=value", [*_variables(tree)]
    return ("key=value" if "hydra.main" in text else "--key value"), []


def _option(call: ast.Call) -> Iterator[Option]:
    """The option of a call of argparse's `add_argument` or of click's `option`."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    names = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    long = [name.removeprefix("--") for name in names if name.startswith("--")]
    if function not in ("add_argument", "option") or not long or not _NAME.fullmatch(long[0]):
        return
    known = {one.arg: one.value for one in call.keywords}
    action = _literal(known.get("action"))
    is_flag = action == "store_true" or _literal(known.get("is_flag")) is True
    if action not in (None, "store", "store_true"):
        return
    choices, kind = _literal(known.get("choices")), getattr(known.get("type"), "id", "")
    default, required = False if is_flag else _literal(known.get("default")), _literal(known.get("required")) is True
    if isinstance(default, int) and not isinstance(default, bool) and kind == "float":
        default = float(default)
    yield Option(
        long[0],
        default if isinstance(default, str | int | float) and default != "" and not required else None,
        tuple(choices) if isinstance(choices, list | tuple) and (required or default in choices) else (),
        is_flag,
        required,
        kind,
    )


def _declared(script: Script) -> Iterator[Option]:
    """The fields of the dataclasses that a script declares and gives to HfArgumentParser."""
    for name, one in declared_fields(script).items():
        kind, default = one.argument.type, _literal(one.given.get("default"))
        choices = choices_of(one.annotation, one.given) or ()
        required = one.argument.is_required
        if kind == "bool":
            default = bool(default)
        elif kind == "float" and isinstance(default, int):
            default = float(default)
        # The toolkit gives one of a letter with one hyphen, which the parser does not take.
        if len(name) > 1 and (kind in ("int", "float", "str", "bool") or choices):
            yield Option(
                name,
                default if isinstance(default, str | int | float) and default != "" and not required else None,
                choices if required or default in choices else (),
                required=required,
                type=kind.replace("bool", ""),
            )


def _variables(tree: ast.Module) -> Iterator[Option]:
    """The variables that a module sets to plain values before it reads its arguments."""
    for node in tree.body:
        if "configurator" in ast.unparse(node):
            return
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = _literal(node.value)
            if isinstance(value, str | int | float) and value != "":
                yield Option(node.targets[0].id, value)


def _literal(node: ast.expr | None) -> Any:
    """The value of a literal, or of a sum, difference or product of numbers, such as ``5 * 8``; None for other expressions."""
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _literal(node.left), _literal(node.right)
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        return _ARITHMETIC[type(node.op)](left, right) if numbers else None
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def app_of(script: TrainingScript, directory: Path, *, data: str = "", stack: str = "MyTraining") -> str:
    """Return the app.py of a script.

    Args:
        script: The script.
        directory: The app's folder.
        data: A file of the app's folder that is the channel ``training``; "" without one.
        stack: The stack's name.
    """
    where = os.path.relpath(script.path.parent, directory)
    code = "str(HERE)" if where == "." else f"str(HERE / {_text(where)})"
    flags = [one.name for one in script.options if one.is_flag]
    given = "".join(
        [
            f", arguments={_text(script.form)}" if script.form != "--key value" else "",
            f", flags={json.dumps(flags)}" if flags else "",
        ]
    )
    repository, tag = _CONTAINERS[script.framework]
    fields = {one: _field(one) for one in script.options}
    channels = {} if data else {name: f'S3Channel(bucket, "data/{name}/")' for name in script.channels}
    channels |= {"training": "S3Channel(data.bucket, data.s3_object_key)"} if data else {}
    names = {"DataParallelJob", "InstanceGroup", "S3Prefix", "TrainingBucket", "TrainingCode", "TrainingImage"}
    names |= {
        "TrainingWorkflow",
        *(text.partition("(")[0] for text in fields.values()),
        *(["S3Channel"] if channels else []),
    }
    lines = [
        f'"""A stack whose workflow runs {script.path.name}: `training-jobs local up`, or `cdk deploy`."""',
        "",
        "from pathlib import Path",
        "",
        "import aws_cdk as cdk",
        *(["from aws_cdk import aws_s3_assets as s3_assets"] if data else []),
        *(["from aws_cdk import aws_stepfunctions as sfn"] if fields else []),
        f"from cdk_sagemaker_training import {_wrapped(sorted(names))}",
        "",
        "HERE = Path(__file__).parent",
        *_options_source(fields, script.always_true),
        "app = cdk.App()",
        f'stack = cdk.Stack(app, "{stack}")',
        'bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)',
        *([f'data = s3_assets.Asset(stack, "Data", path=str(HERE / {_text(data)}))'] if data else []),
        "TrainingWorkflow(",
        "    stack,",
        '    "Training",',
        '    job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),',
        f'    image=TrainingImage.from_dlc(stack, "Image", "{repository}", "{tag}"),',
        f"    code=TrainingCode({code}, entry_point={_text(script.path.name)}{given}),",
        *(
            ["    channels={", *(f"        {_text(name)}: {text}," for name, text in channels.items()), "    },"]
            if channels
            else []
        ),
        '    output=S3Prefix(bucket, "models/"),',
        *(['    checkpoints=S3Prefix(bucket, "checkpoints/"),'] if CHECKPOINTS in script.folders.values() else []),
        *_hyperparameters_source(script, bool(fields)),
        *(
            []
            if script.keeps_model
            else [
                "    # What the script writes to the folder that SM_MODEL_DIR names is kept; it writes nothing there.",
                '    missing_model="ignore",',
            ]
        ),
        '    metric_definitions={"loss": r"loss\\W+([0-9.]+(?:e[-+]?[0-9]+)?)"},',
        "    max_runtime=cdk.Duration.hours(1),",
        ")",
        *([] if data or not channels else ['cdk.CfnOutput(stack, "BucketName", value=bucket.bucket_name)']),
        "app.synth()",
        "",
    ]
    return "\n".join(lines)


def _options_source(fields: Mapping[Option, str], always_true: Sequence[str]) -> list[str]:
    left_out = (
        [f"# Without {', '.join(always_true)}: type=bool takes each text, and False too, for True."]
        if always_true
        else []
    )
    if not fields:
        return left_out
    return [
        *left_out,
        "# The script's options with their defaults; `training-jobs start --set NAME=VALUE` sets one.",
        "OPTIONS = {",
        *(f"    {_text(one.name)}: {text}," for one, text in fields.items()),
        "}",
        "",
    ]


def _hyperparameters_source(script: TrainingScript, has_fields: bool) -> list[str]:
    given = [f"        {_text(name)}: {_text(folder)}," for name, folder in script.folders.items()]
    if not has_fields:
        return ["    hyperparameters={", *given, "    },"] if given else []
    of_input = 'sfn.JsonPath.format("{}", sfn.JsonPath.string_at("$." + name.replace("-", "_")))'
    return [
        "    hyperparameters={",
        *given,
        f"        **{{name: {of_input} for name in OPTIONS}},",
        "    },",
        '    input_fields={name.replace("-", "_"): field for name, field in OPTIONS.items()},',
    ]


def _field(option: Option) -> str:
    """The field of an execution's input for an option."""
    default = option.default
    if option.is_flag:
        return 'ChoiceField(["false", "true"], default="false")'
    if isinstance(default, bool):
        return f'ChoiceField(["True", "False"], default="{default}")'
    if default is None:  # which the script requires
        numbers = {"int": "NumberField(whole=True)", "float": "NumberField()", "bool": 'ChoiceField(["True"])'}
        return (
            f"ChoiceField({json.dumps([*option.choices])})"
            if option.choices
            else numbers.get(option.type, "TextField()")
        )
    if option.choices:
        return f"ChoiceField({json.dumps([*option.choices])}, default={json.dumps(default)})"
    if isinstance(default, int):
        return f"NumberField(default={default}, whole=True)"
    # A number without a fraction has none in JSON, and a script may want one.
    if isinstance(default, float) and not default.is_integer():
        return f"NumberField(default={default!r})"
    return f"TextField(default={_text(str(default))})"


def _text(value: str) -> str:
    """A string as Python's source has it, in double quotes."""
    return json.dumps(value)


def _wrapped(names: Sequence[str]) -> str:
    return "(\n" + "".join(f"    {name},\n" for name in names) + ")"
