"""Evaluates a Dockerfile to a folder with the copied files, and the image's settings.

No command is executed: of RUN, `pip install` is evaluated, and other commands are skipped with a note.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sagemaker_local_account.core.image_names import ImageError, Reference, reference
from sagemaker_local_account.core.image_tree import locate
from sagemaker_local_account.images import copy_instructions, run_instructions
from sagemaker_local_account.images.base_images import base_of
from sagemaker_local_account.images.dockerfile import (
    BuildError,
    Instruction,
    as_json_list,
    command,
    expand,
    expanded,
    pairs,
    parse,
    words,
)
from sagemaker_local_account.images.dockerignore import ignored_by
from sagemaker_local_account.images.pip_install import PipInstall
from sagemaker_local_account.images.training_toolkit import has_a_command, requirements_at_start

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # Docker's default
_PLATFORM = "linux/amd64"
_PLATFORM_ARGS = {
    f"{side}{name}": value
    for side in ("BUILD", "TARGET")
    for name, value in (("ARCH", "amd64"), ("OS", "linux"), ("PLATFORM", _PLATFORM), ("VARIANT", ""))
}
_NOTED = {
    "HEALTHCHECK": "SageMaker does not evaluate it",
    "STOPSIGNAL": "SageMaker stops a host by SIGTERM",
    "USER": "a host's processes run as root of the host",
    "VOLUME": "a host's files are not shared",
}
_INERT = ("EXPOSE", "LABEL", "MAINTAINER")  # metadata, without effect in Docker too


@dataclass
class Stage:
    """A stage of a build: the image as far as it is built.

    Args:
        root: the folder with its files.
        env: ENV.
        base: the requirements of its base image.
        listed: further packages of its base image.
        installs: its `pip install` commands.
        entrypoint: ENTRYPOINT.
        cmd: CMD.
        workdir: WORKDIR.
        shell: SHELL.
        args: ARG.
        has_cmd: whether the stage itself has a CMD.
    """

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    base: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    installs: list[PipInstall] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    cmd: list[str] = field(default_factory=list)
    workdir: str = "/"
    shell: list[str] = field(default_factory=lambda: ["/bin/sh", "-c"])
    args: dict[str, str] = field(default_factory=dict)
    has_cmd: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """The variables for expansion."""
        return {"PATH": _PATH, **self.args, **self.env}

    def beginning(self, root: Path) -> Stage:
        """Returns a stage based on this one, with its files copied to ``root``."""
        shutil.copytree(self.root, root, symlinks=True)
        return Stage(
            root=root,
            env={**self.env},
            base=[*self.base],
            listed=[*self.listed],
            installs=[*self.installs],
            entrypoint=[*self.entrypoint],
            cmd=[*self.cmd],
            workdir=self.workdir,
            shell=[*self.shell],
        )


class DockerfileEvaluator:
    """One build.

    Args:
        context: the build's context.
        dockerfile: the Dockerfile.
        scratch: a folder for the stages.
        build_args: the values of `--build-arg`.
        known: returns the image of a name if the account has it, else None.
        pull: called with each base image that the account does not have; raises ``ImageError`` where it cannot be pulled.
        step: called with each instruction.
        note: called with each note on an instruction that has no effect or a different one.
    """

    def __init__(
        self,
        context: Path,
        dockerfile: Path,
        scratch: Path,
        *,
        build_args: Mapping[str, str],
        known: Callable[[str], Stage | None],
        pull: Callable[[Reference], None],
        step: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._name = dockerfile.name
        self._instructions = parse(dockerfile.read_text(), dockerfile.name)
        self._context = copy_instructions.Source(context, ignored_by(context, dockerfile))
        self._scratch = scratch
        self._given = build_args
        self._declared: set[str] = set()
        self._known = known
        self._pull = pull
        self._step = step
        self._note = note
        self._globals: dict[str, str] = {}
        self._stages: list[Stage] = []
        self._names: dict[str, Stage] = {}

    def build(self, target: str | None = None) -> Stage:
        """Evaluates the Dockerfile up to the stage ``target``, or the last.

        Raises:
            BuildError: an instruction cannot be evaluated.
        """
        count = len(self._instructions)
        for number, instruction in enumerate(self._instructions, 1):
            if instruction.keyword == "FROM" and target is not None and target.lower() in self._names:
                break
            self._step(f"[{number}/{count}] {' '.join(str(instruction).split())}")
            try:
                self._apply(instruction)
            except (OSError, ValueError, tarfile.TarError) as error:
                raise instruction.error(f"{instruction.keyword}: {error}") from None
            except ImageError as error:
                if str(error).startswith(f"{self._name}:"):
                    raise
                raise instruction.error(f"{instruction.keyword}: {error}") from None
        if not self._stages:
            raise BuildError(f"{self._name}: must have a FROM, like 'FROM python:3.11', and has none")
        if target is not None and target.lower() not in self._names:
            raise BuildError(f"{self._name}: has no stage {target!r} to build; it has {sorted(self._names)}")
        for name in sorted(set(self._given) - self._declared - set(_PLATFORM_ARGS)):
            self._note(f"{self._name}: no ARG declares the build argument {name}")
        stage = self._stages[-1]
        if not has_a_command(stage):
            self._note(
                f"{self._name}: has neither an ENTRYPOINT nor the command `train`, which SageMaker starts; jobs of it fail"
            )
        install = requirements_at_start(stage, self._name)
        if install is not None:
            stage.installs.append(install)
            self._note(
                f"{install.place} is installed with the image; on AWS the training toolkit installs it whenever a host starts"
            )
        return stage

    def _apply(self, instruction: Instruction) -> None:
        if instruction.keyword == "FROM":
            self._begin(instruction)
        elif instruction.keyword == "ARG" and not self._stages:
            self._declare(instruction, self._globals, {**_PLATFORM_ARGS, **self._globals})
        elif not self._stages:
            raise instruction.error(f"FROM must come before {instruction.keyword}, like 'FROM python:3.11'")
        else:
            self._apply_to(self._stages[-1], instruction)

    def _begin(self, instruction: Instruction) -> None:
        variables = {**_PLATFORM_ARGS, **self._globals}
        found = re.fullmatch(r"(\S+)(?:\s+as\s+(\S+))?", expand(instruction.value, variables).replace('"', ""), re.I)
        if not found:
            raise instruction.error(f"FROM must be like 'FROM python:3.11 AS build', got {instruction.value!r}")
        platform = expand(copy_instructions.flags_of(instruction, ("platform",)).get("platform", _PLATFORM), variables)
        if platform != _PLATFORM:
            raise instruction.error(f"FROM --platform must be {_PLATFORM}, which SageMaker trains on, got {platform!r}")
        root = self._scratch / str(len(self._stages))
        before = self._names.get(found[1].lower()) or self._known(found[1])
        if before is not None:
            stage = before.beginning(root)
        else:
            image = reference(found[1])
            self._pull(image)
            root.mkdir(parents=True)
            base = base_of(image)
            for note in base.notes:
                self._note(f"{instruction.place}: {note}")
            base.write_files(root)
            stage = Stage(
                root=root,
                env={**base.env},
                base=[*base.requirements],
                listed=[*base.listed],
                entrypoint=[*base.start.entrypoint],
                cmd=[*base.start.cmd],
                workdir=base.start.workdir,
            )
        for name in (str(len(self._stages)), found[2]):
            if name:
                self._names[name.lower()] = stage
        self._stages.append(stage)

    def _apply_to(self, stage: Stage, instruction: Instruction) -> None:
        match instruction.keyword:
            case "ARG":
                self._declare(instruction, stage.args, stage.variables)
            case "ENV":
                stage.env.update(pairs(instruction, stage.variables))
            case "WORKDIR":
                stage.workdir = posixpath.normpath(
                    posixpath.join(stage.workdir, expanded(instruction, stage.variables))
                )
                locate(stage.root, stage.workdir).mkdir(parents=True, exist_ok=True)
            case "COPY" | "ADD":
                for note in copy_instructions.apply(
                    instruction,
                    stage.root,
                    stage.workdir,
                    stage.variables,
                    lambda name: self._source(instruction, name),
                ):
                    self._note(f"{instruction.place}: {note}")
            case "RUN":
                self._run(stage, instruction)
            case "ENTRYPOINT":
                stage.entrypoint = command(instruction, stage.shell)
                stage.cmd = stage.cmd if stage.has_cmd else []
            case "CMD":
                stage.cmd, stage.has_cmd = command(instruction, stage.shell), True
            case "SHELL":
                shell = as_json_list(instruction.value)
                if not shell:
                    raise instruction.error(f"""SHELL must be like '["/bin/bash", "-c"]', got {instruction.value!r}""")
                stage.shell = shell
            case keyword if keyword in _NOTED:
                self._note(f"{instruction.place}: {keyword} has no effect: {_NOTED[keyword]}")
            case keyword if keyword not in _INERT:
                raise instruction.error(f"instruction {keyword} is not supported by the local account")

    def _declare(self, instruction: Instruction, into: dict[str, str], variables: Mapping[str, str]) -> None:
        for word in words(instruction, variables):
            name, equals, default = word.partition("=")
            self._declared.add(name)
            known = {**_PLATFORM_ARGS, **self._globals} if not equals else {name: default}
            value = self._given.get(name, known.get(name))
            if value is not None:
                into[name] = value

    def _source(self, instruction: Instruction, name: str) -> copy_instructions.Source:
        if not name:
            return self._context
        other = self._names.get(name.lower()) or self._known(name)
        if other is None:
            raise instruction.error(
                f"{instruction.keyword} --from={name}: there is no stage or image of this account with that name, and the files "
                "of other images are not on this machine"
            )
        return copy_instructions.Source(other.root, name=f"{name}, where RUN is not executed")

    def _run(self, stage: Stage, instruction: Instruction) -> None:
        installs, skipped = run_instructions.read(
            instruction, stage.workdir, stage.variables, self._finder(stage, instruction)
        )
        stage.installs += installs
        if skipped:
            self._note(f"{instruction.place}: skipped: RUN {' && '.join(skipped)}")

    def _finder(self, stage: Stage, instruction: Instruction) -> Callable[[str], Path]:
        """Returns a function from paths of the image, or of its `--mount=type=bind`, to paths of this machine."""
        shown = {}
        for mount in instruction.flags.get("mount", []):
            values = dict(part.partition("=")[::2] for part in mount.split(","))
            if values.get("type", "bind") == "bind":
                source = self._source(instruction, values.get("from", ""))
                at = next((values[key] for key in ("target", "dst", "destination") if key in values), "/")
                inside = next((values[key] for key in ("source", "src") if key in values), "")
                shown[posixpath.join(stage.workdir, at)] = locate(source.root, inside)

        def find(path: str) -> Path:
            for at, place in shown.items():
                if path == at or path.startswith(f"{at.rstrip('/')}/"):
                    return locate(place, path[len(at) :]) if place.is_dir() else place
            return locate(stage.root, path)

        return find
