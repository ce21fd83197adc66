"""Runs a command where nothing but loopback is, with an account's port, and records all that it looks for elsewhere.

The command's network namespace has one link, on which all of IPv4 is local: a connection to any address is refused at once, by
this machine, and its packet seen. Names are resolved by a server here that has none of them. Packets and names are the record.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sagemaker_local_account.runtime import netlink
from sagemaker_local_account.runtime.supervisor import relay

NAME_SERVER = "127.0.0.53"
RESOLVER = Path("/etc/resolv.conf")
NOBODY = 3  # NXDOMAIN
# Of IPv4 packets those that go to no address of 127.0.0.0/8 (filter.txt of the kernel's documentation): load the destination,
# mask it, return nothing where it is loopback's, else all.
FILTER = [
    (0x20, 0, 0, 16),
    (0x54, 0, 0, 0xFF000000),
    (0x15, 0, 1, 0x7F000000),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0xFFFF),
]
SO_ATTACH_FILTER, ETH_P_IP = 26, 0x0800
ICMP, TCP, SYN, ACK = 1, 6, 2, 16


@dataclass(frozen=True)
class Ran:
    """What came of a command: ``sought`` are the names and the addresses outside that it looked for."""

    code: int
    output: str
    errors: str
    sought: list[str]


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float = 600) -> Ran:
    """Run a command with the account of its environment within reach, and nothing else."""
    port = int(environment["AWS_ENDPOINT_URL"].rpartition(":")[2])
    record = folder / "sought.json"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    started = ["unshare", "--user", "--map-root-user", "--net", "--mount", sys.executable, __file__]
    with ours, subprocess.Popen(
        [*started, str(theirs.fileno()), str(port), str(record), *command],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        theirs.close()
        _, [listener], _, _ = socket.recv_fds(ours, 1, 1)
        with socket.socket(fileno=listener) as within:
            relay(within, port)
            output, errors = process.communicate(timeout=seconds)
            with contextlib.suppress(OSError):
                within.shutdown(socket.SHUT_RDWR)
    return Ran(process.returncode, output, errors, json.loads(record.read_text()))


class Record:
    """What is sought outside, each once, in the order in which it was first."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}
        self._packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
        program = array.array("B", b"".join(struct.pack("=HBBI", *step) for step in FILTER))
        address, _ = program.buffer_info()
        filters = struct.pack("@HP", len(FILTER), address)
        self._packets.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filters)
        self._names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._names.bind((NAME_SERVER, 53))
        for work in (self._packet, self._name):
            threading.Thread(target=work, daemon=True).start()

    def found(self) -> list[str]:
        return [*self._found]

    def _packet(self) -> None:
        while True:
            packet = self._packets.recv(65535)
            header = 4 * (packet[0] & 15)
            protocol, target = packet[9], socket.inet_ntoa(packet[16:20])
            (port,) = struct.unpack_from("!H", packet, header + 2)
            if protocol == ICMP or (protocol == TCP and packet[header + 13] & (SYN | ACK) != SYN):
                continue  # an answer of this machine's own
            self._found[f"{target}:{port}"] = None

    def _name(self) -> None:
        while True:
            question, asker = self._names.recvfrom(4096)
            labels, at = [], 12
            while question[at]:
                labels.append(question[at + 1 : at + 1 + question[at]].decode())
                at += 1 + question[at]
            self._found[".".join(labels)] = None
            counts = struct.pack("!HHHHH", 0x8180 | NOBODY, 1, 0, 0, 0)
            self._names.sendto(question[:2] + counts + question[12 : at + 5], asker)


def _within(control: int, port: int, record: Path, command: Sequence[str]) -> int:
    """Make this process's namespaces such a place, and run the command there."""
    with netlink.Links() as links:
        links.up("lo")
        # An address of the loopback link makes its whole network local: these are all of IPv4, but for 0.0.0.0/8.
        for bit in range(8):
            links.add_address("lo", f"{1 << bit}.0.0.1", 8 - bit)
    found = Record()
    resolver = record.with_name("resolv.conf")
    resolver.write_text(f"nameserver {NAME_SERVER}\noptions attempts:1 timeout:1\n")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(str(resolver).encode(), str(RESOLVER.resolve()).encode(), None, ctypes.c_ulong(4096), None):
        raise OSError(ctypes.get_errno(), "mount --bind", str(RESOLVER))
    with socket.socket(fileno=control) as to_caller, socket.create_server(("127.0.0.1", port)) as listener:
        socket.send_fds(to_caller, [b"."], [listener.fileno()])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = subprocess.run(command, env=environment, check=False).returncode
    record.write_text(json.dumps(found.found()))
    return code


if __name__ == "__main__":
    sys.exit(_within(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
