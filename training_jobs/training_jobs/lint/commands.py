"""Mistakes of a command that starts a script by torchrun, accelerate, deepspeed or Python, from its text.

What launchers do with their options: ``config_from_args`` and ``determine_local_world_size`` of torch/distributed/run.py;
``_validate_launch_command`` of accelerate/commands/launch.py, ``prepare_multi_gpu_env`` and ``prepare_deepspeed_cmd_env`` of its
utils/launch.py, ``BaseConfig`` of its commands/config/config_args.py; ``main`` of deepspeed/launcher/runner.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from training_jobs.facts.launchers import RefusedError, keys_of_config, options_of_config, read_arguments
from training_jobs.lint.deepspeed_file import file_mistakes
from training_jobs.lint.options import nearest
from training_jobs.lint.script import Job
from training_jobs.lint.shell import ALL, CODE, UNKNOWN, Run, runs

Kind = Literal["fails", "hosts-alone", "ignores-key"]
_MODULES = {"torchrun": "torch", "accelerate launch": "accelerate", "deepspeed": "deepspeed"}
_CRLF = b"\r\n"
_SHELLS = ("bash", "sh")
_SHEBANG = re.compile(rb"#!\s*/(?:\w+/)*(?:env\s+)?(?:ba)?sh\b")
_OF_SYSTEM = ("apt-get", "apt", "yum", "dnf", "microdnf", "apk")
# Programs that change no more of the image's files than those they name by their packages, or whether they are executable.
CHANGERS = ("chmod", "chown", "rm", "mkdir", "groupadd", "useradd", "locale-gen", *_OF_SYSTEM)
# Folders in which bases have files of their own.
_OF_BASES = (
    "usr/",
    "opt/conda/",
    "opt/nvidia/",
    "opt/ml/input/",
    "opt/ml/checkpoints/",
    "bin/",
    "sbin/",
    "etc/",
    "workspace/",
)
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
_LAUNCHED = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate launch",
    "deepspeed.launcher.runner": "deepspeed",
}
INSTALLERS = ("pip", "pip3", "uv", "conda", "poetry", "mamba", *_OF_SYSTEM)
_BY_TORCHRUN = ("use_fsdp", "use_megatron_lm", "multi_gpu")
_TYPES = ("use_deepspeed", "tpu", "tpu_use_cluster", *_BY_TORCHRUN)
# DistributedType's names, and by which option each is selected.
_DISTRIBUTED = {
    "DEEPSPEED": "use_deepspeed",
    "FSDP": "use_fsdp",
    "MEGATRON_LM": "use_megatron_lm",
    "MULTI_GPU": "multi_gpu",
}
# `DeepSpeedPlugin` of accelerate's utils/dataclasses.py ends at these beside a deepspeed_config_file.
_OF_FILE = (
    *("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device"),
    *("offload_param_device", "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model"),
)
# Programs that start processes, in any text.
_NAMES = re.compile(r"\b(?:torchrun|accelerate|deepspeed|torch\.distributed|mpirun|horovodrun|torch_xla|ray)\b")
_ALLOWED = re.compile(r"#\s*training-jobs:\s*allow\s+command\b")
# What reads hyperparameters in a command.
_HYPERPARAMETERS = re.compile(r"\$\{?[@*1-9]|SM_HP|SM_USER_ARGS|SM_TRAINING_ENV|SM_CONFIG|hyperparameters\.json")
# What sets ranks itself, or starts processes that are not read.
_STARTS_APART = re.compile(r"RANK|WORLD_SIZE|mpirun|srun|(?<![>&])&(?![>&])")
# How several machines meet, whatever starts them.
_AS_MANY = "wait for as many machines as the job has, or it waits until max_runtime or a timeout"
_RANKS = "give each machine a rank of its own: several of one rank do not meet"
_MEET = "name the machine where all meet: each waits for the others at its own address"
_HERE = ("localhost", "127.0.0.1", "0.0.0.0", "::1")


class CommandMistake(NamedTuple):
    """A mistake of a command.

    Attributes:
        kind: ``"fails"`` where the job ends, or waits until it is stopped; else the warning's name.
        line: The line of the text.
        rule: What must be.
        example: One that is.
        got: What is.
    """

    kind: Kind
    line: int
    rule: str
    example: str
    got: str

    def __str__(self) -> str:
        return f"must {self.rule}, like {self.example}, got {self.got}"


@dataclass(frozen=True)
class Start:
    """A script that a command starts.

    Attributes:
        launcher: ``"torchrun"``, ``"accelerate launch"``, ``"deepspeed"`` or ``"python"``.
        options: The launcher's.
        script: Its path relative to the command's root; "" where it is not certain.
        arguments: Its arguments; ``UNKNOWN`` for one that is known only when the job runs, ``ALL`` for all of the command.
        run: The program.
    """

    launcher: str
    options: Mapping[str, Any]
    script: str
    arguments: tuple[str, ...]
    run: Run


@dataclass(frozen=True)
class Command:
    """A command, and where it runs.

    Attributes:
        text: The command, or the content of a file, of bash.
        folder: The folder of the script.
        files: The machine's files that are known, by their path relative to ``root``.
        hosts: The number of machines, each of which runs it; None where that is not known.
        devices: The accelerators of each machine, 0 for none; None where that is not known.
        job: What is known of what is installed.
        variables: Variables of the environment.
        root: The folder of the machine to which paths are relative: that of the script, or ``/`` of an image's.
        begins: Where it is started, relative to ``root``; None where that is not known.
        before: The programs that ran when the image was built.
    """

    text: str
    folder: Path
    files: Mapping[str, Path]
    hosts: int | None = None
    devices: int | None = None
    job: Job = field(default_factory=Job)
    variables: Mapping[str, str] = field(default_factory=dict)
    root: PurePosixPath = CODE
    begins: PurePosixPath | None = PurePosixPath()  # noqa: RUF009 - which nothing changes
    before: tuple[Run, ...] = ()

    @property
    def is_of_image(self) -> bool:
        """Whether it is what an image starts, and not what SageMaker's toolkit does."""
        return self.root != CODE

    @cached_property
    def runs(self) -> list[Run]:
        """The programs that are started, in their order."""
        return [inner for run in self._own_runs for inner in self._inside(run)]

    @cached_property
    def _own_runs(self) -> list[Run]:
        return [*runs(self.text, self._known, self.root, self.begins)]

    @property
    def _known(self) -> Mapping[str, str]:
        of_toolkit = not self.is_of_image and self.hosts is not None
        return {**({"SM_HOST_COUNT": str(self.hosts)} if of_toolkit else {}), **self.variables}

    def _script_of(self, run: Run) -> str:
        """The file of bash that a program is; "" for another."""
        words = run.words[run.words[0] in _SHELLS :]
        path = self.path(run.folder, words[0]) if words else ""
        return path if path in self.files and _is_shell(self.files[path]) else ""

    def _inside(self, run: Run) -> Iterator[Run]:
        """The programs of a file of bash that a command starts, or itself."""
        if not (path := self._script_of(run)):
            yield run
            return
        words = run.words[run.words[0] in _SHELLS :]
        text = self.files[path].read_text(errors="replace")
        for inner in runs(text, {**self._known, **run.environment}, self.root, run.folder):
            passed = (part for word in inner.words for part in (words[1:] if word == ALL else (word,)))
            certain = run.is_certain and inner.is_certain
            yield Run(tuple(passed), run.line, inner.folder, certain, inner.environment)

    @cached_property
    def _read(self) -> list[Start | CommandMistake]:
        found = (self._start(run) for run in self.runs if run.is_certain)
        return [one for one in found if one is not None]

    @property
    def starts(self) -> list[Start]:
        """The scripts that are started."""
        return [one for one in self._read if isinstance(one, Start)]

    def script_of(self, start: Start) -> Path | None:
        """Return the script that is started, relative to ``folder``; None where it is not known.

        Args:
            start: The start of a script.
        """
        file = self.files.get(start.script)
        return None if file is None else file.relative_to(self.folder)

    @property
    def reads_hyperparameters(self) -> bool:
        """Whether the text reads hyperparameters, as its arguments or by their variables."""
        return bool(_HYPERPARAMETERS.search(self.text))

    def processes(self) -> int | None:
        """Return how many processes the first launcher starts on each host; None where that is not known, or there is none."""
        return next((self._processes(start) for start in self.starts if start.launcher != "python"), None)

    def started(self) -> tuple[int | None, bool | None]:
        """Return how many processes of its one script run on each host, and whether a launcher starts them; None if not known."""
        if len(self.starts) != 1 or _STARTS_APART.search(self.text):
            return None, None
        [start] = self.starts
        return (1, False) if start.launcher == "python" else (self._processes(start), True)

    def world(self, start: Start) -> int | None:
        """Return the number of processes on all machines; None where that is not known.

        Args:
            start: The start of a script.
        """
        processes = self._processes(start)
        return None if processes is None or self.hosts is None else processes * self.hosts

    def mistakes(self) -> Iterator[CommandMistake]:
        """Yield the mistakes, in the order of the lines; none where a comment of the text switches this off."""
        if _ALLOWED.search(self.text):
            return
        yield from self._of_files()
        for found in self._read:
            if isinstance(found, CommandMistake):
                yield found
                continue
            yield from self._missing(found)
            if found.launcher == "torchrun":
                yield from self._of_torchrun(found)
            elif found.launcher == "accelerate launch":
                yield from self._of_accelerate(found)
            elif found.launcher == "deepspeed":
                yield from self._of_deepspeed(found)

    def _of_files(self) -> Iterator[CommandMistake]:
        """Files that bash cannot run: their lines end as those of Windows, or they are not executable."""
        scripts = [(run, path) for run in self._own_runs if (path := self._script_of(run))]
        rule = "be started from lines that end with LF alone, since bash takes CR for part of a word"
        if _CRLF in self.text.encode():
            yield CommandMistake("fails", 1, rule, "sed -i 's/\\r$//'", "CR LF")
        for run, path in scripts:
            if _CRLF in self.files[path].read_bytes():
                yield CommandMistake("fails", run.line, rule, f"sed -i 's/\\r$//' {path}", f"CR LF in {path}")
        for run in self._own_runs:
            path = self.path(run.folder, run.words[0]) if "/" in run.words[0] else ""
            changed = any(words[0] == "chmod" for words in self._words_before(run, self._own_runs))
            if run.is_certain and path in self.files and not changed and not is_executable(self.files[path]):
                rule = "start a file that is executable, since bash ends at others with 126"
                yield CommandMistake("fails", run.line, rule, f"chmod +x {path}, or bash {path}", path)

    def _start(self, run: Run) -> Start | CommandMistake | None:
        launcher, words = _launcher(run.words)
        if launcher == "python":
            return self._of_python(run)
        if not launcher or UNKNOWN in (words[:1] or ("",))[0]:
            return None
        try:
            options = read_arguments(launcher, self.job.versions.get(_MODULES[launcher], ""), words)
        except RefusedError as error:
            rule = f"have options that {launcher} takes, since its argparse ends at others"
            return CommandMistake("fails", run.line, rule, f"those of {launcher} --help", f"{error}")
        script = options.pop("script")
        arguments = tuple(options.pop("arguments", ()))
        if UNKNOWN in script or script == ALL:
            return None
        is_module = options.get("module") or options.get("no_python")
        return Start(launcher, options, "" if is_module else self.path(run.folder, script), arguments, run)

    def _missing(self, start: Start) -> Iterator[CommandMistake]:
        """A program or a script that is not there."""
        module = _MODULES.get(start.launcher, "")
        if module and self.job.lacks(module) and self.is_of_image:
            rule = f"start a program that the image has, in which nothing installs {module}"
            yield self._fails(start, rule, f"RUN pip install {module}", " ".join(start.run.words[:2]))
        elif module and self.job.lacks(module) and not self._installs_before(start):
            rule = f"start a program that the container has, or requirements.txt brings, as they do not {module}"
            yield self._fails(start, rule, f"{module} in requirements.txt", " ".join(start.run.words[:2]))
        rule = "start a file of code's folder, which the machine has in /opt/ml/code"
        if self.is_of_image:
            rule = "start a file that the image has, to whose path the Dockerfile copies one"
        yield from self._without_file(start, start.script, rule, "train.py")

    def _of_python(self, run: Run) -> Start | None:
        words = run.words[1:]
        while words and words[0] in ("-u", "-B", "-O"):
            words = words[1:]
        if not words or words[0].startswith("-") or UNKNOWN in words[0] or words[0] == ALL:
            return None
        return Start("python", {}, self.path(run.folder, words[0]), words[1:], run)

    def path(self, folder: PurePosixPath | None, name: str) -> str:
        """Return a path relative to the root; "" for one elsewhere, or where that is not known.

        Args:
            folder: To which the name is relative; None where that is not known.
            name: The name.
        """
        path = PurePosixPath(name)
        if path.is_absolute():
            return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else ""
        return "" if folder is None or ".." in path.parts or {*"*?[{~"} & {*name} else str(folder / path)

    def _words_before(self, run: Run, of: Sequence[Run] = ()) -> Iterator[tuple[str, ...]]:
        others = of or self.runs
        return (other.words for other in (*self.before, *others[: others.index(run)]))

    def _processes(self, start: Start) -> int | None:
        options = start.options
        if start.launcher == "torchrun":
            text = options.get("nproc_per_node", self._default(start, "nproc_per_node", "1"))
            return self.devices if text == "auto" and self.devices else _number(text)
        if start.launcher == "deepspeed":
            return _number(options.get("num_gpus", "")) if "include" not in options else None
        of_file = self._file(start)
        if of_file is None or self._distributed(start, of_file) == "":
            return None
        total, machines = (_number(options.get(name, of_file.get(name))) for name in ("num_processes", "num_machines"))
        return None if total is None else total // max(machines or 1, 1)

    def _default(self, start: Start, name: str, default: str) -> str:
        return {**self.variables, **start.run.environment}.get(f"PET_{name.upper()}", default)

    def _alone(self, start: Start, how: str, example: str) -> CommandMistake:
        rule = (
            f"start one training on the {self.hosts} machines: each trains by itself, and each has a model of its own"
        )
        return CommandMistake("hosts-alone", start.run.line, rule, example, how)

    def _of_torchrun(self, start: Start) -> Iterator[CommandMistake]:
        given = start.options
        if given.get("nproc_per_node") == "gpu" and self.devices == 0:
            yield self._fails(start, "start no process for each GPU where there is none", "auto", "gpu")
        if self.hosts is None:
            return
        text = given.get("nnodes", self._default(start, "nnodes", "1"))
        several = "torchrun --nnodes $SM_HOST_COUNT --node_rank $SM_CURRENT_HOST_RANK --master_addr $SM_MASTER_ADDR ..."
        least, _, most = str(text).partition(":")
        if given.get("standalone") or (least == "1" and most in ("", "1")):
            if self.hosts > 1:
                yield self._alone(start, "--standalone" if given.get("standalone") else f"--nnodes {text}", several)
            return
        low, high = _number(least), _number(most or least)
        if low is None or high is None:
            return
        if not low <= self.hosts <= high:
            yield self._fails(start, _AS_MANY, f"--nnodes {self.hosts}", f"{text} with {self.hosts}")
        elif self.hosts > 1:
            yield from self._meeting(start, several)

    def _meeting(self, start: Start, example: str) -> Iterator[CommandMistake]:
        """How several machines find each other."""
        given = start.options
        backend = given.get("rdzv_backend", self._default(start, "rdzv_backend", "static"))
        endpoint = given.get("rdzv_endpoint", self._default(start, "rdzv_endpoint", ""))
        address = endpoint.rpartition(":")[0] or endpoint
        if backend == "static" and not endpoint:
            address = given.get("master_addr", self._default(start, "master_addr", _HERE[0]))
        if address in ("", *_HERE):
            yield self._fails(start, _MEET, example, address or "no --rdzv_endpoint")
        rank = given.get("node_rank", self._default(start, "node_rank", "0"))
        if backend == "static" and UNKNOWN not in str(rank):
            yield self._fails(start, _RANKS, example, f"--node_rank {rank} on {self.hosts} machines")

    def _file(self, start: Start) -> Mapping[str, Any] | None:
        """What the file of ``accelerate launch`` says; empty without one, None where it is not known."""
        name = start.options.get("config_file")
        if name is None:
            return {}
        path = None if start.run.folder is None or UNKNOWN in name else self.path(start.run.folder, name)
        if not path or path not in self.files:
            return None
        import yaml  # here, since few commands name one

        try:
            found = yaml.safe_load(self.files[path].read_text())
        except (yaml.YAMLError, UnicodeDecodeError):
            return None
        return found if isinstance(found, dict) else None

    def _distributed(self, start: Start, of_file: Mapping[str, Any]) -> str:
        """The option that selects what runs, or the file does; "" for one process."""
        given = start.options
        named = next((name for name in _TYPES if given.get(name)), "")
        return "" if given.get("cpu") else named or _DISTRIBUTED.get(str(of_file.get("distributed_type")), "")

    def _of_accelerate(self, start: Start) -> Iterator[CommandMistake]:
        given, of_file = start.options, self._file(start)
        if of_file is None:
            yield from self._unread_file(start)
            return
        if "config_file" in given:
            yield from self._of_config(start, of_file)
        kind = self._distributed(start, of_file)
        if kind == "use_deepspeed" and self.job.lacks("deepspeed") and not self._installs_before(start):
            rule = "be beside deepspeed in requirements.txt, without which accelerate ends"
            yield self._fails(start, rule, "deepspeed in requirements.txt", "distributed_type: DEEPSPEED")
        if self.hosts is None or self.hosts == 1 or (not kind and "config_file" in given and not of_file):
            return
        machines = given.get("num_machines", of_file.get("num_machines", 1))
        several = (
            "accelerate launch --num_machines $SM_HOST_COUNT --machine_rank $SM_CURRENT_HOST_RANK --main_process_ip ..."
        )
        number = _number(machines)
        if number is None:
            return
        if number == 1:
            yield self._alone(start, f"num_machines {machines}", several)
            return
        launcher = given.get("deepspeed_multinode_launcher") or (of_file.get("deepspeed_config") or {}).get(
            "deepspeed_multinode_launcher", "pdsh"
        )
        if kind == "use_deepspeed" and launcher not in ("standard", "nossh"):
            yield self._alone(start, f"deepspeed_multinode_launcher {launcher}", f"{several} standard")
            return
        if number != self.hosts:
            yield self._fails(start, _AS_MANY, f"--num_machines {self.hosts}", f"{machines} with {self.hosts}")
        rank = given.get("machine_rank", of_file.get("machine_rank", 0))
        backend = given.get("rdzv_backend", of_file.get("rdzv_backend", "static"))
        if backend == "static" and UNKNOWN not in str(rank):
            yield self._fails(start, _RANKS, several, f"machine_rank {rank} on {self.hosts} machines")
        address = given.get("main_process_ip", of_file.get("main_process_ip"))
        if address in (None, "", *_HERE):
            yield self._fails(start, _MEET, several, f"main_process_ip {address or 'is missing'}")

    def _fails(self, start: Start, rule: str, example: str, got: str) -> CommandMistake:
        return CommandMistake("fails", start.run.line, rule, example, got)

    def _installs_before(self, start: Start) -> bool:
        return any(words[0] in INSTALLERS or "pip" in words for words in self._words_before(start.run))

    def _unread_file(self, start: Start) -> Iterator[CommandMistake]:
        name = start.options["config_file"]
        path = "" if UNKNOWN in name else self.path(start.run.folder, name)
        if path in self.files:
            rule = "name a config_file that is an object of YAML or JSON, as which accelerate reads it"
            yield self._fails(start, rule, "distributed_type: FSDP", name)
        rule = "name a config_file of code's folder, without which accelerate ends"
        yield from self._without_file(start, path, rule, "fsdp.yaml")

    def _of_config(self, start: Start, of_file: Mapping[str, Any]) -> Iterator[CommandMistake]:
        """What accelerate finds in its file."""
        name, version = start.options["config_file"], self.job.versions.get("accelerate", "")
        if of_file.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
            rule = (
                "name a config_file whose compute_environment is LOCAL_MACHINE, or accelerate starts a job from the job"
            )
            yield self._fails(start, rule, "LOCAL_MACHINE", f"{of_file['compute_environment']!r} of {name}")
            return
        if "distributed_type" not in of_file:
            rule = "name a config_file with distributed_type, without which accelerate ends"
            yield self._fails(start, rule, "distributed_type: FSDP", name)
        known = keys_of_config(version)
        for key in map(str, of_file):
            if key not in known:
                rule = "name a config_file whose keys accelerate knows, which ends at others"
                yield self._fails(start, rule, repr(nearest(key, known)), f"{key!r} of {name}")
        processes = start.options.get("num_processes", of_file.get("num_processes", -1))
        if processes == -1 and of_file.get("distributed_type") != "NO":
            rule = "have num_processes, which a config_file of accelerate asks for"
            yield self._fails(start, rule, "--num_processes $((SM_NUM_GPUS * SM_HOST_COUNT))", f"none, nor in {name}")
        fsdp = {**(of_file.get("fsdp_config") or {}), **start.options}
        if fsdp.get("fsdp_cpu_ram_efficient_loading") is True and fsdp.get("fsdp_sync_module_states") is False:
            rule = "name a config_file with fsdp_sync_module_states: true beside fsdp_cpu_ram_efficient_loading: true"
            yield self._fails(start, rule, "true", f"false of {name}")
        deepspeed = of_file.get("deepspeed_config")
        if isinstance(deepspeed, dict) and "deepspeed_config_file" in deepspeed:
            yield from self._of_deepspeed_file(start, deepspeed)
        yield from self._ignored_keys(start, of_file, options_of_config(version))

    def _of_deepspeed_file(self, start: Start, part: Mapping[str, Any]) -> Iterator[CommandMistake]:
        """What the file of DeepSpeed says that accelerate's file names, and what beside it ends accelerate."""
        path = self.path(start.run.folder, str(part["deepspeed_config_file"]))
        if path in self.files:
            world = self.world(start)
            text = self.files[path].read_text(errors="replace")
            for mistake in file_mistakes(text, self.job.versions.get("deepspeed", ""), world):
                rule = f"name a deepspeed_config_file that is right: it must {mistake.rule}"
                yield self._fails(start, rule, mistake.example, f"{path} with {mistake.got}")
        else:
            yield from self._without_file(start, path, "name a deepspeed_config_file of code's folder", "zero3.json")
        if beside := sorted({*_OF_FILE} & {*part}):
            rule = "name a config_file whose deepspeed_config has nothing that its deepspeed_config_file has"
            got = f"{beside[0]!r} of {start.options['config_file']}"
            yield self._fails(start, rule, "zero_stage in the file of DeepSpeed", got)

    def _without_file(self, start: Start, path: str, rule: str, example: str) -> Iterator[CommandMistake]:
        """A file that is not there, unless what runs before may bring it."""
        if (
            path
            and path not in self.files
            and not (self.is_of_image and path.startswith(_OF_BASES))
            and all(words[0] in (*INSTALLERS, *CHANGERS) for words in self._words_before(start.run))
        ):
            shown = "/" if self.is_of_image else ""
            near = nearest(path, sorted(self.files), example)
            yield self._fails(start, rule, repr(f"{shown}{near}"), repr(f"{shown}{path}"))

    def _ignored_keys(self, start: Start, of_file: Mapping[str, Any], known: Iterable[str]) -> Iterator[CommandMistake]:
        """Parts of the file set options by their names, and others are ignored."""
        for part, prefix in (("fsdp_config", "fsdp_"), ("deepspeed_config", "")):
            entries = of_file.get(part) or {}
            for key in map(str, entries if isinstance(entries, dict) else ()):
                if (key if key.startswith(prefix) else prefix + key) not in known:
                    some = [one for one in known if one.startswith(prefix)]
                    rule = (
                        "name a config_file whose keys accelerate reads: it ignores others, and its own default is used"
                    )
                    got = f"{key!r} in {part} of {start.options['config_file']}"
                    yield CommandMistake("ignores-key", start.run.line, rule, repr(nearest(key, some)), got)

    def _of_deepspeed(self, start: Start) -> Iterator[CommandMistake]:
        given = start.options
        if (self.hosts or 1) > 1 and not {"hostfile", "no_ssh", "force_multi", "elastic_training"} & {*given}:
            yield self._alone(start, "deepspeed without --hostfile", "torchrun --nnodes $SM_HOST_COUNT ...")


def names_launcher(text: str, folder: Path, files: Iterable[Path]) -> bool:
    """Return whether a text of bash, or a file of bash that it names, names a launcher, wherever it stands.

    Args:
        text: The command, or the content of a file, of bash.
        folder: The folder of the script.
        files: The paths of its files.
    """
    named = (folder / path for path in files if path.suffix == ".sh" and path.name in text)
    return any(map(_NAMES.search, (text, *(path.read_text(errors="replace") for path in named))))


def _launcher(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The launcher that a program is, and its arguments; "" for another program."""
    name = words[0]
    if name in ("torchrun", "deepspeed"):
        return name, words[1:]
    if words[:2] == ("accelerate", "launch"):
        return "accelerate launch", words[2:]
    if not _PYTHON.fullmatch(name):
        return "", ()
    module = words[2] if words[1:2] == ("-m",) and len(words) > 2 else ""
    return (_LAUNCHED[module], words[3:]) if module in _LAUNCHED else ("python", words[1:])


def _is_shell(file: Path) -> bool:
    """Whether a file is one of bash, by its name or its first line."""
    if file.suffix == ".sh":
        return True
    with file.open("rb") as opened:
        return bool(_SHEBANG.match(opened.readline(100)))


def is_executable(path: Path) -> bool:
    """Return whether a copy of a file will be executable, which Windows does not say.

    Args:
        path: The file.
    """
    return os.name == "nt" or bool(path.stat().st_mode & 0o111)


def _number(value: object) -> int | None:
    """A whole number, or the text of one."""
    return int(str(value)) if isinstance(value, int | str) and str(value).isdigit() else None
