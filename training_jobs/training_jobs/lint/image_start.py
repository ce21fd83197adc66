"""What SageMaker starts in an image that a Dockerfile builds, and why it would end.

Source: the guide, https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-dockerfile.html: "For model
training, Amazon SageMaker runs the container as ``docker run image train``", which overrides CMD; "You can't use the ``tini``
initializer"; "The ``/opt/ml`` directory and all subdirectories are reserved". What of that the toolkit reads is of
environment.py and files.py of sagemaker-training.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from training_jobs.facts.bases import Base, absent_package_managers
from training_jobs.lint.checks import scripts_of
from training_jobs.lint.commands import CHANGERS, INSTALLERS, Command, CommandMistake, is_executable
from training_jobs.lint.dockerfile import DEFAULT_PATH, NOT_KNOWN, Dockerfile
from training_jobs.lint.image_installs import Installs, installs_of
from training_jobs.lint.options import nearest
from training_jobs.lint.rules import variables_of
from training_jobs.lint.script import Job
from training_jobs.lint.shell import UNKNOWN, Run

TRAIN = ("train",)
_CODE = "/opt/ml/code"
# Initializers that start the program after `--`, and the one that AWS's guide excludes.
_INITIALIZERS = ("dumb-init",)
_TINI = ("tini", "tini-static")
_SHELLS = ("bash", "sh")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})")
_SHEBANG = b"#!"
_OF_TOOLKIT = "sagemaker"  # what is in the names of its packages
_RESERVED = re.compile(r"/opt/ml(?:/(?!code(?:/|$))|$)")


@dataclass(frozen=True)
class ImageStart:
    """The start of an image.

    Attributes:
        dockerfile: Its Dockerfile.
        base: ``"toolkit"`` for one that is built from AWS's containers for training, ``"public"`` from an image of
            ``bases.is_public``; "" where that is not known.
        entrypoint: What replaces ENTRYPOINT; None for nothing.
        arguments: What follows it.
        hosts: The number of machines; None where that is not known.
        devices: The accelerators of each; None where that is not known.
        job: What is known of what is installed.
        variables: Variables that the request has.
        program: What the request names for the toolkit; None for nothing.
    """

    dockerfile: Dockerfile
    base: Base
    entrypoint: tuple[str, ...] | None = None
    arguments: tuple[str, ...] = TRAIN
    hosts: int | None = None
    devices: int | None = None
    job: Job = field(default_factory=Job)
    variables: Mapping[str, str] = field(default_factory=dict)
    program: str | None = None

    @property
    def line(self) -> int:
        """The line of ENTRYPOINT; 1 without one."""
        started = self.dockerfile.image.entrypoint
        return 1 if started is None or self.entrypoint is not None else started.line

    @property
    def _words(self) -> tuple[str, ...] | None:
        """The program and its arguments; None for the shell form."""
        started = self.dockerfile.image.entrypoint
        if self.entrypoint is not None:
            return (*self.entrypoint, *(self.arguments if self.arguments != TRAIN else ()))
        if started is None:
            return self.arguments
        return (*started.words, *self.arguments) if started.is_exec else None

    @property
    def starts_toolkit(self) -> bool:
        """Whether the toolkit of AWS's container starts."""
        started = self.dockerfile.image.entrypoint
        return self.base == "toolkit" and started is None and self.entrypoint is None and self.arguments == TRAIN

    @property
    def path_of_program(self) -> str | None:
        """Where the toolkit seeks the script that the image names; None without one."""
        env = self.dockerfile.image.env
        program, folder = env.get("SAGEMAKER_PROGRAM"), env.get("SAGEMAKER_SUBMIT_DIRECTORY", _CODE)
        return None if program is None else posixpath.normpath(posixpath.join(folder, program))

    @property
    def _before(self) -> tuple[Run, ...]:
        """What RUN starts, and one more that is not known, where the image may have other files."""
        return self.dockerfile.runs if self.base else (NOT_KNOWN, *self.dockerfile.runs)

    @cached_property
    def installs(self) -> Installs | None:
        """What RUN installs by pip; None where something else may be installed too."""
        return installs_of(self.dockerfile) if self.base else None

    @cached_property
    def command(self) -> Command:
        """What is started, as a command of bash."""
        image, words = self.dockerfile.image, self._words
        while words and posixpath.basename(words[0]) in _INITIALIZERS:
            words = words[words.index("--") + 1 :] if "--" in words else words[1:]
        if words is None:
            assert image.entrypoint is not None
            text = image.entrypoint.words[0]
        elif len(words) > 2 and posixpath.basename(words[0]) in _SHELLS and words[1] in ("-c", "-lc", "-ec"):
            text = words[2]
        else:
            text = shlex.join(words)
        return Command(
            text,
            self.dockerfile.directory,
            {path.lstrip("/"): file for path, file in image.files.items()},
            hosts=self.hosts,
            devices=self.devices,
            job=self.job,
            variables={**image.env, **self.variables},
            root=PurePosixPath("/"),
            begins=PurePosixPath(image.workdir.lstrip("/")) if image.workdir not in ("", UNKNOWN) else None,
            before=self._before,
        )

    def mistakes(self) -> Iterator[CommandMistake]:
        """Yield the mistakes, in the order of their weight; none where a comment of the Dockerfile switches this off."""
        if self.dockerfile.allows_commands:
            return
        yield from self._of_managers()
        if self.starts_toolkit:
            yield from self._of_toolkit()
            return
        yield from self._of_words()
        for mistake in (*self._of_first_file(), *self._of_train(), *self.command.mistakes(), *self._of_variables()):
            yield mistake._replace(line=self.line)

    def reserved(self) -> Iterator[tuple[str, str]]:
        """Yield the files that are copied to folders which SageMaker reserves, with their path in the image."""
        for path, file in sorted(self.dockerfile.image.files.items()):
            if _RESERVED.match(path):
                yield file.relative_to(self.dockerfile.directory).as_posix(), path

    def _fails(self, rule: str, example: str, got: str) -> CommandMistake:
        return CommandMistake("fails", self.line, rule, example, got)

    def _of_words(self) -> Iterator[CommandMistake]:
        """The exec form, whose words no shell reads."""
        words = self._words or ()
        if words and posixpath.basename(words[0]) in _TINI:
            rule = "not begin with tini, which SageMaker's argument train confuses (AWS's guide excludes it)"
            yield self._fails(rule, "ENTRYPOINT ['python', 'train.py']", repr(words[0]))
        if words and posixpath.basename(words[0]) not in _SHELLS:
            for word in words[1:]:
                if _VARIABLE.fullmatch(word):
                    rule = "have no variable in the exec form, in which no shell replaces it"
                    yield self._fails(rule, f"ENTRYPOINT ['bash', '-c', 'exec python train.py {word}']", repr(word))

    def _of_managers(self) -> Iterator[CommandMistake]:
        """Package managers of another system than the base's, at which the build ends; a PATH of copied folders alone."""
        image = self.dockerfile.image
        # The shell goes on after these, and may end well.
        goes_on = {line for text, line in image.runs if "||" in text or ";" in text}
        lacking = absent_package_managers(image.parent) if self.base else ()
        for run in self._before:
            if run.is_certain and run.words[0] in lacking and run.line not in goes_on:
                rule = "install by the package manager that the base has"
                example = (
                    "RUN dnf install -y git" if "apt-get" in lacking else "RUN apt-get update && apt-get install -y git"
                )
                yield CommandMistake("fails", run.line, rule, example, f"{run.words[0]} with {image.parent!r}")
        # Other folders, as of a virtual environment, may have all that is started.
        copied = {image.workdir, *map(posixpath.dirname, image.files)}
        if "PATH" in image.env and {*image.path} <= copied - {*DEFAULT_PATH.split(":")}:
            rule = "have the system's folders in PATH, without which nothing of the base is found"
            path = image.env["PATH"]
            yield self._fails(rule, f"ENV PATH={path}:$PATH", repr(path))

    def _of_first_file(self) -> Iterator[CommandMistake]:
        """The file that is executed, which the kernel must be able to start."""
        words = self._words
        if not words or "/" not in words[0]:
            return
        path = "/" + self.command.path(self.command.begins, words[0])
        if path in self.dockerfile.image.files:
            yield from self._executed(path)

    def _executed(self, path: str) -> Iterator[CommandMistake]:
        file = self.dockerfile.image.files[path]
        changed = any(run.words[0] in ("chmod", "install", UNKNOWN) for run in self.command.before)
        if not changed and not is_executable(file):
            rule = "start a file that is executable, since the job ends at others: permission denied"
            yield self._fails(rule, f"RUN chmod +x {path}, or COPY --chmod=755", repr(path))
            return
        with file.open("rb") as opened:
            first = opened.readline()
        if first[:1].isascii() and first[:2] != _SHEBANG and not first.startswith(b"\x7fELF"):
            rule = (
                "start a file whose first line names its interpreter, since the job ends at others: exec format error"
            )
            yield self._fails(rule, "'#!/usr/bin/env python3'", repr(path))
        elif first[:2] == _SHEBANG and first.endswith(b"\r\n"):
            rule = "start a file whose lines end with LF alone, since the kernel takes CR for part of the interpreter's name"
            yield self._fails(rule, "sed -i 's/\\r$//'", repr(path))

    def _of_train(self) -> Iterator[CommandMistake]:
        """The program ``train``, where nothing of the image starts another."""
        started = [run for run in self.command.runs if run.words[0] == TRAIN[0]]
        if not started or not started[0].is_certain:
            return
        image, named = self.dockerfile.image, self.dockerfile.image.named(TRAIN[0])
        found = next((f"{folder}/train" for folder in image.path if f"{folder}/train" in named), None)
        if found is not None:
            yield from self._executed(found)
        elif named:
            rule = "have the program train, which SageMaker runs, in a folder of PATH"
            yield self._fails(rule, f"ENV PATH={posixpath.dirname(min(named))}:$PATH", f"PATH without {min(named)!r}")
        elif (
            self.base == "public"
            and self.installs is not None
            and not any(_OF_TOOLKIT in line for line in self.installs.lines)
        ):
            rule = "have the program train, which SageMaker runs in place of CMD: `docker run IMAGE train`"
            example = "ENTRYPOINT ['python', 'start.py'], RUN pip install sagemaker-training, or a file train in PATH"
            yield self._fails(rule, example, f"none with {image.parent!r}")

    def _of_toolkit(self) -> Iterator[CommandMistake]:
        """The script that SageMaker's toolkit starts, of SAGEMAKER_PROGRAM in SAGEMAKER_SUBMIT_DIRECTORY."""
        env, path = self.dockerfile.image.env, self.path_of_program
        if self.program is not None:
            return
        if path is None:
            if not (env.get("SAGEMAKER_TRAINING_MODULE") or env.get("SAGEMAKER_TRAINING_COMMAND")):
                rule = "name the script that SageMaker's toolkit starts, or the job has code or an ENTRYPOINT"
                yield self._fails(rule, "ENV SAGEMAKER_PROGRAM=train.py", "no SAGEMAKER_PROGRAM")
            return
        files = self.dockerfile.image.files
        if UNKNOWN in path or path in files or not path.startswith("/"):
            return
        if all(run.words[0] in (*INSTALLERS, *CHANGERS) for run in self._before):
            named = sorted(self.dockerfile.image.named(posixpath.basename(path)))
            near = named[0] if named else nearest(path, sorted(files), "nothing")
            folder = env.get("SAGEMAKER_SUBMIT_DIRECTORY", _CODE)
            rule = f"copy to {folder} the script that SAGEMAKER_PROGRAM names, where SageMaker's toolkit starts it"
            yield self._fails(rule, f"COPY {posixpath.basename(path)} {folder}/", f"{near!r} and no {path!r}")

    def _of_variables(self) -> Iterator[CommandMistake]:
        """Variables of the toolkit, which nothing sets where another program starts."""
        set_ = {**self.dockerfile.image.env, **self.variables}
        texts = "".join(self.dockerfile.image.env) + " ".join(text for text, _ in self.dockerfile.image.runs)
        if not self.base or _OF_TOOLKIT in texts.lower():
            return
        for start in self.command.starts:
            script_of = self.command.script_of(start)
            scripts = scripts_of(self.dockerfile.directory, [] if script_of is None else [script_of])
            for script in scripts:
                for line, name in variables_of(script):
                    if name not in set_ and name not in start.run.environment:
                        rule = f"start SageMaker's toolkit, which alone sets {name}, or a script that reads none of its variables"
                        example = "os.environ.get('SM_MODEL_DIR', '/opt/ml/model')"
                        yield self._fails(rule, example, f"os.environ[{name!r}] of {script.path}:{line}")
                        return
