"""Starts a Ray cluster over all hosts of a training job, and the training script once, on the host of the cluster's head.

    COPY ray_cluster /opt/ml/code/ray_cluster

``launcher=Ray("train.py")`` has SageMaker's training toolkit start this file on every host in place of the script (docs/ray.md).
It needs Linux, Ray 2.49 or later in the image, and no other package.

The head is on the first host of the group that trains; every host, that one included, is a node with the toolkit's numbers of
CPUs and GPUs, a label ``group`` with the name of its instance group, and as much of a resource of that name as it has CPUs. The
script runs with RAY_ADDRESS set, once all hosts have joined. When it ends, the head ends with its exit code and the others with
0, so that the reason of the job's failure is the script's. A host is lost when its connection to the head ends, or is silent
for 30 seconds under TCP's keepalive, or its raylet ends: then the head ends the script and fails, or without the head the others.

``ray symmetric-run`` (Ray 2.60) ends with 0 where Ray does not start and where a node has lost its head, and notices no lost
node; ``ray start --block`` ends the node at SIGTERM before the script has written its checkpoint. So neither is used here.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RAY_PORT = 6379  # Ray's own default, of the head's global control service
CONTROL_PORT = 6378  # of the head, for what this file's processes report to each other
JOIN_SECONDS = 900.0  # as long as the toolkit waits for the hosts' names (entry_point.py of sagemaker-training)
KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
CONNECT_SECONDS = 10.0  # for one attempt to reach the head
END_SECONDS = 30.0  # from SIGTERM to SIGKILL for a script whose cluster is broken, and for the other hosts to close
LOOK_SECONDS = 0.5  # between two looks at the script and at Ray's processes
LONGEST_LINE = 4096  # bytes
LOGS = Path("/tmp/ray/session_latest/logs")


class ClusterError(RuntimeError):
    """The cluster cannot start or go on; the text names the host and the reason."""


@dataclass(frozen=True)
class Node:
    """This host as a node of the cluster.

    ``hosts`` maps each host of the job to its group. ``options`` are the launcher's hyperparameters.
    """

    job: str
    host: str
    hosts: Mapping[str, str]
    head: str
    cpus: int
    gpus: int
    options: Mapping[str, Any]

    @property
    def group(self) -> str:
        return self.hosts[self.host]

    @property
    def others(self) -> set[str]:
        """The hosts that join the head."""
        return {*self.hosts} - {self.head}

    @staticmethod
    def here(environment: Mapping[str, str] = os.environ) -> Node:
        """This host's node, from the variables of SageMaker's training toolkit."""
        group = environment["SM_CURRENT_INSTANCE_GROUP"]
        described = json.loads(environment["SM_INSTANCE_GROUPS_DICT"])
        groups = {name: about["hosts"] for name, about in described.items()}
        groups = groups or {group: json.loads(environment["SM_HOSTS"])}
        # Without groups of its own a job has one, and the toolkit names none that trains.
        [training] = json.loads(environment["SM_DISTRIBUTION_INSTANCE_GROUPS"]) or groups
        return Node(
            job=environment["TRAINING_JOB_ARN"],
            host=environment["SM_CURRENT_HOST"],
            hosts={host: name for name, hosts in groups.items() for host in hosts},
            head=groups[training][0],
            cpus=int(environment["SM_NUM_CPUS"]),
            gpus=int(environment["SM_NUM_GPUS"]),
            options=json.loads(environment["SM_FRAMEWORK_PARAMS"]),
        )

    @property
    def address(self) -> str:
        """Of the cluster, as ``ray.init()`` takes it."""
        return f"{socket.gethostbyname(self.head)}:{RAY_PORT}"

    def start_command(self) -> list[str]:
        """The command that starts Ray's processes on this host and returns once the node is registered."""
        head = ["--head", f"--port={RAY_PORT}", "--include-dashboard=false"]
        place = head if self.host == self.head else [f"--address={self.address}"]
        memory = self.options.get("sagemaker_ray_object_store_memory")
        return [
            *("ray", "start", *place),
            # Ray's own guess is the address on the way to the internet, which a job may not have.
            f"--node-ip-address={socket.gethostbyname(self.host)}",
            f"--num-cpus={self.cpus}",
            f"--num-gpus={self.gpus}",
            f"--labels=group={self.group}",
            f"--resources={json.dumps({self.group: self.cpus})}",
            *([] if memory is None else [f"--object-store-memory={memory}"]),
        ]

    def start_ray(self) -> None:
        """Start Ray's processes, which outlive the command. Raises ``ClusterError`` with what it printed where it fails."""
        try:
            output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            started = subprocess.run(self.start_command(), **output, text=True, check=False)
        except FileNotFoundError:
            install = "install it in the Dockerfile, like RUN pip install 'ray[data]'"
            raise ClusterError(f"the image has no Ray; {install}") from None
        if started.returncode:
            raise ClusterError(f"Ray did not start on {self.host} of {self.group}:\n{started.stdout}")
        print(f"ray_cluster: {self.host} of {self.group} is a node with {self.cpus} CPUs, {self.gpus} GPUs", flush=True)


class Raylet:
    """Ray's process of this node, of which a container has one. Raises ``ClusterError`` where there is none."""

    def __init__(self, host: str, processes: Path = Path("/proc")) -> None:
        self._host = host
        self._process = next((one for one in processes.glob("[0-9]*") if _read(one / "comm") == "raylet\n"), None)
        self.check()

    def check(self) -> None:
        """Raise ``ClusterError`` where it has ended."""
        # The state follows the name in parentheses (proc(5)); Z and X are processes that have ended.
        state = _read(self._process / "stat").rpartition(")")[2].split() if self._process else []
        if not state or state[0] in "ZX":
            last = "\n".join(_read(LOGS / "raylet.out").splitlines()[-5:])
            raise ClusterError(f"Ray's raylet ended on {self._host}; the end of its log:\n{last}")


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # its process has ended
        return ""


def accept(node: Node, listener: socket.socket, seconds: float, workers: dict[str, socket.socket]) -> None:
    """Put the connections of all other hosts into ``workers``, by host, each once it has said that it has joined the cluster.

    Whoever says anything else is disconnected. Raises ``ClusterError`` for hosts that have not joined after ``seconds``, and for
    one that is lost meanwhile.
    """
    end = time.monotonic() + seconds
    heard: dict[socket.socket, bytes] = {}
    try:
        while missing := node.others - workers.keys():
            left = end - time.monotonic()
            if left <= 0:
                named = ", ".join(f"{host} of {node.hosts[host]}" for host in sorted(missing))
                raise ClusterError(f"{named} did not join the cluster within {seconds:g} s")
            for connection in select.select([listener, *heard, *workers.values()], [], [], left)[0]:
                if connection is listener:
                    accepted = listener.accept()[0]
                    _keep_alive(accepted)
                    heard[accepted] = b""
                elif connection in heard:
                    received = _receive(connection)
                    heard[connection] += received
                    line = heard[connection]
                    if line.endswith(b"\n") or len(line) >= LONGEST_LINE or not received:
                        del heard[connection]
                        host = _host_in(line, node.job)
                        if host in node.others - workers.keys():
                            workers[host] = connection
                        else:
                            connection.close()
                else:
                    raise _lost(node, connection, workers)
    finally:
        for connection in heard:
            connection.close()


def run(
    node: Node, command: Sequence[str], workers: Mapping[str, socket.socket], check: Callable[[], object] = lambda: None
) -> int:
    """Run the script while every host is there; its exit code, which is 128 + N where signal N ended it.

    Raises ``ClusterError`` for a host that is lost, and what ``check`` raises, and ends the script before.
    """
    script = subprocess.Popen(command, env={**os.environ, "RAY_ADDRESS": node.address})
    try:
        while script.poll() is None:
            # They say nothing more: what can be read is the end of a connection.
            for connection in select.select([*workers.values()], [], [], LOOK_SECONDS)[0]:
                raise _lost(node, connection, workers)
            check()
    finally:
        script.terminate()
        try:
            script.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            script.kill()
    return script.returncode if script.returncode >= 0 else 128 - script.returncode


def report(code: int, workers: Mapping[str, socket.socket]) -> None:
    """Tell the other hosts the exit code, and wait until they have it: nothing of this host is left afterwards."""
    left = [*workers.values()]
    for connection in left:
        with contextlib.suppress(OSError):  # it is lost
            connection.sendall(json.dumps({"exit_code": code}).encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
    end = time.monotonic() + END_SECONDS
    while left and (ready := select.select(left, [], [], max(0, end - time.monotonic()))[0]):
        left = [connection for connection in left if connection not in ready or _receive(connection)]


def connect(address: tuple[str, int], seconds: float) -> socket.socket:
    """A connection to the head, once that listens. Raises ``ClusterError`` after ``seconds`` without one."""
    end = time.monotonic() + seconds
    while True:
        try:
            connection = socket.create_connection(address, timeout=CONNECT_SECONDS)
        except OSError as error:
            if time.monotonic() > end:
                raise ClusterError(f"the head {address[0]} did not answer within {seconds:g} s: {error}") from None
            time.sleep(LOOK_SECONDS)
        else:
            connection.settimeout(None)
            _keep_alive(connection)
            return connection


def attend(node: Node, head: socket.socket, check: Callable[[], object] = lambda: None) -> int:
    """Tell the head that this host has joined, and wait for the end of the script; its exit code.

    Raises ``ClusterError`` where the head is lost, and what ``check`` raises.
    """
    head.sendall(json.dumps({"job": node.job, "host": node.host}).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        if select.select([head], [], [], LOOK_SECONDS)[0]:
            received = _receive(head)
            if not received:
                before = "before it reported the end of the script"
                raise ClusterError(f"{node.head}, the head of the cluster, was lost {before}")
            line += received
        else:
            check()
    return int(json.loads(line)["exit_code"])


def _lost(node: Node, connection: socket.socket, workers: Mapping[str, socket.socket]) -> ClusterError:
    host = next(host for host, one in workers.items() if one is connection)
    return ClusterError(f"{host} of {node.hosts[host]} was lost: its connection ended before the script did")


def _host_in(line: bytes, job: str) -> str:
    """The host of ``job`` that a line names; nothing where it names none."""
    try:
        said = json.loads(line)
        return str(said["host"]) if said["job"] == job else ""
    except (ValueError, TypeError, KeyError):
        return ""


def _receive(connection: socket.socket) -> bytes:
    """What has come; nothing at the connection's end, however it ended."""
    try:
        return connection.recv(LONGEST_LINE)
    except OSError:  # reset, or silent for as long as KEEPALIVE allows
        return b""


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def be_head(node: Node, arguments: Sequence[str]) -> int:
    """Start the cluster and run the script on it; the script's exit code, with which this host ends."""
    node.start_ray()
    check = Raylet(node.host).check
    workers: dict[str, socket.socket] = {}
    code = 1
    try:
        with socket.create_server((socket.gethostbyname(node.host), CONTROL_PORT), backlog=len(node.hosts)) as listener:
            accept(node, listener, JOIN_SECONDS, workers)
        script = node.options["sagemaker_ray_script"]
        print(f"ray_cluster: {len(node.hosts)} hosts have joined; {script} begins on {node.host}", flush=True)
        code = run(node, [sys.executable, script, *arguments], workers, check)
    finally:
        report(code, workers)
    return code


def be_worker(node: Node) -> int:
    """Join the cluster until the script has ended; 0, whatever its exit code, which is the head's to end with."""
    with connect((node.head, CONTROL_PORT), JOIN_SECONDS) as head:
        node.start_ray()
        code = attend(node, head, Raylet(node.host).check)
    print(f"ray_cluster: the script has ended on {node.head} with exit code {code}; {node.host} ends", flush=True)
    return 0


def main() -> int:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # which Ray would send to its makers
    node = Node.here()
    try:
        return be_head(node, sys.argv[1:]) if node.host == node.head else be_worker(node)
    except ClusterError as error:
        # The toolkit copies to FailureReason from a line on that names an exception of Python's own (its _PYTHON_ERRORS_).
        print(f"ray_cluster: RuntimeError: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
