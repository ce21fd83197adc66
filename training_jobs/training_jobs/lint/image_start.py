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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from training_jobs.lint.checks import scripts_of
from training_jobs.lint.commands import CHANGERS, INSTALLERS, Command, CommandMistake, is_executable
from training_jobs.lint.dockerfile import Dockerfile
from training_jobs.lint.options import nearest
from training_jobs.lint.requirements import absent_modules, absent_without
from training_jobs.lint.rules import variables_of
from training_jobs.lint.script import Job
from training_jobs.lint.shell import UNKNOWN, Run, runs

Base = Literal["toolkit", "public", ""]
TRAIN = ("train",)
_CODE = "/opt/ml/code"
# Images of others, none of which has SageMaker's toolkit or a program `train`; an entry point of theirs starts what it is given.
_PUBLIC = re.compile(
    r"(?:(?:docker\.io/)?(?:library/)?|public\.ecr\.aws/docker/library/)"
    r"(?:python|ubuntu|debian|amazonlinux|almalinux|rockylinux|fedora|buildpack-deps)(?:[:@].*)?"
    r"|(?:docker\.io/)?(?:nvidia/cuda|pytorch/pytorch|tensorflow/tensorflow|continuumio/(?:mini|ana)conda3)(?:[:@].*)?"
    r"|nvcr\.io/nvidia/(?:cuda|pytorch|tensorflow)(?:[:@].*)?"
    r"|public\.ecr\.aws/(?:amazonlinux/amazonlinux|ubuntu/ubuntu|debian/debian)(?:[:@].*)?"
)
# AWS's containers of frameworks, whose toolkit starts scripts; those of algorithms have something to do without.
_TOOLKIT = re.compile(
    r"(?:public\.ecr\.aws/deep-learning-containers|763104351884\.dkr\.ecr\.[\w-]+\.amazonaws\.com)/"
    r"(?:(?:huggingface-)?(?:pytorch|tensorflow)(?:-training(?:-neuronx)?)?|mxnet-training)(?![\w-])[:@](?!.*-ec2$).*"
)
# Those that have no packages of Python but pip and what builds some.
_BARE = re.compile(
    r"(?:.*/)?(?:python|ubuntu|debian|amazonlinux|almalinux|rockylinux|fedora|buildpack-deps|cuda)(?:[:@].*)?"
)
BARE_MODULES = frozenset({"pip", "setuptools", "pkg_resources", "wheel"})
# Package managers that systems lack, by what names of images say.
_MANAGERS = (
    (re.compile(r"alpine"), ("apt-get", "apt", "yum", "dnf")),
    (re.compile(r"amzn2023|amazonlinux|almalinux|rockylinux|fedora"), ("apt-get", "apt", "apk")),
    (
        re.compile(r"ubuntu|(?:^|/)(?:debian|python|pytorch/pytorch|tensorflow/tensorflow)(?:[:@]|$)"),
        ("yum", "dnf", "apk"),
    ),
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # Docker's default
# Initializers that start the program after `--`, and the one that AWS's guide excludes.
_INITIALIZERS = ("dumb-init",)
_TINI = ("tini", "tini-static")
_SHELLS = ("bash", "sh")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})")
_SHEBANG = b"#!"
_END = "\x01"
_NOT_KNOWN = Run((UNKNOWN,), 0, None, False, {})
_OF_TOOLKIT = "sagemaker"  # what is in the names of its packages
# Of `pip install`: options that take a file, or a value; those after which a package is elsewhere; a requirement.
_TAKE_FILE = ("-r", "--requirement", "-c", "--constraint")
_INDEXES = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--no-index", "--pre")
_TAKE_VALUE = (*_INDEXES[:5], "--timeout", "--retries", "--trusted-host")
# Packages of the system that have modules of Python, beside those that pip and builds need.
_OF_PYTHON = re.compile(r"python3?-(?!pip|dev|venv|setuptools|wheel|distutils|apt|minimal|config)|py3-")
_OTHERWISE = ("-e", "--editable", "-t", "--target", "--prefix", "--root", "-r", "--requirement=", "--python")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[\w, -]+\])?\s*(?:[<>=!~][^/$\0]*)?")
_OF_PIP = re.compile(r"(?:pip|setuptools|wheel|uv)(?![\w.-])", re.IGNORECASE)
_PIP = re.compile(r"(?:.*/)?pip3?(?:\.\d+)?")
_PYTHON = re.compile(r"(?:.*/)?python3?(?:\.\d+)?")
_RESERVED = re.compile(r"/opt/ml(?:/(?!code(?:/|$))|$)")


def is_public(parent: str) -> bool:
    """Return whether an image is one of others, of which it is known that it has no ``train`` and no toolkit.

    Args:
        parent: Its name, with its registry.
    """
    return _PUBLIC.fullmatch(parent) is not None


class Installs(NamedTuple):
    """What is installed by pip.

    Attributes:
        requirements: Requirements that are named.
        files: Files of requirements.
        elsewhere: Whether packages may come from another index.
    """

    requirements: tuple[str, ...]
    files: tuple[Path, ...]
    elsewhere: bool

    def names(self, text: str) -> bool:
        """Return whether one of them has a text in it.

        Args:
            text: The text.
        """
        return any(
            text in one for one in (*self.requirements, *(path.read_text(errors="replace") for path in self.files))
        )

    def absent(self) -> frozenset[str]:
        """Return the modules of known packages that are certainly not installed by them."""
        return frozenset.intersection(
            absent_without(self.requirements), *(absent_modules(path.parent, path.name) for path in self.files)
        )


def _plain(run: Run) -> Run:
    """A program, of pip with its plain name."""
    words = run.words[2 if len(run.words) > 2 and _PYTHON.fullmatch(run.words[0]) and run.words[1] == "-m" else 0 :]
    return run._replace(words=("pip", *words[1:])) if _PIP.fullmatch(words[0]) else run


def _of_pip(words: Sequence[str]) -> list[str] | None:
    """What follows `pip install`; None for another program."""
    words = words[words[0] == "uv" :]
    if len(words) < len(("pip", "install")) or words[0] != "pip":
        return None
    return (
        [*words[2:]] if words[1] == "install" else [] if words[1] in ("cache", "check", "list", "--version") else None
    )


def base_of(parent: str) -> Base:
    """Return the kind of an image that a Dockerfile is built from.

    Args:
        parent: Its name, with its registry.
    """
    return "toolkit" if _TOOLKIT.fullmatch(parent) else "public" if is_public(parent) else ""


def has_no_packages(parent: str) -> bool:
    """Return whether an image of ``is_public`` has no packages of Python but ``BARE_MODULES``.

    Args:
        parent: Its name, with its registry.
    """
    return is_public(parent) and _BARE.fullmatch(parent) is not None


@dataclass(frozen=True)
class ImageStart:
    """The start of an image.

    Attributes:
        dockerfile: Its Dockerfile.
        base: ``"toolkit"`` for one that is built from AWS's containers for training, ``"public"`` from an image of
            ``is_public``; "" where that is not known.
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
        image = self.dockerfile.image
        found = [] if image.is_certain and self.base else [_NOT_KNOWN]
        for text, line in image.runs:
            of = [*runs(f"{text}\n{_END}", image.env, PurePosixPath("/"), None)]
            found += [_plain(run)._replace(line=line) for run in of if run.words != (_END,)]
            found += [] if of and of[-1].words == (_END,) else [_NOT_KNOWN]
        return tuple(found)

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
        known = _MANAGERS if self.base else ()
        lacking = next((names for pattern, names in known if pattern.search(image.parent)), ())
        for run in self._before:
            if run.is_certain and run.words[0] in lacking and run.line not in goes_on:
                rule = "install by the package manager that the base has"
                example = (
                    "RUN dnf install -y git" if "apt-get" in lacking else "RUN apt-get update && apt-get install -y git"
                )
                yield CommandMistake("fails", run.line, rule, example, f"{run.words[0]} with {image.parent!r}")
        # Other folders, as of a virtual environment, may have all that is started.
        copied = {image.workdir, *map(posixpath.dirname, image.files)}
        if "PATH" in image.env and {*image.path} <= copied - {*_PATH.split(":")}:
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
        elif self.base == "public" and self.installs is not None and not self.installs.names(_OF_TOOLKIT):
            rule = "have the program train, which SageMaker runs in place of CMD: `docker run IMAGE train`"
            example = "ENTRYPOINT ['python', 'start.py'], RUN pip install sagemaker-training, or a file train in PATH"
            yield self._fails(rule, example, f"none with {image.parent!r}")

    @cached_property
    def installs(self) -> Installs | None:
        """What RUN installs by pip; None where something else may be installed too."""
        names, files = list[str](), list[Path]()
        elsewhere = any(name.startswith("PIP_") for name in self.dockerfile.image.env)
        for run in self.command.before:
            if run.words[0] in CHANGERS:
                if any(_OF_PYTHON.match(word) for word in run.words):
                    return None
                continue
            words = _of_pip(run.words)
            while words:
                word, *words = words
                if word in _TAKE_FILE:
                    file = self._requirements(words[0]) if words else None
                    if file is None:
                        return None
                    files += [file] if word in ("-r", "--requirement") else []
                    words = words[1:]
                elif word in _TAKE_VALUE:
                    elsewhere = elsewhere or word in _INDEXES
                    words = words[1:]
                elif word.startswith(_INDEXES):
                    elsewhere = True
                elif not word.startswith("-") or word.startswith(_OTHERWISE):
                    if not _REQUIREMENT.fullmatch(word):
                        return None
                    names.append(word)
            if words is None:
                return None
        return Installs(tuple(name for name in names if not _OF_PIP.match(name)), tuple(files), elsewhere)

    def _requirements(self, name: str) -> Path | None:
        found = {*self.dockerfile.image.named(posixpath.basename(name)).values()}
        return found.pop() if len(found) == 1 else None

    def _of_toolkit(self) -> Iterator[CommandMistake]:
        """The script that SageMaker's toolkit starts, of SAGEMAKER_PROGRAM in SAGEMAKER_SUBMIT_DIRECTORY."""
        env = self.dockerfile.image.env
        program, folder = env.get("SAGEMAKER_PROGRAM"), env.get("SAGEMAKER_SUBMIT_DIRECTORY", _CODE)
        if self.program is not None or program is None:
            module = env.get("SAGEMAKER_TRAINING_MODULE") or env.get("SAGEMAKER_TRAINING_COMMAND")
            if self.program is None and module is None:
                rule = "name the script that SageMaker's toolkit starts, or the job has code or an ENTRYPOINT"
                yield self._fails(rule, "ENV SAGEMAKER_PROGRAM=train.py", "no SAGEMAKER_PROGRAM")
            return
        path = self.path_of_program or ""
        files = self.dockerfile.image.files
        if UNKNOWN in path or path in files or not folder.startswith("/"):
            return
        if all(run.words[0] in (*INSTALLERS, *CHANGERS) for run in self._before):
            named = sorted(self.dockerfile.image.named(posixpath.basename(path)))
            near = named[0] if named else nearest(path, sorted(files), "nothing")
            rule = f"copy to {folder} the script that SAGEMAKER_PROGRAM names, where SageMaker's toolkit starts it"
            yield self._fails(rule, f"COPY {posixpath.basename(path)} {folder}/", f"{near!r} and no {path!r}")

    def _of_variables(self) -> Iterator[CommandMistake]:
        """Variables of the toolkit, which nothing sets where another program starts."""
        set_ = {**self.dockerfile.image.env, **self.variables}
        texts = "".join(self.dockerfile.image.env) + " ".join(text for text, _ in self.dockerfile.image.runs)
        if not self.base or _OF_TOOLKIT in texts.lower():
            return
        for start in self.command.starts:
            file = self.command.files.get(start.script)
            scripts = scripts_of(
                self.dockerfile.directory, [file.relative_to(self.dockerfile.directory)] if file else []
            )
            for script in scripts:
                for line, name in variables_of(script):
                    if name not in set_ and name not in start.run.environment:
                        rule = f"start SageMaker's toolkit, which alone sets {name}, or a script that reads none of its variables"
                        example = "os.environ.get('SM_MODEL_DIR', '/opt/ml/model')"
                        yield self._fails(rule, example, f"os.environ[{name!r}] of {script.path}:{line}")
                        return
