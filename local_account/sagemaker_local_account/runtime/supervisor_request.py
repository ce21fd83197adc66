"""The JSON request with which `pod.py` starts the supervisor: each host's folders, mounts, environment and command."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sagemaker_local_account.core.site_packages import own_folders
from sagemaker_local_account.runtime import control_groups
from sagemaker_local_account.runtime.devices import DEVICES_PATH
from sagemaker_local_account.runtime.spec import ContainerSpec, PodSpec

SYSTEM_FOLDERS = tuple(Path(path) for path in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/nix", "/gnu"))
# A host's users and groups, unless its image has these files; the machine's are not shown.
USERS = {
    "group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
    "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
}


def request_for(
    spec: PodSpec, inputs: Mapping[str, int], outputs: Mapping[str, int], groups: Mapping[str, control_groups.Group]
) -> dict[str, Any]:
    """Returns the request that the supervisor reads from its standard input.

    Args:
        spec: the hosts.
        inputs: the descriptors of standard inputs, by host name.
        outputs: the descriptor of each host's standard output, by host name.
        groups: the hosts' control groups, by host name; empty without any.
    """
    addresses = "".join(f"{host.address} {host.name}\n" for host in spec.hosts)
    return {
        "endpoint_port": spec.endpoint_port,
        "hosts": [
            {
                **_host_as_json(host, addresses),
                "input": inputs.get(host.name),
                "output": outputs[host.name],
                "control_groups": [str(path) for path in groups[host.name].paths] if groups else [],
                "most_processes": _most_processes(host, groups.get(host.name)),
            }
            for host in spec.hosts
        ],
    }


def _host_as_json(host: ContainerSpec, addresses: str) -> dict[str, Any]:
    # Not by the variable HOME, which the job may set to anything.
    own = {"/opt/ml": host.folder / "opt" / "ml", "/tmp": host.folder / "tmp", host.home: host.folder / "home"}
    for folder in own.values():
        folder.mkdir(parents=True, exist_ok=True)
    read_only = {str(folder): str(folder) for folder in _python_folders(host.python)}
    if (host.folder / "devices").is_dir():
        read_only[DEVICES_PATH] = str(host.folder / "devices")
    return {
        "name": host.name,
        "hostname": host.hostname or host.name,
        "address": host.address,
        "hidden": [] if host.python == Path(sys.prefix) else _own_commands(),
        "rootfs": str(host.folder.absolute() / "rootfs"),
        "image": str(host.root.absolute()),
        "own": {path: str(folder.absolute()) for path, folder in own.items()},
        "read_only": read_only,
        "mounts": [
            {"path": mount.path, "folder": str(mount.folder.absolute()), "read_only": mount.read_only}
            for mount in host.mounts
        ],
        "etc": {
            **{name: text for name, text in USERS.items() if not (host.root / "etc" / name).is_file()},
            # ::1 is left out: the endpoint listens on 127.0.0.1, and some clients try only the first address.
            "hosts": f"127.0.0.1 localhost\n{addresses}",
            "hostname": f"{host.hostname or host.name}\n",
            "resolv.conf": "",
        },
        "environment": dict(host.environment),
        "command": list(host.command),
        "working_directory": host.working_directory,
        "starts_after": host.starts_after,
        "disk_mebibytes": host.disk_mebibytes,
        # Half of the memory, Linux's default (tmpfs(5)).
        "shared_memory": host.limits.memory // 2 if host.limits is not None else None,
    }


def _most_processes(host: ContainerSpec, group: control_groups.Group | None) -> int | None:
    """RLIMIT_NPROC; None where a control group limits processes, or where the kernel counts all of the user's processes."""
    release = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
    if host.limits is None or (group is not None and group.bounds("pids")) or release < (5, 14):
        return None
    # More than the number at which the account ends the host, so that its job has the reason: the kernel's limit gives none.
    return host.limits.processes * 9 // 8 + 8


@functools.cache
def _own_commands() -> list[str]:
    """The commands of the account's own packages in system folders, such as /usr/local/bin/train, which are hidden from hosts."""
    if not any(Path(sys.prefix).is_relative_to(folder) for folder in SYSTEM_FOLDERS):
        return []
    packages = importlib.metadata.Distribution.discover(path=own_folders())
    files = [str(package.locate_file(file)) for package in packages for file in package.files or []]
    commands = [os.path.normpath(file) for file in files if file.startswith("/") and "/../" in file]
    return [path for path in commands if os.path.dirname(path) == f"{sys.prefix}/bin"]


def _python_folders(python: Path) -> list[Path]:
    """The folders outside the system's that an environment needs: its own, its interpreter's, and its links' targets."""
    python = python.absolute()
    folders = {python, Path(sys.base_prefix)}
    folders |= {Path(sys.prefix)} if python == Path(sys.prefix) else {Path(path) for path in own_folders()}
    # A virtual environment's interpreter is a link, often to another link.
    link = python / "bin" / "python3"
    while link.is_symlink():
        link = Path(os.path.normpath(link.parent / link.readlink()))
        folders.add(link.parent.parent)
    folders.add(link.resolve().parent.parent)
    outside = {folder for folder in folders if not any(folder.is_relative_to(known) for known in SYSTEM_FOLDERS)}
    return sorted(folder for folder in outside if not any(folder.is_relative_to(other) for other in outside - {folder}))
