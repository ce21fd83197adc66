"""Many jobs one after the other, many hosts at once: what they leave, and how they share two cores."""

import contextlib
import gc
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from account_process import marked
from running_account import Running
from shell_jobs import ShellJobs

from sagemaker_local_account.runtime import control_groups

AT_ONCE = 8

# Each host is heard by every other, and hears every other.
EVERYONE_MEETS = """
import json, socket, sys, time
config = json.load(open("/opt/ml/input/config/resourceconfig.json"))
others = set(config["hosts"]) - {config["current_host"]}
listener = socket.create_server(("", 5000), backlog=64)
for other in others:
    while True:
        try:
            with socket.create_connection((other, 5000), timeout=60) as connection:
                connection.sendall(config["current_host"].encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
heard = set()
while heard != others:
    heard.add(listener.accept()[0].recv(64).decode())
print("met", len(heard))
"""

# Processes each in a session of its own, as torchrun's workers are, with the host's name in their command lines.
SESSIONS = """
import json, subprocess
host = json.load(open("/opt/ml/input/config/resourceconfig.json"))["current_host"]
workers = [
    subprocess.Popen(["sh", "-c", "sleep 1000 && true", "of-" + host], start_new_session=True)
    for _ in range({"algo-1": 8, "algo-2": 1}[host])
]
print("started", flush=True)
workers[0].wait()
"""


@pytest.fixture(scope="module")
def jobs(running: Running) -> ShellJobs:
    return ShellJobs(running.account.environment(), running.account.state)


class Holdings:
    """What this process, in which the account runs, holds of the machine."""

    def __init__(self) -> None:
        gc.collect()
        own = psutil.Process()
        family = [own, *own.children(recursive=True)]
        self.memory = own.memory_info().rss
        self.counts = {
            "files": len(os.listdir("/proc/self/fd")),
            "threads": own.num_threads(),
            "processes": len(family),
            "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
            "namespaces": len({link for process in family for link in _namespaces(process)}),
        }


def _namespaces(process: psutil.Process) -> list[str]:
    with contextlib.suppress(OSError):
        return [os.readlink(f"/proc/{process.pid}/ns/{kind}") for kind in ("net", "mnt", "user", "pid")]
    return []


def run_many(jobs: ShellJobs, name: str, count: int) -> None:
    for first in range(0, count, AT_ONCE):
        names = [jobs.create(f"{name}-{first + number}", "echo done") for number in range(AT_ONCE)]
        assert set(jobs.statuses(names)) == {"Completed"}


# What a job was, what it said and made, in the account's memory; of few jobs the allocator's pages are a large part.
@pytest.mark.parametrize(
    ("warm_up", "count", "most_kilobytes_each"),
    [pytest.param(*few, marks=pytest.mark.soak) for few in ((16, 16, 96), (40, 200, 32))],
)
def test_many_jobs_leave_files_threads_processes_and_namespaces_as_they_were_and_a_few_kilobytes(
    jobs: ShellJobs, warm_up: int, count: int, most_kilobytes_each: int
) -> None:
    run_many(jobs, f"warm-up-{count}", warm_up)
    before = Holdings()
    run_many(jobs, f"many-{count}", count)
    after = Holdings()
    kilobytes_each = (after.memory - before.memory) / count / 1024
    print(f"{count} jobs, {kilobytes_each:.1f} KB each", before.counts, after.counts)
    assert {name: number for name, number in after.counts.items() if number > before.counts[name]} == {}
    assert kilobytes_each < most_kilobytes_each


def test_eight_hosts_on_this_machine_all_meet_each_other(jobs: ShellJobs) -> None:
    name = jobs.create_python("eight", EVERYONE_MEETS, 8)
    assert jobs.statuses([name]) == ["Completed"]
    assert jobs.said(name) == {f"algo-{number}": ["met 7"] for number in range(1, 9)}


def test_four_jobs_at_once_run_to_their_ends(jobs: ShellJobs) -> None:
    names = [jobs.create_python(f"four-{number}", EVERYONE_MEETS, 2) for number in range(4)]
    assert jobs.statuses(names) == ["Completed"] * 4


@pytest.mark.skipif(
    not control_groups.available(), reason="this user may not make control groups of the processor here"
)
def test_all_processes_of_a_host_are_in_one_control_group_beside_the_other_hosts(jobs: ShellJobs) -> None:
    """Which the kernel gives as much of the processor as the others', however many processes there are in it (cgroups(7))."""
    mark = f"of-{os.getpid()}-"  # another run of the tests may be on this machine
    name = jobs.create_python("sessions", SESSIONS.replace("of-", mark), 2)
    while jobs.said(name) != {"algo-1": ["started"], "algo-2": ["started"]}:
        time.sleep(0.1)
    processes = {host: marked(f"{mark}{host}") for host in ("algo-1", "algo-2")}
    groups = {host: [_cpu_group(pid) for pid in pids] for host, pids in processes.items()}
    for pid in processes["algo-1"] | processes["algo-2"]:
        with contextlib.suppress(ProcessLookupError):  # its host ended with the first
            os.kill(pid, signal.SIGKILL)
    assert jobs.statuses([name]) == ["Completed"]
    assert {host: len(found) for host, found in groups.items()} == {"algo-1": 8, "algo-2": 1}
    first, second = {*groups["algo-1"]}, {*groups["algo-2"]}
    assert (len(first), len(second)) == (1, 1)
    assert first != second
    assert {path.parent for path in first} == {path.parent for path in second}


def _cpu_group(pid: int) -> Path:
    """The control group in which a process's use of the processor is counted, in version 1 or 2 (cgroups(7))."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    groups = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    return Path(
        next((path for controllers, path in groups.items() if "cpu" in controllers.split(",")), groups.get("", ""))
    )
