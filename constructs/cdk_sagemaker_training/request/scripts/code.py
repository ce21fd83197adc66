"""Mistakes in the folder of ``code``: its scripts, its command, its requirements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.capacity import CHECKPOINTS
from cdk_sagemaker_training.data.code import TrainingCode
from cdk_sagemaker_training.data.observability import Debugger
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.launchers import processes_advice
from cdk_sagemaker_training.request.context import JobContext
from cdk_sagemaker_training.request.data import checkpoints_of, local_path_of
from cdk_sagemaker_training.request.machine import instance_types
from cdk_sagemaker_training.request.scripts.findings import (
    OFF,
    READS_HYPERPARAMETERS,
    TEXTS,
    mistakes_at,
    refuse,
    refuse_arguments,
    refuse_command,
    refuse_requirements,
    script_advice,
)
from cdk_sagemaker_training.request.scripts.known import (
    REQUIREMENTS,
    compilers_of,
    container_of,
    given_arguments,
    installed_by,
    kind_of,
    machines_of,
    started_in,
    target_of,
    world_of,
)
from cdk_sagemaker_training.request.variables import names_index

if TYPE_CHECKING:
    from training_jobs.lint import Command
    from training_jobs.lint.options import Options
    from training_jobs.lint.requirements import Mistake

_UPLOADED = re.compile(r"/opt/ml/model|SM_MODEL_DIR|\bmodel_dir\b")
_SAVES = re.compile(
    r"torch\.save\(|\.save_pretrained\(|\.save_model\(|\.save_weights\(|\bmodel\.save\(|saved_model\.save\(|joblib\.dump\("
)
_FOLDERS = re.compile(r"dir|path|folder|out|save", re.IGNORECASE)
_WORDS = re.compile(r"/opt/ml(?![\w/])|\bcheckpoints\b")
# A place in an execution's input, or that as text.
_FIELD = re.compile(r"(?:States\.Format\('\{\}', )?\$\.(?P<name>\w+)\)?")


def code_advice(code: TrainingCode, context: JobContext) -> Iterator[Advice]:
    """Warn of mistakes in a folder's scripts, with their lines, and of hyperparameters that its script ignores."""
    files, command = tuple(code.files()), _command(code, context)
    yield from ignored_advice(code, context)
    yield from _requirement_advice(code, context)
    if command is not None:
        yield from _command_advice(code, command, context)
    yield from _checkpoint_advice(code, context)
    job = started_in(installed_by(code, context.props), context, command)
    yield from script_advice(Path(code.directory), files, context, code.script, job)


def debugger_advice(debugger: Debugger, context: JobContext) -> Iterator[Advice]:
    """Warn of Debugger beside a compiler, whose hook reads tensors of the steps that it saves.

    AWS's pages on enabling the Training Compiler set ``debugger_hook_config=False``, and its notebooks do.
    """
    if any(compilers_of(context)):
        yield from advice(
            "debugger-beside-compiler",
            "Debugger's hook reads tensors in the steps that it saves, which ends the compiled graph and makes the host wait: "
            "leave debugger out of a compiled job, like debugger=None, or save every few hundred steps.",
        )


def check_options(code: TrainingCode, context: JobContext) -> None:
    """Check that a script takes the hyperparameters, where its options are certain: each is an argument ``--key value``.

    Raises:
        ValueError: The script would end at its arguments, or take False for True.
    """
    pairs = code.arguments == "--key value"
    options, root = _options(code, context.props), Path(code.directory)
    absent = installed_by(code, context.props).absent if options is not None and options.classes else frozenset[str]()
    refuse(options, context, code.flags, pairs=pairs, folder=root, absent=absent)
    given, elsewhere = given_arguments(context), context.props.get("container_entrypoint") is not None
    if elsewhere or _bash_of(code) is not None or not {"deepspeed", "deepspeed_config"} & given.keys():
        return
    from training_jobs.lint import deepspeed_refusals

    for refusal in deepspeed_refusals(given, root, world_of(context), installed_by(code, context.props), options):
        raise must(f"hyperparameters[{refusal.key!r}]", refusal.rule, refusal.example, refusal.got)


def _bash_of(code: TrainingCode) -> str | None:
    """The text of bash that starts the scripts, of the command or of the entry point; None where a script is started."""
    if code.is_shell_script:
        return Path(code.directory, code.entry_point).read_bytes().decode(errors="replace")
    return code.command


def starts_processes(code: TrainingCode) -> bool:
    """Return whether a command, or a file of bash, names a launcher."""
    if (text := _bash_of(code)) is None:
        return False
    from training_jobs.lint import names_launcher

    return names_launcher(text, Path(code.directory), code.files())


def _command(code: TrainingCode, context: JobContext) -> Command | None:
    """What starts the scripts by bash; None where nothing does."""
    if context.props.get("container_entrypoint") is not None or (text := _bash_of(code)) is None:
        return None
    from training_jobs.lint import Command

    hosts, devices, variables = machines_of(context)
    names = ("SM_NUM_GPUS", "SM_NUM_NEURONS") if kind_of(context) != "neuron" else ("SM_NUM_NEURONS", "SM_NUM_GPUS")
    of_machine = {} if devices is None else dict(zip(names, (str(devices), "0"), strict=True))
    return Command(
        text,
        Path(code.directory),
        {path.as_posix(): Path(code.directory, path) for path in code.files()},
        hosts=hosts,
        devices=devices,
        job=installed_by(code, context.props),
        variables={**of_machine, **variables},
    )


def check_command(code: TrainingCode, context: JobContext) -> None:
    """Check that the programs of a command would start, and its scripts take their arguments.

    Raises:
        ValueError: The job would end, or wait until it is stopped, when its machines are billed.
    """
    if (command := _command(code, context)) is None:
        return
    refuse_command(command.mistakes(), partial(_place, code))
    refuse_arguments(command, context, partial(_place, code))


def _place(code: TrainingCode, line: int) -> str:
    return f"{Path(code.directory, code.entry_point)}:{line}, of code," if code.command is None else "command, of code,"


def _command_advice(code: TrainingCode, command: Command, context: JobContext) -> Iterator[Advice]:
    """Warn of machines that train by themselves, of idle accelerators, and of what a command ignores."""
    for mistake in command.mistakes():
        if mistake.kind != "fails":
            yield from advice(f"command-{mistake.kind}", f"{_place(code, mistake.line)} {mistake}")
    if command.devices is not None and (processes := command.processes()) is not None:
        yield from processes_advice(InstanceGroup(instance_types(context.job_request)[0], command.hosts), processes)
    ignored = {*given_arguments(context)} - {*context.job_request.hyperparameters}
    texts = (text for _, text in _texts(code))
    if ignored and not command.reads_hyperparameters and not any(map(READS_HYPERPARAMETERS.search, texts)):
        text = f'{_place(code, 1)} has neither "$@" nor SM_HP_..., so its scripts do not get '
        yield from advice("command-ignores-hyperparameters", f"{text}hyperparameters[{min(ignored)!r}]")


def check_values(
    props: Mapping[str, Any], requests: Sequence[Mapping[str, Any]], listed: Mapping[str, Sequence[Any]]
) -> None:
    """Check that a script takes what an execution's input may have, where a hyperparameter is a field or its text.

    Args:
        props: The props of the job.
        requests: Its rendered requests.
        listed: Values that are known to be allowed, by the fields' names.

    Raises:
        ValueError: The script would end at such a value.
    """
    code: TrainingCode | None = props.get("code")
    options = None if code is None else _options(code, props)
    if code is None or options is None:
        return
    from training_jobs.lint import refusals

    pairs = code.arguments == "--key value"
    decided = {item for request in requests for item in request.get("HyperParameters", {}).items()}
    for name, expression in sorted(decided):
        key, found = name.removesuffix(".$"), _FIELD.fullmatch(str(expression))
        field = found["name"] if found and key != name else ""
        for value in listed.get(field, ()):
            # CDK renders 2.0 as 2, as JavaScript does.
            text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
            for refusal in refusals(options, {key: text}, code.flags, pairs):
                if refusal.key:
                    prop = f"each value of input_fields[{field!r}], which hyperparameters[{key!r}] has,"
                    raise must(prop, refusal.rule, refusal.example, f"{refusal.got}{OFF}")


def ignored_advice(code: TrainingCode, context: JobContext) -> Iterator[Advice]:
    """Warn of hyperparameters that a script ignores, since it calls ``parse_known_args`` and nothing else reads them."""
    options = _options(code, context.props)
    if options is None:
        return
    from training_jobs.lint import ignored, ignored_keys, scripts_of

    of_job = given_arguments(context)
    for place, known, nearest in ignored_keys(options, of_job, Path(code.directory)):
        yield from advice(
            "script-ignores-key",
            f"hyperparameters['config'] names a file whose key {place} is no option of {options.path}{known}: its TrlParser "
            f"ignores it, and the script's own default is used. Name it like {nearest}.",
        )

    given = {name: text for name, text in of_job.items() if name not in context.job_request.hyperparameters}
    for key, nearest in ignored(options, given, scripts_of(Path(code.directory), code.files())):
        yield from advice(
            "script-ignores-hyperparameter",
            f"hyperparameters[{key!r}] is no option of {options.path}, whose parse_known_args ignores it, and nothing else in "
            f"{code.directory} names it: the script's own default is used. Name it like {nearest}.",
        )


def check_requirements(code: TrainingCode, context: JobContext) -> None:
    """Check that pip can install the folder's requirements.txt in the job's container, as far as that is known.

    Raises:
        ValueError: pip would end when the machines are billed, before the script starts.
    """
    refuse_requirements(_requirement_mistakes(code, context), "code")


def _requirement_advice(code: TrainingCode, context: JobContext) -> Iterator[Advice]:
    """Warn of requirements that pip installs otherwise than meant.

    PyPI's build of a framework lacks what AWS's has (aws/deep-learning-containers, `docker/pytorch/Dockerfile.cuda`: flash-attn
    and transformer-engine built for it, the plugin of EFA), and is of another CUDA: its download is billed on each host.
    """
    for place, mistake in _requirement_mistakes(code, context):
        yield from advice(f"requirement-{mistake.kind.value}", f"{place} {mistake}.")


def _requirement_mistakes(code: TrainingCode, context: JobContext) -> Iterator[tuple[str, Mistake]]:
    """The mistakes of requirements.txt, each with its place."""
    props = context.props
    if props.get("container_entrypoint") is None and code.has(str(REQUIREMENTS)):
        target = target_of(container_of(props), props["image"], names_index(context))
        yield from mistakes_at(Path(code.directory), target)


def unsaved_model_advice(code: TrainingCode, requests: Sequence[Mapping[str, Any]]) -> Iterator[Advice]:
    """Warn of scripts that save a model where nothing names the folder that SageMaker uploads.

    Args:
        code: The folder.
        requests: The rendered requests, whose hyperparameters and variables may name it.
    """
    given = [{**request.get("HyperParameters", {}), **request.get("Environment", {})} for request in requests]
    decided = (name for values in given for name in values if name.endswith(".$"))
    texts = [*_texts(code)]
    if any(map(_FOLDERS.search, decided)) or any(map(_UPLOADED.search, (str(given), *(text for _, text in texts)))):
        return
    if (saved := _saved(texts)) is not None:
        yield from advice(
            "script-saves-elsewhere",
            f"{saved} saves a model, and nothing in {code.directory} or in the hyperparameters names /opt/ml/model, "
            "os.environ['SM_MODEL_DIR'], whose content alone SageMaker uploads when the job has ended: save it there, or set "
            "missing_model='ignore'.",
        )


def _texts(code: TrainingCode) -> Iterator[tuple[Path, str]]:
    """The files of a folder that may name others."""
    for path in code.files():
        if path.suffix in TEXTS:
            yield Path(code.directory, path), Path(code.directory, path).read_text(errors="replace")


def _saved(texts: Iterable[tuple[Path, str]]) -> str | None:
    """The first file and line that save a model; None without."""
    for path, text in texts:
        if saved := _SAVES.search(text):
            line = text.count("\n", 0, saved.start()) + 1
            return f"{path}:{line}"
    return None


def _checkpoint_advice(code: TrainingCode, context: JobContext) -> Iterator[Advice]:
    """Warn of scripts that save, where nothing names the folder of the checkpoints.

    AWS's guide, "Checkpoints in Amazon SageMaker AI": it copies that folder, ``CheckpointConfig.LocalPath``, to S3 and back.
    """
    if checkpoints_of(context.props) is None:
        return
    folder = (local_path_of(context.props) or CHECKPOINTS).rstrip("/")
    given = {**given_arguments(context), **(context.props.get("environment") or {}), **context.job_request.environment}
    decided = (name for name, value in given.items() if value is None or is_unresolved(value))
    texts = [*_texts(code)]
    named = (f"{code.command} {given}", *(text for _, text in texts))
    names = any(folder in text or {"/opt/ml", "checkpoints"} <= {*_WORDS.findall(text)} for text in named)
    if names or any(map(_FOLDERS.search, decided)):
        return
    if (saved := _saved(texts)) is not None:
        yield from advice(
            "script-checkpoints-elsewhere",
            f"{saved} saves, and nothing in {code.directory} or in the hyperparameters names {folder}, whose files alone a job "
            f"finds again that is interrupted or retried: save checkpoints there, and load the last at the start.",
        )


def _options(code: TrainingCode, props: Mapping[str, Any]) -> Options | None:
    """The options of the script that is started; None where it is not by the toolkit, or they are not certain."""
    from training_jobs.lint import options_of, scripts_of

    path = Path(code.directory, code.entry_point)
    # HfArgumentParser reads more arguments from a file of the script's name.
    if (
        code.command is not None
        or code.arguments == "key=value"
        or props.get("container_entrypoint") is not None
        or path.with_suffix(".args").is_file()
    ):
        return None
    scripts = scripts_of(Path(code.directory), [Path(code.entry_point)])
    asks = scripts and scripts[0].imports & {"transformers", "trl"}
    versions = installed_by(code, props).versions if asks else {}
    return options_of(scripts[0], versions) if scripts else None
