"""Programs that train, and the environment of the hosts of a job of data hosts and one that trains, on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import preloaded
import psutil

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
SECONDS = 400  # until a test that would hang fails


@dataclass(frozen=True)
class Ended:
    code: int
    lines: list[str]

    @property
    def losses(self) -> list[str]:
        """What must repeat: each printed step and epoch, with its loss, without how fast it went."""
        found = (re.search(r"(step|epoch) \d+ loss [\d.]+", line) for line in self.lines)
        return [match[0] for match in found if match]


def losses_of(lines: Iterable[str]) -> dict[str, str]:
    """The loss of each step and epoch that was printed, ``step 10`` and its digits."""
    found = (re.search(r"((?:step|epoch) \d+) loss ([\d.]+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def record_of(checkpoints: Path) -> dict[str, Any]:
    """What the newest checkpoint has of its run."""
    import torch
    import torch.distributed.checkpoint as dcp

    newest = max(checkpoints.glob("step-*"))
    size = dcp.FileSystemReader(newest).read_metadata().state_dict_metadata["record"].size
    record = torch.empty(size, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        dcp.load({"record": record}, checkpoint_id=newest, no_dist=True)
    return dict(json.loads(bytes(record.tolist())))


class Interpreted:
    """A process of an interpreter of its own, with the members of ``preloaded.Program`` that a Program uses."""

    def __init__(self, arguments: Sequence[object], cwd: Path, env: Mapping[str, str]) -> None:
        command = [sys.executable, *map(str, arguments)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
        self._popen = subprocess.Popen(command, cwd=cwd, env=env, **options)  # type: ignore[call-overload]
        self.processes, self.stdout = [self._popen], self._popen.stdout
        self.wait, self.kill, self.terminate = self._popen.wait, self._popen.kill, self._popen.terminate

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        rest = self.stdout.read()
        self.wait(timeout)
        return rest, None

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self.wait()
        self.stdout.close()


class Program:
    """A train.py that runs, with the processes that it starts, of which none is left afterwards."""

    def __init__(
        self,
        script: Path,
        folder: Path,
        *arguments: object,
        processes: int = 1,
        packages: Path | None = None,
        **environment: str,
    ) -> None:
        settings = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TRAINING_CODE)}
        self.seen: list[str] = []  # the lines that `until` has read
        if packages:  # which are not those that preloaded.py has loaded
            variables = settings | environment
            variables["PYTHONPATH"] = f"{packages}{os.pathsep}{variables['PYTHONPATH']}"
            self._process: Any = Interpreted([script, *arguments], folder, variables)
            return
        self._process = preloaded.start(
            [script, *arguments], cwd=folder, env=settings | environment, ranks=processes, forkserver=True
        )

    def until(self, beginning: str) -> None:
        """Return when it has printed a line that begins so."""
        watchdog = threading.Timer(SECONDS, self.kill)
        watchdog.start()
        line = ""
        for line in self._process.stdout:
            self.seen.append(line.rstrip("\n"))
            if line.startswith(beginning):
                break
        watchdog.cancel()
        assert line, "it printed nothing"
        assert line.startswith(beginning), "\n".join(self.seen)

    def stop(self) -> Ended:
        """Send SIGTERM to each rank, as the entry point does, and return when all have ended."""
        self._process.terminate()
        return self.end()

    def end(self) -> Ended:
        """Return when it has ended of itself."""
        output = self._process.communicate(timeout=SECONDS)[0]
        return Ended(self._process.wait(), output.splitlines())

    def kill(self) -> None:
        """End it at once, with what it has started, but for its resource tracker, which frees its shared memory."""
        for rank in self._process.processes:
            if rank.poll() is None:
                for process in psutil.Process(rank.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if "resource_tracker" not in " ".join(process.cmdline()):
                            process.kill()
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._process.close()


def variables(
    base: Path, group: str, *channels: str, host: str = "localhost", data_hosts: Sequence[str] = ("localhost",)
) -> dict[str, str]:
    """What SageMaker's training toolkit sets on a host of a job of data hosts and one that trains, all this machine."""
    hosts = {"data_group": [*data_hosts], "dnn_group": ["localhost"]}
    groups = {name: {"instance_group_name": name, "hosts": those} for name, those in hosts.items()}
    return {
        "SM_CURRENT_HOST": host,
        "SM_CURRENT_INSTANCE_GROUP": group,
        "SM_INSTANCE_GROUPS_DICT": json.dumps(groups),
        "SM_HOSTS": json.dumps(sorted({*data_hosts, "localhost"})),
        "SM_CHANNELS": json.dumps(channels),
        **{f"SM_CHANNEL_{name.upper()}": str(base / "input" / "data" / name) for name in channels},
        "SM_MODEL_DIR": str(base / "model"),
        "SM_OUTPUT_DATA_DIR": str(base / "output" / "data"),
        "TRAINING_JOB_ARN": "arn:aws:sagemaker:us-east-1:123456789012:training-job/digits",
    }


def free_port() -> int:
    """A free port below those that the system gives to connections, which could take it before it is listened on."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as listening, contextlib.suppress(OSError):
            listening.bind(("", port))
            return port
    raise AssertionError("no port is free")
