"""The supervisor of one pod, a program that `pod.py` starts and controls over a socket.

It reads the pod as JSON from standard input (`supervisor_request.py`). Its processes, each the child of the one before and killed
by the kernel when its parent dies:

    supervisor   outside all namespaces: forwards commands, and connections to the account's endpoint
    switch       in the pod's user and network namespace: makes a bridge, and a veth pair to each host
    keeper       one per host, in the host's namespaces except the PID namespace: signals init, and waits for its end
    init         one per host, process 1: builds the root file system, and executes the host's command

The command is process 1 of its host, as in a container (docker run without --init): it receives only signals that it handles, and
has to reap orphans.

It does not need root: a user is root in namespaces that are made inside their own user namespace.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import resource
import select
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from sagemaker_local_account.runtime import disk, netlink, rootfs

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP = 0x10000000, 0x20000000, 0x40000000, 0x2000000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MESSAGE_BYTES = 65536
PR_CAPBSET_DROP = 24
# Docker's default capabilities (capabilities(7)): chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap,
# net_bind_service, net_raw, sys_chroot, mknod, audit_write, setfcap. With sys_admin a command could make the machine's folders
# writable.
CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
# The number of keyctl(2), by architecture.
SYS_KEYCTL, KEYCTL_JOIN_SESSION_KEYRING = {"x86_64": 250, "aarch64": 219}, 1
NO_COMMAND = "exec:"  # the prefix of the error for a missing command
KILLED = "a process of the account that runs it was killed"
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # a shell's exit codes for these, and Docker's

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Runs the supervisor, whose argument is the descriptor of the control socket."""
    control = socket.socket(fileno=int(sys.argv[-1]))
    control.set_inheritable(False)
    job = json.loads(sys.stdin.buffer.read())
    # The job's folder stays open, which marks it as in use; commands do not inherit it.
    inputs = [host["input"] for host in job["hosts"] if host["input"] is not None]
    for descriptor in (job["folder"], *inputs, *(host["output"] for host in job["hosts"])):
        os.set_inheritable(descriptor, False)
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    ends = {host["name"]: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for host in job["hosts"]}
    reports = {name: pair[1] for name, pair in ends.items()}
    switch = fork(lambda parent: _switch(job, reports, parent), control)
    for report in reports.values():  # so that the end of a host's processes is the end of its messages
        report.close()
    try:
        _forward(control, {name: pair[0] for name, pair in ends.items()}, job["endpoint_port"])
    finally:
        os.kill(switch, signal.SIGKILL)
        # The kernel kills the others in turn; this process is their subreaper and waits for all of them.
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        for group in {group for host in job["hosts"] for group in host["control_groups"]}:
            with contextlib.suppress(OSError):  # a running account removes it
                os.rmdir(group)


def fork(run: Callable[[int], None], report: socket.socket) -> int:
    """Forks a child that calls `run` with the parent's process id; an exception is sent to `report`. Returns its process id."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            run(parent)
        except Exception as error:
            _send(report, {"failed": str(error)})
        finally:
            os._exit(0)
    return child


def _unshare(flags: int, parent: int) -> None:
    """Moves this process to new namespaces, as root of a user namespace with this user only."""
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(flags | CLONE_NEWUSER), "unshare")
    # Required before gid_map: else a process could drop a group that denies it access to files (user_namespaces(7)).
    for file, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{file}", "w") as handle:
            handle.write(text)
    _die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def _die_with_parent() -> None:
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def _forward(control: socket.socket, hosts: dict[str, socket.socket], endpoint_port: int) -> None:
    """Forwards commands to the hosts and the hosts' messages to the account, until the account closes the socket.

    A host whose messages end before it has ended is lost: its keeper was killed, or the switch, and the kernel killed the others.
    """
    codes: dict[str, int] = {}
    running = {*hosts}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        for name, end in hosts.items():
            selector.register(end, selectors.EVENT_READ, name)
        while True:
            for key, _ in selector.select():
                name = key.data
                if name is None:
                    message, _ = received(control)
                    if not message:
                        return
                    for addressed in running.intersection(json.loads(message)["hosts"]):
                        with contextlib.suppress(OSError):  # its keeper has been killed, which is the next thing read
                            hosts[addressed].send(message)
                    continue
                message, descriptors = received(hosts[name])
                for descriptor in descriptors:
                    relay(socket.socket(fileno=descriptor), endpoint_port)
                if not message:
                    selector.unregister(hosts[name])
                    if name in running:
                        running.remove(name)
                        _send(control, {"host": name, "failed": KILLED, "code": -signal.SIGKILL, "lost": True})
                    continue
                content = json.loads(message)
                if "code" in content:
                    codes[name] = content["code"]
                elif "ended" in content:
                    running.remove(name)
                    # Without an exit code the keeper was killed too.
                    _send(control, {"host": name, "code": codes.get(name, -signal.SIGKILL)})
                else:
                    _send(control, {"host": name, **content})


def received(end: socket.socket) -> tuple[bytes, list[int]]:
    """The next message of the peer with its descriptors; empty once it has ended, after its last message.

    A peer that ends without having read all that was sent to it resets the connection. Linux reports that once, before what the
    peer had sent.
    """
    while True:
        with contextlib.suppress(ConnectionResetError):
            message, descriptors, _, _ = socket.recv_fds(end, MESSAGE_BYTES, 1)
            return message, descriptors


def relay(listener: socket.socket, port: int) -> None:
    """Forwards each connection to `listener` to a port of this machine, on threads."""

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def join(near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as far:
            back = threading.Thread(target=pump, args=(far, near), daemon=True)
            back.start()
            pump(near, far)
            back.join()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                threading.Thread(target=join, args=(near,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _switch(job: dict[str, Any], reports: dict[str, socket.socket], parent: int) -> None:
    _unshare(CLONE_NEWNET, parent)
    with netlink.Links() as links:
        links.add_bridge("hosts")
        links.up("hosts")
        links_to_hosts = [_start_keeper(job, host, reports) for host in job["hosts"]]
        for report in reports.values():
            report.close()
        for number, link in enumerate(links_to_hosts):
            _, namespaces = received(link)
            if namespaces:  # else the keeper has failed, and has sent the error
                links.add_cable(f"host{number}", "hosts", "eth0", namespaces[0])
                links.up(f"host{number}")
                tell(link)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def tell(link: socket.socket) -> None:
    """Has a host go on; one that was killed meanwhile is lost, as the supervisor reads next, and the others start."""
    with contextlib.suppress(BrokenPipeError):
        link.send(b"!")


def _start_keeper(job: dict[str, Any], host: dict[str, Any], reports: dict[str, socket.socket]) -> socket.socket:
    report = reports[host["name"]]
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def keep(parent: int) -> None:
        near.close()
        for other in reports.values():
            if other is not report:
                other.close()
        for group in host["control_groups"]:
            _join(group)
        _unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWCGROUP, parent)
        with open("/proc/self/ns/net") as namespace:
            descriptor = array.array("i", [namespace.fileno()])
            far.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)])
        volume = disk.Volume(host["own"][disk.PATH], host["disk_mebibytes"]) if host["disk_mebibytes"] else None
        alive, held = os.pipe()

        def start(_: int) -> None:
            os.close(held)
            _die_with_parent()
            # The keeper may have died already. In a PID namespace of its own this process can't ask who its parent is; a
            # process that dies closes its files before the kernel signals its children.
            if select.select([alive], [], [], 0)[0]:
                os._exit(1)
            _init(job, host, volume, far, report)

        command = fork(start, report)
        _send(report, {"process": command})
        code = _code_of(command, report)
        if volume is not None and code != -signal.SIGKILL:  # the disk of a failed machine is lost
            volume.copy_back()
        _send(report, {"code": code})
        _send(report, {"ended": True})

    fork(keep, report)
    far.close()
    return near


def _join(group: str) -> None:
    """Moves this process, and so its children, into a control group, where that is possible."""
    with contextlib.suppress(OSError), open(f"{group}/cgroup.procs", "w") as processes:
        processes.write("0")


def _init(
    job: dict[str, Any], host: dict[str, Any], volume: disk.Volume | None, link: socket.socket, report: socket.socket
) -> None:
    """Process 1 of a host: builds its root file system and network, and executes its command."""
    _join_empty_keyring()
    socket.sethostname(host["hostname"])
    rootfs.build(
        host["rootfs"],
        image=host["image"],
        own=host["own"],
        read_only=host["read_only"],
        etc=host["etc"],
        shared_memory=host["shared_memory"],
        hidden=host["hidden"],
    )
    if volume is not None:
        volume.mount(host["rootfs"])
    for mount in host["mounts"]:
        rootfs.mount_folder(mount["folder"], host["rootfs"] + mount["path"], read_only=mount["read_only"])
    link.recv(1)
    with netlink.Links() as links:
        links.add_address("eth0", host["address"], 16)
        links.up("lo")
        links.up("eth0")
    rootfs.enter(host["rootfs"])
    os.makedirs(host["working_directory"], exist_ok=True)
    _require_command(host)
    # Until the command is executed: process 1 receives only signals that it handles, and SIGKILL (pid_namespaces(7)).
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    if job["endpoint_port"] is None:
        report.send(b'{"started": true}')
    else:
        with socket.create_server(("127.0.0.1", job["endpoint_port"]), backlog=128) as listener:
            descriptor = array.array("i", [listener.fileno()])
            report.sendmsg([b'{"started": true}'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)])
    _run(host)


def _limit_processes(most_processes: int | None) -> None:
    """Limits the processes of the host's user namespace, and makes the OOM killer prefer them.

    Since Linux 5.14 (commit 21d1c5e386bc) RLIMIT_NPROC counts the processes of a user namespace; it does not apply to the
    machine's root.
    """
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as adjustment:
        adjustment.write("500")  # of 1,000 (proc(5)): before the account and the user's other processes
    if most_processes is not None:
        resource.setrlimit(resource.RLIMIT_NPROC, (most_processes, most_processes))


def _join_empty_keyring() -> None:
    """Joins an empty session keyring instead of the user's, which may hold tickets and keys of file systems."""
    number = SYS_KEYCTL.get(os.uname().machine)
    if number is not None:  # fails in a kernel without keyrings
        _libc.syscall(ctypes.c_long(number), ctypes.c_long(KEYCTL_JOIN_SESSION_KEYRING), None)


def _require_command(host: dict[str, Any]) -> None:
    """Raises FileNotFoundError for a command that cannot be executed, with the message of `docker run`."""
    os.chdir(host["working_directory"])
    command = host["command"][0]
    if shutil.which(command, path=host["environment"].get("PATH", os.defpath)) is None:
        why = "executable file not found in $PATH"
        if "/" in command:
            why = "permission denied" if os.path.exists(command) else f"stat {command}: no such file or directory"
        refused = f'{NO_COMMAND} "{command}": {why}'
        os.write(host["output"], f"{refused}\n".encode())
        raise FileNotFoundError(refused)


def _code_of(command: int, report: socket.socket) -> int:
    """Waits for process 1 of a host, with which all its processes end; returns its exit code, negative for a signal.

    Meanwhile the account's signals are forwarded to it alone, as by `docker kill`. On one thread: a process that has made a new
    PID namespace for its children cannot start threads (unshare(2)).
    """
    ended = os.pidfd_open(command)
    with selectors.DefaultSelector() as selector:
        selector.register(ended, selectors.EVENT_READ)
        selector.register(report, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if ended in ready:
                return os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
            message, _ = received(report)
            if not message:
                os._exit(1)
            signum = json.loads(message)["signal"]  # None: the host is lost
            os.kill(command, signal.SIGKILL if signum is None else signum)


def _run(host: dict[str, Any]) -> None:
    """Executes the host's command in this process."""
    code = NOT_EXECUTABLE
    try:
        os.setsid()
        time.sleep(host["starts_after"])
        os.dup2(os.open("/dev/null", os.O_RDONLY) if host["input"] is None else host["input"], 0)
        os.dup2(host["output"], 1)
        os.dup2(host["output"], 2)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; the command should not
            signal.signal(ignored, signal.SIG_DFL)
        os.chdir(host["working_directory"])
        _limit_processes(host["most_processes"])
        for capability in range(64):  # more than exist; prctl fails for the others
            if capability not in CAPABILITIES:
                _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        os.execvpe(host["command"][0], host["command"], host["environment"])
    except FileNotFoundError as error:
        code = NOT_FOUND
        os.write(2, f"{host['command'][0]}: {error.strerror}\n".encode())
    except OSError as error:
        os.write(2, f"{host['command'][0]}: {error.strerror}\n".encode())
    finally:
        os._exit(code)


def _send(channel: socket.socket, content: dict[str, Any]) -> None:
    # Fails for a message that is too long, and where the peer has ended.
    with contextlib.suppress(OSError):
        channel.send(json.dumps(content).encode())


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
