"""Mistakes in the training scripts of ``code`` and of an image's Dockerfile, by the rules of ``training-jobs lint``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import is_unlisted
from cdk_sagemaker_training.data.code import TrainingCode
from cdk_sagemaker_training.data.observability import Debugger
from cdk_sagemaker_training.facts.containers import aws_container
from cdk_sagemaker_training.facts.instance_facts import instance_facts
from cdk_sagemaker_training.facts.modules import modules_of, of_hugging_face
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.jobs.hyperparameters import encode_hyperparameter
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.launchers import PROCESSES_PER_HOST, launchers_of, processes_advice
from cdk_sagemaker_training.request.context import JobContext
from cdk_sagemaker_training.request.image_contents import device_of
from cdk_sagemaker_training.request.machine import instance_count, instance_types
from cdk_sagemaker_training.request.variables import names_index
from cdk_sagemaker_training.resources.image_advice import toolkit_advice

if TYPE_CHECKING:
    from cdk_sagemaker_training.resources.image import TrainingImage
    from training_jobs.lint import Command, Job
    from training_jobs.lint.image_start import ImageStart
    from training_jobs.lint.options import Options
    from training_jobs.lint.requirements import Mistake, Target

_MOST = 3  # of one rule, in one warning
# The toolkit keeps them to itself (params.py of sagemaker-training).
_OF_TOOLKIT = "sagemaker_"
# Files that name folders; what is uploaded; what saves a model; and hyperparameters that name a folder.
_TEXTS = (".py", ".sh", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini")
_UPLOADED = re.compile(r"/opt/ml/model|SM_MODEL_DIR|\bmodel_dir\b")
_SAVES = re.compile(
    r"torch\.save\(|\.save_pretrained\(|\.save_model\(|\.save_weights\(|\bmodel\.save\(|saved_model\.save\(|joblib\.dump\("
)
_FOLDERS = re.compile(r"dir|path|folder|out|save", re.IGNORECASE)
# A place in an execution's input, or that as text.
_FIELD = re.compile(r"(?:States\.Format\('\{\}', )?\$\.(?P<name>\w+)\)?")
_REQUIREMENTS = Path("requirements.txt")  # which the toolkit installs
# Requirements that pin a library of Hugging Face, and what installs others beside requirements.txt.
_OF_HUGGING_FACE = ("transformers", "trl", "peft", "accelerate", "datasets", "deepspeed")
_PINS = re.compile(r"(\w+)(?:\[[\w, -]+\])?\s*={2,3}\s*(\d+\.\d+(?:\.\d+)?)\s*(?:[;#].*)?")
_INSTALLS = re.compile(r"\b(?:pip3?|conda|mamba|uv|poetry)\b")
_FRAMEWORKS = {"torch": "pytorch", "tensorflow": "tensorflow"}
# Requirements that may bring another version of a library than the container's.
_TRAINERS = "transformers|trl|peft|optimum|sentence|setfit|adapters|unsloth|axolotl|llama|auto|simple"
_BRINGS = {
    library: re.compile(names, re.IGNORECASE)
    for library, names in {
        "python": "(?!)",  # which no requirement brings
        "torch": "torch|lightning|pytorch|functorch|xformers|vllm",
        "numpy": "numpy",
        "tensorflow": "tensorflow|keras|tf[-_]",
        "transformers": _TRAINERS,
        "trl": "trl|unsloth|axolotl|llama|auto|simple",
        "peft": _TRAINERS,
        "accelerate": f"accelerate|{_TRAINERS}",
        "datasets": f"datasets|{_TRAINERS}|evaluate",
    }.items()
}
_BRINGS_ANY = re.compile(r"[-./]|\w+[+:]")  # another file, a folder, an address
_READS_HYPERPARAMETERS = re.compile(r"SM_HP|SM_TRAINING_ENV|SM_USER_ARGS|hyperparameters\.json")
# Docker's own image of Python, with the version.
_OF_PYTHON = re.compile(r"python:3\.(\d+)(?:[.-].*)?")
# AWS's containers of frameworks, whose toolkit starts scripts; those of algorithms have something to do without.
_OF_FRAMEWORKS = re.compile(r"pytorch|tensorflow|huggingface|mxnet|smdistributed")
# How a script of an image may run another.
_STARTS_OTHERS = re.compile(r"argv|subprocess|exec|runpy|sagemaker|import_module|hyperparameters|system\(")
_COMMAND_OFF = "a comment `# training-jobs: allow command` in it switches this off"
_OFF = "; a comment `# training-jobs: allow options` at its beginning switches this off"


def code_advice(code: TrainingCode, context: JobContext) -> Iterator[Advice]:
    """Warn of mistakes in a folder's scripts, with their lines, and of hyperparameters that its script ignores."""
    files = tuple(code.files())
    yield from ignored_advice(code, context)
    yield from _requirement_advice(code, context)
    yield from _command_advice(code, context)
    yield from _advice(Path(code.directory), files, context, code.script, _installed(code, context))


def copied_code_advice(image: TrainingImage, context: JobContext) -> Iterator[Advice]:
    """Warn of mistakes in the scripts that a Dockerfile copies; nothing where it copies what its text does not name."""
    yield from _built_requirement_advice(image, context)
    root, scripts = _copied_scripts(image)
    start = image_start(image, context)
    yield from _advice(root, scripts, context, _entry_point(start), start.job if start is not None else None)


def _entry_point(start: ImageStart | None) -> str:
    """The script that an image starts, relative to the build context; "" where that is not known."""
    if start is None:
        return ""
    if start.starts_toolkit:
        env = start.dockerfile.image.env
        place = posixpath.join(env.get("SAGEMAKER_SUBMIT_DIRECTORY", "/opt/ml/code"), env.get("SAGEMAKER_PROGRAM", "?"))
        file = start.dockerfile.image.files.get(place) if start.program is None else None
    else:
        file = next((start.command.files.get(one.script) for one in start.command.starts), None)
    return "" if file is None else file.relative_to(start.dockerfile.directory).as_posix()


def _copied_scripts(image: TrainingImage) -> tuple[Path, list[Path]]:
    """The build context of a Dockerfile, and the scripts that it copies, relative to that."""
    if image.dockerfile is None:
        return Path(), []
    root, files = image.dockerfile.directory, image.dockerfile.image.files.values()
    return root, [*dict.fromkeys(file.relative_to(root) for file in files if file.suffix == ".py")]


def debugger_advice(debugger: Debugger, context: JobContext) -> Iterator[Advice]:
    """Warn of Debugger beside a compiler, whose hook reads tensors of the steps that it saves.

    AWS's pages on enabling the Training Compiler set ``debugger_hook_config=False``, and its notebooks do.
    """
    if any(_compilers(context)):
        yield from advice(
            "debugger-beside-compiler",
            "Debugger's hook reads tensors in the steps that it saves, which ends the compiled graph and makes the host wait: "
            "leave debugger out of a compiled job, like debugger=None, or save every few hundred steps.",
        )


def _compilers(context: JobContext) -> tuple[bool, bool]:
    """Whether a compiler of the job's own is named, and whether one has devices of XLA."""
    environment, parameters = context.job_request.environment, context.job_request.hyperparameters
    xla = "NEURON_COMPILE_CACHE_URL" in environment or parameters.get("sagemaker_training_compiler_enabled") == "true"
    return "TRAINING_COMPILER" in environment, xla or "PJRT_DEVICE" in environment


def _modules(
    code: TrainingCode, files: Sequence[Path], context: JobContext
) -> tuple[frozenset[str] | None, frozenset[str]]:
    """What scripts may import that AWS's container has, None where others may be there; and what is certainly not there."""
    base, props = _container(context.props), context.props
    elsewhere = props.get("container_entrypoint") is not None or "PYTHONPATH" in (props.get("environment") or {})
    known = None if base is None or is_unresolved(base) or elsewhere else modules_of(base)
    if known is None or {Path("setup.py"), Path("setup.cfg"), Path("pyproject.toml")} & {*files}:
        return None, frozenset()
    if _REQUIREMENTS not in files:
        return known, frozenset()
    from training_jobs.lint.requirements import absent_modules

    return None, absent_modules(Path(code.directory)) - known


def _container(props: Mapping[str, Any]) -> str | None:
    """The repository and the tag of AWS's container of a job; None for another image."""
    image = props["image"]
    base: str | None = image.base if getattr(image, "is_container", False) else None
    return base


def _requirements(code: TrainingCode, files: Iterable[Path]) -> list[str]:
    """The lines of the folder's requirements.txt, none where there is none."""
    path = Path(code.directory, _REQUIREMENTS)
    return path.read_text(errors="replace").splitlines() if _REQUIREMENTS in files else []


def _versions(code: TrainingCode, files: Sequence[Path], props: Mapping[str, Any]) -> dict[str, str]:
    """The versions that a folder's scripts find of AWS's container: not of what requirements, or a setup.py, may replace."""
    base = _container(props)
    if base is None or Path("setup.py") in files or _installs(code, files):
        return {}
    return _versions_of(base, props["image"], _requirements(code, files), props)


def _versions_of(base: str, image: TrainingImage, texts: Iterable[str], props: Mapping[str, Any]) -> dict[str, str]:
    """The versions of a container that requirements leave as they are, and those that they pin."""
    lines = [line for text in texts if (line := text.strip()) and not line.startswith("#")]
    contents = image.contents()
    known = {library: (contents.versions if contents else {}).get(name, "") for library, name in _FRAMEWORKS.items()}
    if "TF_USE_LEGACY_KERAS" in (props.get("environment") or {}):
        del known["tensorflow"]  # whose Keras is of another version
    known |= of_hugging_face(base)
    if contents and contents.pythons:
        python = min(int(name[3:] or 0) for name in contents.pythons)
        known["python"] = f"3.{python}" if len(contents.pythons) == 1 else f"3.{python} or newer"
        if python >= 12:
            known["numpy"] = "1.26 or newer"  # the first with wheels for Python 3.12
    found = {
        library: version
        for library, version in known.items()
        if version and not any(_BRINGS[library].match(line) or _BRINGS_ANY.match(line) for line in lines)
    }
    pins = [match.groups() for line in lines if (match := _PINS.fullmatch(line)) and match[1] in _OF_HUGGING_FACE]
    names = [name for name, _ in pins]
    return found | {name: version for name, version in pins if names.count(name) == 1}


def _installs(code: TrainingCode, files: Iterable[Path]) -> bool:
    """Whether a command or a shell script, which is no Python, may install what requirements.txt does not name."""
    shell = [path for path in files if path.suffix == ".sh"] if code.command is not None or code.is_shell_script else []
    texts = [(Path(code.directory) / path).read_text(errors="replace") for path in shell]
    return any(map(_INSTALLS.search, [code.command or "", *texts]))


def _advice(
    root: Path,
    files: Iterable[Path],
    context: JobContext,
    entry_point: str = "",
    installed: Job | None = None,
) -> Iterator[Advice]:
    from training_jobs.lint import Job, lint_folder  # here, since most jobs have no folder

    request, compilers = context.job_request, _compilers(context)
    job = replace(
        installed or Job(),
        compiled=any(compilers),
        dynamic=request.environment.get("TRAINING_COMPILER_DYNAMIC") == "true",
        xla=compilers[1],
        spot=context.props.get("spot") is not None,
        groups=request.group_names,
        channels=tuple(context.props.get("channels") or ()),
        entry_point=entry_point,
        device=device_of(request),
        offline=_is_offline(context.props),
    )
    by_rule: dict[str, list[str]] = {}
    for found in lint_folder(root, job, files):
        by_rule.setdefault(found.rule, []).append(f"{root / found.path}:{found.line}: {found.reason}")
    for rule, texts in by_rule.items():
        more = [f"and {len(texts) - _MOST} more"] if len(texts) > _MOST else []
        off = f"a comment `# training-jobs: allow {rule}` switches this off"
        yield from advice(f"script-{rule}", "; ".join((*texts[:_MOST], *more, off)))


def _is_offline(props: Mapping[str, Any]) -> bool:
    """Whether a job's hosts have no route to the internet, nor a mirror of Hugging Face's Hub or a cache in its place."""
    network, variables = props.get("network"), props.get("environment") or {}
    apart = props.get("network_isolation") is True or (network is not None and not network.has_egress)
    return apart and not any(name.startswith("HF_") for name in variables)


def check_options(code: TrainingCode, context: JobContext) -> None:
    """Check that a script takes the hyperparameters, where its options are certain: each is an argument ``--key value``.

    Raises:
        ValueError: The script would end at its arguments, or take False for True.
    """
    pairs = code.arguments == "--key value"
    options, root = _options(code, context.props), Path(code.directory)
    absent = _installed(code, context).absent if options is not None and options.classes else frozenset[str]()
    _refuse(options, context, code.flags, pairs=pairs, folder=root, absent=absent)
    given, elsewhere = _given(context), context.props.get("container_entrypoint") is not None
    if elsewhere or _bash_of(code) is not None or not {"deepspeed", "deepspeed_config"} & given.keys():
        return
    from training_jobs.lint import deepspeed_refusals

    for refusal in deepspeed_refusals(given, root, _world(context), _installed(code, context), options):
        raise must(f"hyperparameters[{refusal.key!r}]", refusal.rule, refusal.example, refusal.got)


def _installed(code: TrainingCode, context: JobContext) -> Job:
    """What is known of what the job's hosts have installed."""
    from training_jobs.lint import Job

    files = tuple(code.files())
    modules, absent = _modules(code, files, context)
    return Job(modules=modules, absent=absent, versions=_versions(code, files, context.props))


def _world(context: JobContext) -> int | None:
    """The number of torchrun's processes on all machines; None where that is not known."""
    request = context.job_request
    hosts, facts = instance_count(request), [instance_facts(name) for name in instance_types(request)]
    given = request.hyperparameters.get(PROCESSES_PER_HOST, "")
    each = {int(given) if given.isdigit() else known.processes for known in facts if known is not None}
    launched = request.hyperparameters.get("sagemaker_torch_distributed_enabled") == "true" and not request.group_names
    return each.pop() * hosts if launched and hosts is not None and len(each) == 1 and None not in facts else None


def check_copied_options(image: TrainingImage, context: JobContext) -> None:
    """Check that the script which a Dockerfile copies, and gives the toolkit by SAGEMAKER_PROGRAM, takes the hyperparameters."""
    program = (
        image.dockerfile.image.program
        if image.dockerfile and context.props.get("container_entrypoint") is None
        else None
    )
    given = (context.job_request.environment, context.props.get("environment"), context.props.get("hyperparameters"))
    named = {name for of_prop in given for name in of_prop or ()}
    if program is None or named & {"SAGEMAKER_PROGRAM", "sagemaker_program"}:
        return
    from training_jobs.lint import options_of, scripts_of

    root, scripts = _copied_scripts(image)
    found = [path for path in scripts if f"/{path}".endswith(f"/{program}")]
    if len(found) == 1:
        _refuse(next(map(options_of, scripts_of(root, found)), None), context, (), pairs=True)


def _bash_of(code: TrainingCode) -> str | None:
    """The text of bash that starts the scripts, of the command or of the entry point; None where a script is started."""
    if code.is_shell_script:
        return Path(code.directory, code.entry_point).read_bytes().decode(errors="replace")
    return code.command


def image_start(image: TrainingImage, context: JobContext) -> ImageStart | None:
    """Return what SageMaker starts in an image that a Dockerfile builds; None for others, or where that is not known."""
    from training_jobs.lint.image_start import TRAIN, ImageStart, is_public

    props, dockerfile = context.props, image.dockerfile
    entrypoint, arguments = props.get("container_entrypoint"), props.get("container_arguments")
    words = [*(entrypoint or ()), *(arguments or ())]
    if dockerfile is None or not dockerfile.path.is_file() or image.base is None:
        return None
    if any(map(is_unresolved, (image.base, *words))):
        return None
    parent = dockerfile.image.parent
    frameworks = _OF_FRAMEWORKS.match(aws_container(parent) or "") is not None
    of_aws = frameworks and not is_unlisted(image.base) and not any(toolkit_advice(image.base))
    given = {
        **(props.get("hyperparameters") or {}),
        **(props.get("environment") or {}),
        **context.job_request.environment,
    }
    named = next((str(given[name]) for name in ("SAGEMAKER_PROGRAM", "sagemaker_program") if name in given), None)
    hosts, devices, variables = _machines(context)
    start = ImageStart(
        dockerfile,
        "toolkit" if of_aws else "public" if is_public(parent) else "",
        None if entrypoint is None else tuple(entrypoint),
        TRAIN if arguments is None else tuple(arguments),
        hosts,
        devices,
        variables=variables,
        program=named if props.get("code") is None else "",
    )
    return replace(start, job=_installed_in(start, image, props))


def _installed_in(start: ImageStart, image: TrainingImage, props: Mapping[str, Any]) -> Job:
    """What is known of what an image that a Dockerfile builds has installed."""
    from training_jobs.lint import Job
    from training_jobs.lint.image_start import BARE_MODULES, has_no_packages

    installs, assured = (
        start.installs,
        "PYTHONPATH" in {**start.dockerfile.image.env, **(props.get("environment") or {})},
    )
    if installs is None or assured or image.base is None or image.provides:
        return Job(built=True)
    lines = [
        *installs.requirements,
        *(line for path in installs.files for line in path.read_text(errors="replace").splitlines()),
    ]
    known = BARE_MODULES if has_no_packages(start.dockerfile.image.parent) else None
    known = modules_of(image.base) if start.base == "toolkit" else known
    versions = _versions_of(image.base, image, lines, props) if start.base == "toolkit" else {}
    if known is None:
        return Job(versions=versions, built=True)
    if not lines:
        return Job(modules=known, versions=versions, built=True)
    return Job(absent=installs.absent() - known, versions=versions, built=True)


def check_image_start(image: TrainingImage, context: JobContext) -> None:
    """Check that what SageMaker starts in an image that a Dockerfile builds is there, and takes its arguments.

    Raises:
        ValueError: The job would end, or wait until it is stopped, when its machines are billed.
    """
    if (start := image_start(image, context)) is None:
        return
    off = "a comment `# training-jobs: allow command` in it switches this off"
    place = f"{start.dockerfile.path}:{start.line}, of image," if start.entrypoint is None else "container_entrypoint"
    for mistake in start.mistakes():
        if mistake.kind == "fails":
            raise must(place, mistake.rule, mistake.example, f"{mistake.got}; {off}")
    if start.starts_toolkit or start.dockerfile.allows_commands:
        return
    from training_jobs.lint import refused_arguments

    for _, _, refusal in refused_arguments(start.command, _given(context), device_of(context.job_request)):
        written = f"{f'--{refusal.key}' if refusal.key else 'the arguments'} of {place}"
        raise must(written, refusal.rule, refusal.example, f"{refusal.got}{_OFF}")
    if context.props.get("code") is not None and (line := _other_script(start)) is not None:
        raise must("code", "be left out", "code=None", f"{context.props['code']!r} with an image that starts {line}")


def _other_script(start: ImageStart) -> str | None:
    """The script that an image starts, where that runs no other; None where that is not known."""
    found = [(one.script, start.command.files.get(one.script)) for one in start.command.starts]
    if len(found) != 1 or found[0][1] is None:
        return None
    return None if _STARTS_OTHERS.search(found[0][1].read_text(errors="replace")) else f"'/{found[0][0]}'"


def image_start_advice(image: TrainingImage, context: JobContext) -> Iterator[Advice]:
    """Warn of machines that train by themselves, of files below /opt/ml, and of hyperparameters that nothing reads."""
    if (start := image_start(image, context)) is None or start.dockerfile.allows_commands:
        return
    place = f"{start.dockerfile.path}:{start.line}"
    for mistake in start.mistakes():
        if mistake.kind != "fails":
            text = f"{place} must {mistake.rule}, like {mistake.example}, got {mistake.got}"
            yield from advice(f"command-{mistake.kind}", text)
    for source, path in start.reserved():
        yield from advice(
            "image-in-opt-ml",
            f"{start.dockerfile.path} copies {source!r} to {path!r}, below /opt/ml, which SageMaker reserves: the file may not "
            "be there when the job runs (AWS's guide, 'How Amazon SageMaker AI Runs Your Training Image'). Copy it to "
            "/opt/program.",
        )
        return
    ignored = {*_given(context)} - {*context.job_request.hyperparameters}
    files = start.dockerfile.image.files.values()
    known = start.base == "public" and start.dockerfile.image.is_certain and not start.starts_toolkit
    texts = (path.read_text(errors="replace") for path in files if path.suffix in ("", *_TEXTS))
    if ignored and known and start.command.starts and not any(map(_READS_HYPERPARAMETERS.search, texts)):
        yield from advice(
            "image-ignores-hyperparameters",
            f"{place} starts no toolkit of SageMaker's, and nothing that it copies reads "
            f"/opt/ml/input/config/hyperparameters.json, so its script does not get hyperparameters[{min(ignored)!r}].",
        )


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

    hosts, devices, variables = _machines(context)
    names = ("SM_NUM_GPUS", "SM_NUM_NEURONS") if _kind(context) != "neuron" else ("SM_NUM_NEURONS", "SM_NUM_GPUS")
    of_machine = {} if devices is None else dict(zip(names, (str(devices), "0"), strict=True))
    return Command(
        text,
        Path(code.directory),
        {path.as_posix(): Path(code.directory, path) for path in code.files()},
        hosts=hosts,
        devices=devices,
        job=_installed(code, context),
        variables={**of_machine, **variables},
    )


def _machines(context: JobContext) -> tuple[int | None, int | None, dict[str, str]]:
    """The number of machines that start alike, the accelerators of each, and the variables that the request gives them."""
    from training_jobs.lint import UNKNOWN

    request = context.job_request
    facts = [instance_facts(name) for name in instance_types(request)]
    devices = {known.processes if known.devices else 0 for known in facts if known is not None}
    # Instance groups, and a launcher that starts the file of bash, start it in ways of their own.
    apart = bool(request.group_names) or bool(launchers_of(request.hyperparameters))
    given = {**request.environment, **(context.props.get("environment") or {})}
    variables = {name: UNKNOWN if is_unresolved(value) else str(value) for name, value in given.items()}
    alike = len(devices) == 1 and None not in facts and not apart
    return None if apart else instance_count(request), devices.pop() if alike else None, variables


def _kind(context: JobContext) -> str | None:
    """The kind of the first machine's accelerators."""
    facts = instance_facts(instance_types(context.job_request)[0])
    return None if facts is None else facts.kind


def check_command(code: TrainingCode, context: JobContext) -> None:
    """Check that the programs of a command would start, and its scripts take their arguments.

    Raises:
        ValueError: The job would end, or wait until it is stopped, when its machines are billed.
    """
    if (command := _command(code, context)) is None:
        return
    for mistake in command.mistakes():
        if mistake.kind == "fails":
            raise must(_place(code, mistake.line), mistake.rule, mistake.example, f"{mistake.got}; {_COMMAND_OFF}")
    from training_jobs.lint import refused_arguments

    for line, is_hyperparameter, refusal in refused_arguments(command, _given(context), device_of(context.job_request)):
        written = f"{f'--{refusal.key}' if refusal.key else 'the arguments'} of {_place(code, line)}"
        prop = f"hyperparameters[{refusal.key!r}]" if is_hyperparameter else written
        raise must(prop, refusal.rule, refusal.example, f"{refusal.got}{_OFF}")


def _place(code: TrainingCode, line: int) -> str:
    return f"{Path(code.directory, code.entry_point)}:{line}, of code," if code.command is None else "command, of code,"


def _command_advice(code: TrainingCode, context: JobContext) -> Iterator[Advice]:
    """Warn of machines that train by themselves, of idle accelerators, and of what a command ignores."""
    if (command := _command(code, context)) is None:
        return
    for mistake in command.mistakes():
        if mistake.kind != "fails":
            text = f"{_place(code, mistake.line)} must {mistake.rule}, like {mistake.example}, got {mistake.got}"
            yield from advice(f"command-{mistake.kind}", text)
    if command.devices is not None and (processes := command.processes()) is not None:
        yield from processes_advice(InstanceGroup(instance_types(context.job_request)[0], command.hosts), processes)
    ignored = {*_given(context)} - {*context.job_request.hyperparameters}
    texts = (Path(code.directory, path).read_text(errors="replace") for path in code.files() if path.suffix in _TEXTS)
    if ignored and not command.reads_hyperparameters and not any(map(_READS_HYPERPARAMETERS.search, texts)):
        text = f'{_place(code, 1)} has neither "$@" nor SM_HP_..., so its scripts do not get '
        yield from advice("command-ignores-hyperparameters", f"{text}hyperparameters[{min(ignored)!r}]")


def _refuse(
    options: Options | None,
    context: JobContext,
    flags: Sequence[str],
    *,
    pairs: bool,
    folder: Path | None = None,
    absent: frozenset[str] = frozenset(),
) -> None:
    if options is None:
        return
    from training_jobs.lint import refusals

    for refusal in refusals(options, _given(context), flags, pairs, folder, device_of(context.job_request), absent):
        prop = f"hyperparameters[{refusal.key!r}]" if refusal.key else "hyperparameters"
        raise must(prop, refusal.rule, refusal.example, f"{refusal.got}{_OFF}")


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
                    raise must(prop, refusal.rule, refusal.example, f"{refusal.got}{_OFF}")


def ignored_advice(code: TrainingCode, context: JobContext) -> Iterator[Advice]:
    """Warn of hyperparameters that a script ignores, since it calls ``parse_known_args`` and nothing else reads them."""
    options = _options(code, context.props)
    if options is None:
        return
    from training_jobs.lint import ignored, ignored_keys, scripts_of

    of_job = _given(context)
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
    for kind, place, mistake in _requirement_mistakes(code, context):
        if kind == "fails":
            off = "a comment `# training-jobs: allow requirements` in it switches this off"
            raise must(f"{place}, of code,", mistake.rule, mistake.example, f"{mistake.got}; {off}")


def _requirement_advice(code: TrainingCode, context: JobContext) -> Iterator[Advice]:
    """Warn of requirements that pip installs otherwise than meant.

    PyPI's build of a framework lacks what AWS's has (aws/deep-learning-containers, `docker/pytorch/Dockerfile.cuda`: flash-attn
    and transformer-engine built for it, the plugin of EFA), and is of another CUDA: its download is billed on each host.
    """
    for kind, place, mistake in _requirement_mistakes(code, context):
        yield from advice(f"requirement-{kind}", f"{place} {mistake}.")


def _built_requirement_advice(image: TrainingImage, context: JobContext) -> Iterator[Advice]:
    """Warn of requirements of a Dockerfile that replace the container's framework, or are built with another."""
    for kind, place, mistake in _built_requirement_mistakes(image, context):
        if kind in ("replaces-framework", "built-otherwise"):
            yield from advice(f"requirement-{kind}", f"{place} {mistake}.")


def _requirement_mistakes(code: TrainingCode, context: JobContext) -> Iterator[tuple[str, str, Mistake]]:
    """The mistakes of requirements.txt: what each leads to, its place, and itself."""
    props = context.props
    if props.get("container_entrypoint") is not None or not code.has(str(_REQUIREMENTS)):
        return
    from training_jobs.lint.requirements import requirement_mistakes

    target = _target(_container(props), props["image"], names_index(context))
    for mistake in requirement_mistakes(Path(code.directory), target):
        yield mistake.kind.value, f"{Path(code.directory) / mistake.path}:{mistake.line}", mistake


def _built_requirement_mistakes(image: TrainingImage, context: JobContext) -> Iterator[tuple[str, str, Mistake]]:
    """The mistakes of files of requirements that a Dockerfile has pip install, as of requirements.txt."""
    start = image_start(image, context)
    if start is None or start.installs is None:
        return
    from training_jobs.lint.requirements import requirement_mistakes

    base = image.base if start.base == "toolkit" else None
    of_python = _OF_PYTHON.fullmatch(image.base or "") if start.base == "public" else None
    target = _target(base, image, start.installs.elsewhere)
    target = target if of_python is None else replace(target, python=int(of_python[1]))
    for file in start.installs.files:
        for mistake in requirement_mistakes(file.parent, target, file.name):
            yield mistake.kind.value, f"{file.parent / mistake.path}:{mistake.line}", mistake


def check_built_requirements(image: TrainingImage, context: JobContext) -> None:
    """Check that pip can install the files of requirements that a Dockerfile names, as far as that is known.

    Raises:
        ValueError: The build of the image would end, and with it the deployment.
    """
    for kind, place, mistake in _built_requirement_mistakes(image, context):
        if kind == "fails":
            off = "a comment `# training-jobs: allow requirements` in it switches this off"
            raise must(f"{place}, of image,", mistake.rule, mistake.example, f"{mistake.got}; {off}")


def _target(base: str | None, image: TrainingImage, indexes: bool) -> Target:
    """Where pip installs: the Python and the versions of a container, and whether it asks another index."""
    from training_jobs.lint.requirements import Target

    versions, pythons = dict[str, str](), tuple[str, ...]()
    if base is not None and (contents := image.contents()):
        pythons = contents.pythons
        versions = {
            name: contents.versions[framework]
            for name, framework in _FRAMEWORKS.items()
            if framework in contents.versions
        }
        versions |= {**of_hugging_face(base), **dict.fromkeys({"flash_attn"} & (modules_of(base) or frozenset()), "")}
    python = int(pythons[0][3:]) if len(pythons) == 1 and pythons[0][3:] else None
    return Target(python, versions, indexes=indexes)


def unsaved_model_advice(code: TrainingCode, requests: Sequence[Mapping[str, Any]]) -> Iterator[Advice]:
    """Warn of scripts that save a model where nothing names the folder that SageMaker uploads.

    Args:
        code: The folder.
        requests: The rendered requests, whose hyperparameters and variables may name it.
    """
    given = [{**request.get("HyperParameters", {}), **request.get("Environment", {})} for request in requests]
    decided = (name for values in given for name in values if name.endswith(".$"))
    root = Path(code.directory)
    texts = [(path, (root / path).read_text(errors="replace")) for path in code.files() if path.suffix in _TEXTS]
    if any(map(_FOLDERS.search, decided)) or any(map(_UPLOADED.search, (str(given), *(text for _, text in texts)))):
        return
    for path, text in texts:
        if saved := _SAVES.search(text):
            line = text.count("\n", 0, saved.start()) + 1
            yield from advice(
                "script-saves-elsewhere",
                f"{root / path}:{line} saves a model, and nothing in {root} or in the hyperparameters names /opt/ml/model, "
                "os.environ['SM_MODEL_DIR'], whose content alone SageMaker uploads when the job has ended: save it there, or set "
                "missing_model='ignore'.",
            )
            return


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
    versions = _versions(code, tuple(code.files()), props) if asks else {}
    return options_of(scripts[0], versions) if scripts else None


def _given(context: JobContext) -> dict[str, str | None]:
    """The texts of the hyperparameters that are passed as arguments; None for those that an execution decides."""
    request = context.job_request
    values = {**(context.props.get("hyperparameters") or {}), **request.overrides}
    encoded = {name: encode_hyperparameter(name, value) for name, value in values.items()}
    texts = {**encoded, **request.hyperparameters}
    return {
        name: None if is_unresolved(text) else text for name, text in texts.items() if not name.startswith(_OF_TOOLKIT)
    }
