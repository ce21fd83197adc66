"""The folder with a script of SageMaker's SDK, which a stack's deployment uploads in place of the script of the SDK."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training_jobs.adopt.members import Difference
from training_jobs.adopt.python_source import Call

# AWS's containers for training, whose toolkit starts code (aws/deep-learning-containers).
_WITH_TOOLKIT = re.compile(
    r"\.dkr\.ecr\.[^/]+/(?:(?:huggingface-)?(?:pytorch|tensorflow)(?:-trcomp)?-training(?:-neuronx?)?"
    r"|smdistributed-modelparallel)[:@]"
)
_OF_TOOLKIT = ("sagemaker_program", "sagemaker_submit_directory")
_CHANNELS = ("code", "sm_drivers")
_CODE_FOLDER, _FOLDER_OF_TOOLKIT = "/opt/ml/input/data/code", "/opt/ml/code"
# What ModelTrainer sets or puts there (container_drivers/scripts/environment.py of sagemaker-train), and the toolkit does not.
_MODEL_TRAINERS_OWN = re.compile(
    r"\bSM_(?:HOST_COUNT|CURRENT_HOST_RANK|MASTER_ADDR|MASTER_PORT|SOURCE_DIR|ENTRY_SCRIPT)\b|/opt/ml/input/data/(?:code|sm_drivers)"
)
_OF_COMMAND = ("SM_HOST_COUNT", "SM_CURRENT_HOST_RANK", "SM_MASTER_ADDR", "SM_MASTER_PORT")
_TEXTS = (".py", ".sh", ".yaml", ".yml", ".json")
_LEFT_OUT = (".*", "__pycache__")  # which TrainingCode leaves out by itself


@dataclass(frozen=True)
class Source:
    """Where an estimator or a ModelTrainer has its script.

    Attributes:
        directory: The folder, as the script names it.
        entry_point: The script in it; "" with a command.
        command: The command that starts it; "" for none.
        requirements: The file of requirements that it installs; None for the one that the toolkit finds, "" for none.
        exclude: Patterns of files that it does not upload.
        launcher: ``"Torchrun"``, ``"MPI"`` or ``""`` of a ModelTrainer.
        processes: For each host; None for one for each GPU.
        mpi_options: Of mpirun.
        dependencies: Other folders whose content an estimator puts beside the script.
        of_model_trainer: Whether it is a ModelTrainer's.
    """

    directory: str
    entry_point: str = ""
    command: str = ""
    requirements: str | None = None
    exclude: tuple[str, ...] = ()
    launcher: str = ""
    processes: int | None = None
    mpi_options: str = ""
    dependencies: tuple[str, ...] = ()
    of_model_trainer: bool = False

    @property
    def has_other_requirements(self) -> bool:
        """Whether it installs a file of requirements that the toolkit does not find."""
        return self.requirements not in (None, "") and os.path.normpath(str(self.requirements)) != "requirements.txt"


@dataclass(frozen=True)
class UploadedCode:
    """A request whose code a stack uploads.

    Attributes:
        request: The request without what starts the code.
        call: The ``TrainingCode``.
        differences: What the stack's request has otherwise.
    """

    request: dict[str, Any]
    call: Call
    differences: tuple[Difference, ...]


def uploaded_code(request: Mapping[str, Any], source: Source, beside: Path) -> UploadedCode | None:
    """Return a request with the code of a folder; None where the stack cannot upload it, or the image cannot start it.

    Args:
        request: CreateTrainingJob's request.
        source: The folder, and what starts it.
        beside: The folder in which the stack runs.
    """
    folder, image = Path(source.directory), request.get("AlgorithmSpecification", {}).get("TrainingImage") or ""
    if not folder.is_dir() or not _WITH_TOOLKIT.search(image):
        return None
    source = replace(source, entry_point=source.entry_point and os.path.normpath(source.entry_point))
    reads = [*_reads(folder)] if source.of_model_trainer else []
    command = _command(source, of_hosts=any(name in _OF_COMMAND for _, name in reads))
    if not command and not (folder / source.entry_point).is_file():
        return None
    rest = copy.deepcopy(dict(request))
    call = Call(
        "TrainingCode",
        (os.path.relpath(folder.resolve(), beside.resolve()),),
        {
            "entry_point": source.entry_point if not command else None,
            "command": command or None,
            "exclude": [one for one in source.exclude if not one.startswith(".") and one not in _LEFT_OUT] or None,
        },
    )
    taken = [
        (member, value)
        for member, value in (_of_model_trainer if source.of_model_trainer else _of_estimator)(rest, source)
        if member != "HyperParameters.sagemaker_program" or value != json.dumps(source.entry_point)
    ]
    notes = [Difference(member, value, _why(member, value)) for member, value in taken]
    return UploadedCode(rest, call, (*notes, *_notes(source, folder, [] if source.launcher else [*_OF_COMMAND], reads)))


def _why(member: str, value: Any) -> str:
    if value is None:
        return "added: the container's toolkit starts code=TrainingCode(...)"
    given = "changed" if member.startswith("HyperParameters") else "left out"
    return f"{given}: each deployment uploads code=TrainingCode(...)"


def _command(source: Source, *, of_hosts: bool) -> str:
    """The command that starts the script where the toolkit does not: the SDK's own, or one that installs other requirements.

    Args:
        source: Where the script is.
        of_hosts: Whether it reads what a command is told of the hosts, and the toolkit does not tell.
    """
    command = source.command.replace(_CODE_FOLDER, _FOLDER_OF_TOOLKIT)
    if source.launcher or not (source.has_other_requirements or of_hosts):
        return command
    start = command or f'{"python" if source.entry_point.endswith(".py") else "bash"} {source.entry_point} "$@"'
    installs = f"python -m pip install -r {source.requirements} && " if source.has_other_requirements else ""
    return f"{installs}{start}"


def _of_estimator(request: dict[str, Any], source: Source) -> Iterator[tuple[str, Any]]:
    texts = request.get("HyperParameters", {})
    for name in _OF_TOOLKIT:
        if name in texts:
            yield f"HyperParameters.{name}", texts.pop(name)


def _of_model_trainer(request: dict[str, Any], source: Source) -> Iterator[tuple[str, Any]]:
    """What starts a ModelTrainer's script, removed from its request, and what the toolkit has in its place."""
    algorithm = request["AlgorithmSpecification"]
    for name in ("ContainerEntrypoint", "ContainerArguments"):
        if name in algorithm:
            yield f"AlgorithmSpecification.{name}", algorithm.pop(name)
    channels = request.pop("InputDataConfig", [])
    for one in channels:
        if one["ChannelName"] in _CHANNELS:
            yield f"InputDataConfig[{one['ChannelName']}]", one["DataSource"]["S3DataSource"]["S3Uri"]
    if kept := [one for one in channels if one["ChannelName"] not in _CHANNELS]:
        request["InputDataConfig"] = kept
    launcher: dict[str, Any] = {"Torchrun": {"sagemaker_torch_distributed_enabled": True}}.get(source.launcher, {})
    if source.launcher == "MPI":
        launcher = {"sagemaker_mpi_enabled": True, "sagemaker_mpi_custom_mpi_options": source.mpi_options}
    if launcher and source.processes is not None:
        launcher["sagemaker_mpi_num_of_processes_per_host"] = source.processes
    if launcher:
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in launcher.items()}
        request["HyperParameters"] = {**request.get("HyperParameters", {}), **texts}
    for name in (*launcher, *_OF_TOOLKIT):
        yield f"HyperParameters.{name}", None


def _reads(folder: Path) -> Iterator[tuple[str, str]]:
    """The lines of a folder's files that read what ModelTrainer alone has, and the first that each of them reads."""
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if path.suffix in _TEXTS and path.is_file() and not any(part.startswith(".") for part in place.parts):
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if found := _MODEL_TRAINERS_OWN.search(line):
                    yield f"{place}:{number}", found[0]


def _notes(
    source: Source, folder: Path, given: Sequence[str], reads: Sequence[tuple[str, str]]
) -> Iterator[Difference]:
    """What the script finds otherwise than where the SDK starts it."""
    for one in source.dependencies:
        yield Difference(f"dependencies {one!r}", None, f"its files are not in {source.directory}: copy them there")
    if source.requirements == "" and (folder / "requirements.txt").is_file():
        yield Difference("requirements.txt", None, "installed, which the SDK's call does not ask for")
    if source.launcher and source.has_other_requirements:
        yield Difference(f"requirements {source.requirements!r}", None, "not installed: name it requirements.txt")
    for where, name in reads:
        if name not in given:
            yield Difference(where, None, f"it reads {name}, which ModelTrainer alone has: change it")
