"""Jobs of hosts whose commands a test gives, for the tests of what a host is."""

import contextlib
import queue
import sys
from pathlib import Path

from sagemaker_local_account.runtime.devices import DEVICES_PATH
from sagemaker_local_account.runtime.pod import Pod
from sagemaker_local_account.runtime.spec import ContainerSpec, PodSpec

SECONDS = 60  # until a test that would hang fails
ENVIRONMENT = {"PATH": f"{DEVICES_PATH}:{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
# Not by signal.pause(): a signal between the line and the pause is handled when the pause ends, which is never.
UNTIL_SIGTERM = """import signal, time
signal.signal(15, lambda *_: exit(7))
print('{}')
while True: time.sleep(0.1)"""
FOREVER = UNTIL_SIGTERM.format("running")


class Job(Pod):
    """A job whose lines can be waited for. Each of `programs` is the Python that a host runs, or a command."""

    def __init__(
        self, folder: Path, *programs: str | tuple[str, ...], port: int = 9, strict: bool = False, **plan: object
    ) -> None:
        self.strict = strict
        self.folder = folder
        self.image = folder / "image"
        self.lines: queue.Queue[tuple[str, str]] = queue.Queue()
        self.image.mkdir(parents=True, exist_ok=True)
        hosts = tuple(self._host(number, program, plan) for number, program in enumerate(programs, 1))
        super().__init__(
            PodSpec(folder.name, hosts, port, folder), on_line=lambda host, line: self.lines.put((host, line))
        )

    def _host(self, number: int, program: str | tuple[str, ...], plan: dict[str, object]) -> ContainerSpec:
        values: dict[str, object] = {
            "name": f"algo-{number}",
            "group": None,
            "instance_type": "ml.m5.large",
            "instance_count_of_group": 1,
            "address": f"10.0.0.{number}",
            "accelerators": 0,
            "folder": self.folder / f"algo-{number}",
            "root": self.image,
            "python": Path(sys.prefix),
            "environment": ENVIRONMENT,
            "hostname": f"ip-10-0-9-{number}" if self.strict else None,
            "command": ("python", "-c", program) if isinstance(program, str) else program,
            "working_directory": "/",
        }
        return ContainerSpec(**{**values, **plan})  # type: ignore[arg-type]

    def line(self) -> tuple[str, str]:
        return self.lines.get(timeout=SECONDS)

    def all_lines(self) -> list[tuple[str, str]]:
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self.lines.get_nowait())
        return found

    def __enter__(self) -> "Job":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def said(folder: Path, *programs: str | tuple[str, ...], **plan: object) -> list[tuple[str, str]]:
    """What the hosts of a job print until all have ended."""
    with Job(folder, *programs, **plan) as job:
        assert job.wait(SECONDS) is not None
        return job.all_lines()
