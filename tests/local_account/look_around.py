"""A `train.py` that prints what it sees of the machine, a line for each thing, with nothing but the standard library."""

import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr", "/nix", "/gnu")
KERNEL = ("/dev", "/proc", "/sys")
PROGRAMS_AND_KERNEL = (*SYSTEM, *KERNEL, os.environ.get("PYTHON_FOLDERS", "/nowhere"))
SECONDS = 2


def mounts() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, of_kind = line.partition(" - ")
        path, options = fields.split()[4:6]
        kind = of_kind.split()[0]
        yield f"mount {path} {options[:2]} {kind if kind in ('proc', 'sysfs', 'tmpfs', 'devpts') else 'bind'}"


def files() -> Iterator[str]:
    """The root folder's entries, and each file that is none of the machine's programs or its kernel's."""
    for name in sorted(os.listdir("/")):
        yield f"root /{name}"
    skipped = [path for paths in PROGRAMS_AND_KERNEL for path in paths.split(":")]
    for folder, folders, names in os.walk("/"):
        folders[:] = sorted(name for name in folders if os.path.join(folder, name) not in skipped)
        if folder == "/etc":
            yield from (f"file /etc/{name}" for name in sorted([*folders, *names]))
            folders.clear()
        else:
            yield from (f"file {os.path.join(folder, name)}" for name in sorted(names))


def kernel() -> Iterator[str]:
    for name in sorted(os.listdir("/proc")):
        path = Path("/proc", name)
        if name.isdigit() or path.is_symlink():
            continue
        try:
            if path.is_dir():
                seen = bool(os.listdir(path))
            else:
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                seen = bool(os.read(descriptor, 1))
                os.close(descriptor)
        except OSError:
            seen = False
        if seen:
            yield f"proc {name}"
    for name in ("", "class", "devices", "devices/virtual", "fs", "fs/cgroup", "kernel", "kernel/mm"):
        yield from (f"sys {Path(name, inner)}" for inner in sorted(os.listdir(f"/sys/{name}")))
    yield from (f"group {line.split(':', 1)[1]}" for line in Path("/proc/self/cgroup").read_text().splitlines())


def devices() -> Iterator[str]:
    for folder, folders, names in os.walk("/dev"):
        yield from (f"device {os.path.join(folder, name)} folder" for name in sorted(folders))
        for name in sorted(names):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                yield f"device {path} -> {os.readlink(path)}"
            else:
                yield f"device {path} {os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def processes() -> Iterator[str]:
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        if int(name) in (1, os.getpid()):
            kind = "1" if name == "1" else "own"
            yield f"process {kind} {Path(f'/proc/{name}/comm').read_text().strip()}"
        else:
            yield f"process other {Path(f'/proc/{name}/cmdline').read_text()!r}"
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    for name in ("Uid", "Gid", "CapEff", "CapBnd", "CapAmb"):
        yield f"user {name} {' '.join(status[name].split())}"
    yield from (f"descriptor {number}" for number in sorted(os.listdir("/proc/self/fd"))[:3])
    key_owners = Path("/proc/keys").read_text() if os.path.exists("/proc/keys") else ""
    yield f"keys {len(key_owners.splitlines())}"


def network() -> Iterator[str]:
    with socket.socket() as asked:
        for _, name in socket.if_nameindex():
            packed = fcntl.ioctl(asked, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
            yield f"interface {name} {socket.inet_ntoa(packed[20:24])}"
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        name, to, gateway, *_, mask = line.split()[:8]
        yield f"route {_address(to)} {_address(mask)} {_address(gateway)} {name}"
    for table in ("tcp", "tcp6", "udp", "udp6", "raw", "unix"):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            fields = line.split()
            if table == "unix":
                yield f"listening unix {fields[-1]}"
            elif table != "tcp" or fields[3] == "0A":  # one that listens
                address, _, port = fields[1].partition(":")
                yield f"listening {table} {_address(address)} {int(port, 16)}"
    for place in os.environ.get("PROBED", "").split():
        name, address, port = place.split(",")
        with socket.socket() as asked:
            asked.settimeout(SECONDS)
            error = asked.connect_ex((address, int(port)))
            yield f"reaching {name} {os.strerror(error) if error else 'connected'}"


def _address(text: str) -> str:
    return socket.inet_ntoa(bytes.fromhex(text)[::-1]) if len(text) == 8 else text


def environment() -> Iterator[str]:
    yield from (f"environment {name}={value}" for name, value in sorted(os.environ.items()))


if __name__ == "__main__":
    for look in (files, mounts, kernel, devices, processes, network, environment):
        for line in look():
            print(line, flush=True)
