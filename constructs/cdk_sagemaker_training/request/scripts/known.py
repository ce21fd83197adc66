"""What is known of what a job has installed, its machines and the arguments of its script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import is_unlisted
from cdk_sagemaker_training.data.code import TrainingCode
from cdk_sagemaker_training.facts.containers import aws_container
from cdk_sagemaker_training.facts.instance_facts import instance_facts
from cdk_sagemaker_training.facts.modules import keras_of, modules_of, of_hugging_face
from cdk_sagemaker_training.jobs.hyperparameters import encode_hyperparameter
from cdk_sagemaker_training.jobs.launchers import PROCESSES_PER_HOST, launchers_of
from cdk_sagemaker_training.request.context import JobContext
from cdk_sagemaker_training.request.machine import instance_count, instance_types
from training_jobs.facts.bases import has_toolkit

if TYPE_CHECKING:
    from cdk_sagemaker_training.resources.image import TrainingImage
    from training_jobs.lint import Command, Job
    from training_jobs.lint.image_installs import Installs
    from training_jobs.lint.requirements import Target

# The toolkit keeps them to itself (params.py of sagemaker-training).
_OF_TOOLKIT = "sagemaker_"
REQUIREMENTS = Path("requirements.txt")  # which the toolkit installs
# Requirements that pin a library of Hugging Face, and what installs others beside requirements.txt.
_OF_HUGGING_FACE = ("transformers", "trl", "peft", "accelerate", "datasets", "deepspeed")
_PINNED = (*_OF_HUGGING_FACE, "keras")
_PINS = re.compile(r"(\w+)(?:\[[\w, -]+\])?\s*={2,3}\s*(\d+\.\d+(?:\.\d+)?)\s*(?:[;#].*)?")
# A requirement of the last version of Keras 3 that is from some version on.
_KERAS = re.compile(r"keras\s*>=\s*(3\.\d+)(?:\.\d+)?\s*(?:,\s*<\s*4(?:\.0)*\s*)?(?:[;#].*)?")
_INSTALLS = re.compile(r"\b(?:pip3?|conda|mamba|uv|poetry)\b")
# The toolkit's launchers that start one process on each host (TensorFlow's).
_OF_HOSTS = {"sagemaker_multi_worker_mirrored_strategy_enabled", "sagemaker_parameter_server_enabled"}
_RANKS = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}
_FRAMEWORKS = {"torch": "pytorch", "tensorflow": "tensorflow"}
# Requirements that may bring another version of a library than the container's.
_TRAINERS = "transformers|trl|peft|optimum|sentence|setfit|adapters|unsloth|axolotl|llama|auto|simple"
_BRINGS = {
    library: re.compile(names, re.IGNORECASE)
    for library, names in {
        "python": "(?!)",  # which no requirement brings
        "torch": "torch|lightning|pytorch|functorch|xformers|vllm",
        "numpy": "numpy",
        **dict.fromkeys(("tensorflow", "keras"), "tensorflow|keras|tf[-_]"),
        "transformers": _TRAINERS,
        "trl": "trl|unsloth|axolotl|llama|auto|simple",
        "peft": _TRAINERS,
        "accelerate": f"accelerate|{_TRAINERS}",
        "datasets": f"datasets|{_TRAINERS}|evaluate",
    }.items()
}
_BRINGS_ANY = re.compile(r"[-./]|\w+[+:]")  # another file, a folder, an address


def compilers_of(context: JobContext) -> tuple[bool, bool]:
    """Whether a compiler of the job's own is named, and whether one has devices of XLA."""
    environment, parameters = context.job_request.environment, context.job_request.hyperparameters
    xla = "NEURON_COMPILE_CACHE_URL" in environment or parameters.get("sagemaker_training_compiler_enabled") == "true"
    return "TRAINING_COMPILER" in environment, xla or "PJRT_DEVICE" in environment


def container_of(props: Mapping[str, Any]) -> str | None:
    """The repository and the tag of AWS's container of a job; None for another image."""
    image = props["image"]
    base: str | None = image.base if getattr(image, "is_container", False) else None
    return base


def versions_of(base: str, image: TrainingImage, texts: Iterable[str], props: Mapping[str, Any]) -> dict[str, str]:
    """The versions of a container that requirements leave as they are, and those that they pin."""
    lines = [line for text in texts if (line := text.strip()) and not line.startswith("#")]
    contents = image.contents()
    known = {library: (contents.versions if contents else {}).get(name, "") for library, name in _FRAMEWORKS.items()}
    legacy = "TF_USE_LEGACY_KERAS" in {**_variables(image), **(props.get("environment") or {})}
    if legacy:
        del known["tensorflow"]  # whose Keras is of another version
    elif known["tensorflow"]:
        known["keras"] = keras_of(known["tensorflow"])
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
    pins = [match.groups() for line in lines if (match := _PINS.fullmatch(line)) and match[1] in _PINNED]
    names = [name for name, _ in pins]
    found |= {name: version for name, version in pins if names.count(name) == 1}
    of_keras = [line for line in lines if re.match(r"(?:tf[-_])?keras\b", line)]
    if len(of_keras) == 1 and (newer := _KERAS.fullmatch(of_keras[0])):
        found["keras"] = f"{newer[1]} or newer"
    if legacy:
        found.pop("keras", None)
    return found


def _variables(image: TrainingImage) -> Mapping[str, str]:
    """Those that a Dockerfile sets."""
    return image.dockerfile.image.env if image.dockerfile else {}


def _installs(code: TrainingCode, files: Iterable[Path]) -> bool:
    """Whether a command or a shell script, which is no Python, may install what requirements.txt does not name."""
    shell = [path for path in files if path.suffix == ".sh"] if code.command is not None or code.is_shell_script else []
    texts = [(Path(code.directory) / path).read_text(errors="replace") for path in shell]
    return any(map(_INSTALLS.search, [code.command or "", *texts]))


def is_offline(props: Mapping[str, Any]) -> bool:
    """Whether a job's hosts have no route to the internet, nor a mirror of Hugging Face's Hub or a cache in its place."""
    network, variables = props.get("network"), props.get("environment") or {}
    apart = props.get("network_isolation") is True or (network is not None and not network.has_egress)
    return apart and not any(name.startswith("HF_") for name in variables)


def is_of_framework(image: TrainingImage) -> bool:
    """Whether a Dockerfile builds an image from one of AWS's containers, whose toolkit starts scripts."""
    if image.dockerfile is None or image.base is None or is_unresolved(image.base) or is_unlisted(image.base):
        return False
    container = aws_container(image.dockerfile.image.parent)
    return container is not None and has_toolkit(container)


def _installed_over(image: TrainingImage) -> Installs | None:
    """What is installed over one of AWS's containers; None for another image, or where that is not known."""
    from training_jobs.lint.image_installs import Installs, installs_of

    if getattr(image, "is_container", False):
        return Installs()
    if not is_of_framework(image) or image.provides or image.dockerfile is None or not image.dockerfile.path.is_file():
        return None
    return installs_of(image.dockerfile)


def installed_in(image: TrainingImage, props: Mapping[str, Any], file: Path | None = None) -> Job:
    """What is known of what one of AWS's containers has, or an image that is built from one, with a file of requirements."""
    from training_jobs.lint import Job
    from training_jobs.lint.requirements import absent_modules

    base, installs = image.base, _installed_over(image)
    if installs is None or base is None or is_unresolved(base):
        return Job()
    added = [] if file is None else file.read_text(errors="replace").splitlines()
    versions = versions_of(base, image, [*installs.lines, *added], props)
    variables = {**_variables(image), **(props.get("environment") or {})}
    elsewhere = props.get("container_entrypoint") is not None or "PYTHONPATH" in variables
    known = None if elsewhere else modules_of(base)
    if known is None or not (installs.requirements or installs.files or file):
        return Job(modules=known, versions=versions)
    absent = installs.absent() if file is None else installs.absent() & absent_modules(file.parent, file.name)
    return Job(absent=absent - known, versions=versions)


def installed_by(code: TrainingCode, props: Mapping[str, Any]) -> Job:
    """What is known of what the job's hosts have installed."""
    files = {*code.files()}
    file = Path(code.directory, REQUIREMENTS) if REQUIREMENTS in files else None
    job = installed_in(props["image"], props, file)
    if {Path("setup.py"), Path("setup.cfg"), Path("pyproject.toml")} & files:
        job = replace(job, modules=None, absent=frozenset())
    return replace(job, versions={}) if Path("setup.py") in files or _installs(code, files) else job


def started_in(
    job: Job, context: JobContext, command: Command | None = None, variables: Mapping[str, str] | None = None
) -> Job:
    """A job with how many processes of its script run on each machine, and whether torchrun starts them."""
    request, job = context.job_request, replace(job, devices=machines_of(context)[1])
    set_by_user = _RANKS & {*(context.props.get("environment") or {}), *(variables or {})}
    if (
        request.group_names
        or set_by_user
        or (command is None and context.props.get("container_entrypoint") is not None)
    ):
        return job  # each group starts in a way of its own
    hosts, launchers = instance_count(request), launchers_of(request.hyperparameters)
    if command is not None:
        each, launched = command.started()
        return replace(job, hosts=hosts, processes_per_host=each, launched=launched)
    if not launchers:
        return replace(job, hosts=hosts, processes_per_host=1, launched=False)
    if {*launchers} <= _OF_HOSTS:
        return replace(job, hosts=hosts, processes_per_host=1)
    by_torchrun = request.hyperparameters.get("sagemaker_torch_distributed_enabled") == "true"
    by_torchrun = by_torchrun and "ACCELERATE_USE_CPU" not in (context.props.get("environment") or {})  # it is told
    facts, given = (
        [instance_facts(name) for name in instance_types(request)],
        request.hyperparameters.get(PROCESSES_PER_HOST),
    )
    numbers = {None if known is None else known.processes for known in facts}
    number = int(given) if given is not None and given.isdigit() else numbers.pop() if len(numbers) == 1 else None
    return replace(job, hosts=hosts, processes_per_host=number, launched=True if by_torchrun else None)


def world_of(context: JobContext) -> int | None:
    """The number of torchrun's processes on all machines; None where that is not known."""
    from training_jobs.lint import Job

    job = started_in(Job(), context)
    return job.processes if job.launched else None


def machines_of(context: JobContext) -> tuple[int | None, int | None, dict[str, str]]:
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


def kind_of(context: JobContext) -> str | None:
    """The kind of the first machine's accelerators."""
    facts = instance_facts(instance_types(context.job_request)[0])
    return None if facts is None else facts.kind


def target_of(base: str | None, image: TrainingImage, indexes: bool) -> Target:
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


def given_arguments(context: JobContext) -> dict[str, str | None]:
    """The texts of the hyperparameters that are passed as arguments; None for those that an execution decides."""
    request = context.job_request
    values = {**(context.props.get("hyperparameters") or {}), **request.overrides}
    encoded = {name: encode_hyperparameter(name, value) for name, value in values.items()}
    texts = {**encoded, **request.hyperparameters}
    return {
        name: None if is_unresolved(text) else text for name, text in texts.items() if not name.startswith(_OF_TOOLKIT)
    }
