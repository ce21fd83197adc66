"""Runs a script as SageMaker does on new machines: of what it wrote only the checkpoints are there again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from training_jobs.check.interruption import compare, merged, step_to_interrupt, trains
from training_jobs.check.processes import compare_processes
from training_jobs.check.trace import Result, Trace, read_trace
from training_jobs.client.errors import TrainingError
from training_jobs.training_code import SCRIPTS

_LEFT_BEHIND = shutil.ignore_patterns("__pycache__", "node_modules", "cdk.out", "*.egg-info")
_LARGEST = 2 * 2**30  # bytes of a folder that is copied for each run
_LINES = 15  # of a script's output that an error shows


@dataclass(frozen=True)
class Script:
    """A script and how it is started.

    Attributes:
        file: Its file.
        arguments: Its arguments; names of files and folders that are there are made absolute.
        checkpoints: The folder in which it saves, which is new or empty.
        processes: How many of it torchrun starts; 1 for the script alone.
    """

    file: Path
    arguments: Sequence[str]
    checkpoints: Path
    processes: int = 1


@dataclass(frozen=True)
class Check:
    """A script's runs.

    Attributes:
        steps: How many it makes without an interruption.
        saves: After which of them it saves.
        interrupted: After how many it was interrupted; None where it was not.
        results: What was found.
    """

    steps: int
    saves: Sequence[int]
    interrupted: int | None
    results: Sequence[Result]


def check_script(script: Script, on_run: Callable[[str], None], *, interrupt: bool = True) -> Check:
    """Run a script whole, until after a checkpoint, and from there.

    Args:
        script: The script.
        on_run: Called with what each run is before it begins.
        interrupt: Whether to interrupt it; without, its processes alone are compared.

    Raises:
        TrainingError: The folder of checkpoints has files, the folder of the script is too large, the script fails without an
            interruption, or makes no step of ``torch.optim`` nor of Keras's ``fit``.
    """
    _check_folders(script)
    with TemporaryDirectory(prefix="check-") as name, _checkpoints(script.checkpoints):
        runs = _Runs(script, Path(name))
        on_run("whole")
        whole = runs.run("whole")
        if not any(trace.steps for trace in whole):
            raise TrainingError(
                f"{script.file} makes no step of an optimizer of torch.optim, nor of Keras's fit, in its own process, so that "
                "nothing is compared: a script with a launcher of its own is started by --processes instead"
            )
        still = [list(trains(trace)) for trace in whole]
        results = still[0] if all(still) else []  # a process may have empty shards alone
        results += compare_processes(whole)
        saves, after = whole[0].saves, step_to_interrupt(whole[0])
        if not interrupt:
            return Check(len(whole[0].steps), saves, None, results)
        if after is None:
            text = f"none is saved in {script.checkpoints} before the last step: a job that is interrupted begins again"
            return Check(len(whole[0].steps), saves, None, [*results, Result("checkpoint", "wrong", text)])
        runs.new_machine(keep=False)
        on_run(f"until step {after}")
        first = runs.run("first", end_after=after)
        runs.new_machine(keep=True)
        on_run("from there")
        try:
            second = runs.run("second")
        except TrainingError as error:
            results.append(Result("script", "wrong", str(error)))
        else:
            results += merged(compare(*of_rank) for of_rank in zip(whole, first, second, strict=True))
        return Check(len(whole[0].steps), saves, after, results)


def _check_folders(script: Script) -> None:
    if script.checkpoints.is_dir() and any(script.checkpoints.iterdir()):
        got = f"{str(script.checkpoints)!r} with {next(script.checkpoints.iterdir()).name!r}"
        raise TrainingError(f"checkpoints must be a folder that is new or empty, like ./checkpoints, got {got}")
    folder = script.file.resolve().parent
    size = 0
    for place, folders, files in os.walk(folder):
        left = _left_behind(place, [*folders, *files])
        folders[:] = [name for name in folders if name not in left]
        size += sum(Path(place, name).lstat().st_size for name in files if name not in left)
    if size > _LARGEST:
        raise TrainingError(
            f"the script's folder must have at most 2 GiB, since it is copied for each run, got {size / 2**30:.1f} GiB in "
            f"{str(folder)!r}: keep data elsewhere"
        )


def _left_behind(folder: str, names: list[str]) -> set[str]:
    """What a copy of a folder lacks: hidden folders, what is made from others, and virtual environments by whatever name."""
    paths = {name: Path(folder, name) for name in names}
    left = {
        name for name, path in paths.items() if (path / "pyvenv.cfg").is_file() or (name[0] == "." and path.is_dir())
    }
    return left | _LEFT_BEHIND(folder, names)


@contextmanager
def _checkpoints(folder: Path) -> Iterator[None]:
    """The folder of checkpoints, which is empty, or not there, as before."""
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(
            f"checkpoints must be a folder that can be written, like ./checkpoints, got {str(folder)!r}: {error.strerror}"
        ) from None
    try:
        yield
    finally:
        if folder.is_dir():
            _empty(folder)
        if new and folder.is_dir():
            folder.rmdir()
        elif not new:
            folder.mkdir(exist_ok=True)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


class _Runs:
    """Runs of a script, each from a new copy of its folder."""

    def __init__(self, script: Script, work: Path) -> None:
        self._script, self._work = script, work

    def new_machine(self, *, keep: bool) -> None:
        """Empty the folder of checkpoints, and download what it had; files are as old as their download."""
        kept = self._work / "checkpoints"
        self._script.checkpoints.mkdir(exist_ok=True)  # which Keras's BackupAndRestore removes at its end
        if keep:
            shutil.copytree(self._script.checkpoints, kept)
        _empty(self._script.checkpoints)
        for path in sorted(kept.rglob("*")):
            if path.is_file():
                place = self._script.checkpoints / path.relative_to(kept)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)

    def run(self, name: str, end_after: int | None = None) -> list[Trace]:
        """The steps of each process; raises TrainingError where the script fails without having been ended."""
        place, source = self._work / name, self._script.file.resolve().parent
        shutil.copytree(source, place / "code", ignore=_left_behind, symlinks=True)
        (place / "trace").mkdir()
        (place / "model").mkdir()
        (place / "output").mkdir()
        command = [str(SCRIPTS / "trace_steps.py"), "--to", str(place / "trace")]
        command += ["--checkpoints", str(self._script.checkpoints.resolve())]
        command += [] if end_after is None else ["--end-after", str(end_after)]
        command += [self._script.file.name, *map(_absolute, self._script.arguments)]
        if self._script.processes > 1:
            launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self._script.processes}"]
            command = [*launcher, *command]
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=place / "code",
                env=_variables(place),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                code = process.wait()
            finally:
                _end(process)
        shutil.rmtree(place / "code")
        traces = [
            read_trace(file)
            for rank in range(self._script.processes)
            if (file := place / "trace" / f"rank-{rank}.jsonl").is_file()
        ]
        # Of several processes one may end in the step that another, which is ended first, leaves without it.
        ended = end_after is not None and any(len(trace.steps) == end_after for trace in traces)
        if (code and not ended) or len(traces) < self._script.processes:
            raise TrainingError(f"the script ends with exit code {code}:\n{_why(place / 'log')}")
        return traces


def _absolute(argument: str) -> str:
    """An argument, or what follows its ``=``, as an absolute path where it names what is there."""
    name, sign, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
    return f"{name}{sign}{Path(value).resolve()}" if value and Path(value).exists() else argument


def _variables(place: Path) -> dict[str, str]:
    """The environment with what SageMaker's toolkit sets and scripts read most, unless it has that."""
    toolkit = {
        "SM_MODEL_DIR": str(place / "model"),
        "SM_OUTPUT_DIR": str(place / "output"),
        "SM_OUTPUT_DATA_DIR": str(place / "output"),
        "SM_HOSTS": json.dumps(["algo-1"]),
        "SM_CURRENT_HOST": "algo-1",
        "SM_NUM_GPUS": "0",
    }
    return {**toolkit, **os.environ}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the script with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _why(log: Path) -> str:
    """The last lines of the first exception, which torchrun's own report follows; without one the last of all."""
    lines = log.read_text(errors="replace").splitlines()
    begin = next((at for at, line in enumerate(lines) if line.endswith("Traceback (most recent call last):")), None)
    if begin is not None:
        # Behind the frames, whose lines are indented, also behind torchrun's "[rank0]: ".
        rest = enumerate(lines[begin + 1 :], begin + 2)
        end = next((at for at, line in rest if not line.removeprefix(_rank(line)).startswith(" ")), len(lines))
        lines = lines[begin:end]
    return "\n".join(lines[-_LINES:])


def _rank(line: str) -> str:
    """What torch writes before a line of a rank's exception."""
    found = re.match(r"\[rank\d+\]: ?", line)
    return found[0] if found else ""
