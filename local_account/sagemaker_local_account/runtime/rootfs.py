"""The root file system of a host: the machine's system folders, read-only, overlaid with the image's files.

It consists of bind mounts inside the host's mount namespace, which are invisible outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import os
import shutil
from collections.abc import Mapping, Sequence

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2
# mount_setattr(2) is missing in older C libraries; its number is the same on all supported architectures.
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1

# The system folders; /nix and /gnu are those of NixOS and Guix.
SYSTEM = ("bin", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "sbin", "usr")
EMPTY = ("dev", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "var/log", "var/tmp")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# The parts of /etc that programs read and that are not secret: patterns of fnmatch(3). Hidden are among others shadow, ssh,
# ssl/private, pip.conf, npmrc, gitconfig, environment and machine-id; passwd and group are a host's own.
ETC = (
    *(
        "alternatives",
        "bash.bashrc",
        "bashrc",
        "crypto-policies",
        "debian_version",
        "fonts",
        "gai.conf",
        "host.conf",
        "inputrc",
    ),
    *(
        "java*",
        "ld.so.*",
        "locale.*",
        "localtime",
        "lsb-release",
        "magic*",
        "mime.types",
        "mtab",
        "networks",
        "nsswitch.conf",
    ),
    *(
        "openmpi*",
        "os-release",
        "perl",
        "pki/ca-trust",
        "pki/java",
        "pki/tls/cert.pem",
        "pki/tls/certs",
        "profile",
        "protocols",
    ),
    *("python*", "*-release", "rpc", "services", "shells", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "static"),
    *("terminfo", "timezone", "xml"),
)
# The parts of /proc that Docker masks by default (moby's oci/defaults.go, MaskedPaths), and further information about the
# machine's kernel and disks: its command line, modules, memory addresses and symbols.
PROC_COVERED = (
    *(
        "acpi",
        "asound",
        "buddyinfo",
        "cmdline",
        "config.gz",
        "consoles",
        "dma",
        "interrupts",
        "iomem",
        "ioports",
        "kallsyms",
    ),
    *(
        "kcore",
        "key-users",
        "keys",
        "kmsg",
        "kpagecgroup",
        "kpagecount",
        "kpageflags",
        "latency_stats",
        "modules",
        "mtrr",
    ),
    *(
        "pagetypeinfo",
        "partitions",
        "sched_debug",
        "scsi",
        "slabinfo",
        "swaps",
        "timer_list",
        "timer_stats",
        "vmallocinfo",
    ),
)
# Docker's ReadonlyPaths: settings of the machine's kernel.
PROC_READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
# The parts of /sys that are shown: processors, memory, and the host's own network. Hidden are disks, other devices, serial
# numbers.
SYS = ("devices/system", "kernel/mm/hugepages", "kernel/mm/transparent_hugepage")
SYS_OF_NETWORK = ("class/net", "devices/virtual/net")
ETC_SPLIT = sorted({"etc", *(f"etc/{os.path.dirname(path)}" for path in ETC if "/" in path)})

_libc = ctypes.CDLL(None, use_errno=True)


def build(
    root: str,
    *,
    image: str,
    own: Mapping[str, str],
    read_only: Mapping[str, str],
    etc: Mapping[str, str],
    shared_memory: int | None = None,
    hidden: Sequence[str] = (),
) -> None:
    """Builds a root file system in this process's mount namespace.

    Args:
        root: the folder for it.
        image: the image's root folder, whose files are copied, since hosts may write to them.
        own: the host's writable folders, by mount point; they take precedence over the image's files.
        read_only: the host's read-only folders, by mount point.
        etc: the content of the host's own files in /etc, by name; they take precedence over the image's.
        shared_memory: the size of /dev/shm in bytes; None for half of the machine's memory.
        hidden: files in the machine's system folders that are left out.
    """
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    os.makedirs(root, exist_ok=True)
    _mount(root, root, None, MS_BIND | MS_REC)
    for name in EMPTY:
        os.makedirs(f"{root}/{name}", exist_ok=True)
    for path, folder in own.items():
        _bind(folder, root + path)
    for path, folder in read_only.items():
        _bind(folder, root + path)
        _make_read_only(root + path)
    os.makedirs(f"{root}/etc", exist_ok=True)
    for name, text in etc.items():
        with open(f"{root}/etc/{name}", "w") as file:
            file.write(text)
    _lay(root, image, [f"etc/{name}" for name in etc], [os.path.realpath(path)[1:] for path in hidden])
    _add_kernel_folders(root, shared_memory)


def enter(root: str) -> None:
    """Makes `root` this process's root folder by pivot_root(2), and unmounts the old one."""
    os.chdir(root)
    # pivot_root(".", "."), see NOTES in pivot_root(2): the old root is mounted over the new one, and then unmounted.
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount the old root")
    os.chdir("/")


def mount_folder(folder: str, target: str, *, read_only: bool) -> None:
    """Bind-mounts a folder of the machine that several hosts share.

    Args:
        folder: the folder.
        target: the mount point.
        read_only: whether hosts may only read it.
    """
    _bind(folder, target)
    if read_only:
        _make_read_only(target)


def mount_tmpfs(target: str, data: str) -> None:
    """Mounts a tmpfs with options such as "size=64m"."""
    _mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, data)


def _lay(root: str, image: str, taken: Sequence[str], hidden: Sequence[str]) -> None:
    """Adds the system folders except `hidden`, and the image's files except at the paths `taken`."""
    present = [name for name in SYSTEM if os.path.lexists(f"/{name}")]
    # Where /bin, /lib and others are links into /usr, the image's /bin/x becomes /usr/bin/x.
    links = {name: os.path.realpath(f"/{name}")[1:] for name in present if os.path.islink(f"/{name}")}
    layers = {name: [f"{image}/{name}"] for name in present if name not in links}
    for name, target in links.items():
        layers.setdefault(target, []).append(f"{image}/{name}")
    layers = {path: [layer for layer in found if os.path.isdir(layer)] for path, found in layers.items()}
    split = [*taken, *hidden, *(path for path, found in layers.items() if found), *ETC_SPLIT]
    for name in present:
        if name in links:
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
        else:
            _lay_one(root, name, [], layers, split, hidden)
    for name in sorted(os.listdir(image)):
        if name not in present:
            _copy(f"{image}/{name}", f"{root}/{name}")


def _lay_one(
    root: str,
    path: str,
    folders: Sequence[str],
    layers: Mapping[str, Sequence[str]],
    split: Sequence[str],
    hidden: Sequence[str],
) -> None:
    """Binds the machine's `path`, or its entries individually where the image or the host has files in it."""
    machine, target = f"/{path}", f"{root}/{path}"
    above = [f"{folder}/{os.path.basename(path)}" for folder in folders]
    above = [*(found for found in above if os.path.lexists(found)), *layers.get(path, [])]
    if os.path.islink(machine):
        os.symlink(os.readlink(machine), target)
    elif not os.path.isdir(machine) and not above:
        if not os.path.lexists(target):
            _bind(machine, target)
            _make_read_only(target)
    elif os.path.isdir(machine) and (above or any(f"{inner}/".startswith(f"{path}/") for inner in split)):
        os.makedirs(target, exist_ok=True)
        names = [name for name in os.listdir(machine) if _shown(f"{path}/{name}") and not _replaced(name, above)]
        for name in names:
            if f"{path}/{name}" not in hidden:
                _lay_one(root, f"{path}/{name}", above, layers, split, hidden)
        for folder in above:
            for name in set(os.listdir(folder)) - set(names):
                _copy(f"{folder}/{name}", f"{target}/{name}")
    else:
        _bind(machine, target)
        _make_read_only(target)


def _shown(path: str) -> bool:
    """Whether a path of the machine is shown: all except the parts of /etc that are not in ETC."""
    if not path.startswith("etc/"):
        return True
    return path in ETC_SPLIT or any(
        fnmatch.fnmatchcase(path, f"etc/{shown}") or path.startswith(f"etc/{shown}/") for shown in ETC
    )


def _replaced(name: str, folders: Sequence[str]) -> bool:
    """Whether the image has a file or link of that name, which replaces the machine's entry."""
    paths = [f"{folder}/{name}" for folder in folders]
    return any(os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)) for path in paths)


def _copy(source: str, target: str) -> None:
    if os.path.islink(source) or not os.path.isdir(source):
        if not os.path.lexists(target):
            shutil.copy2(source, target, follow_symlinks=False)
        return
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(source):
        _copy(f"{source}/{name}", f"{target}/{name}")


def _add_kernel_folders(root: str, shared_memory: int | None) -> None:
    _mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in PROC_READ_ONLY:
        if os.path.exists(f"{root}/proc/{name}"):
            _bind(f"{root}/proc/{name}", f"{root}/proc/{name}")
            _make_read_only(f"{root}/proc/{name}")
    for name in PROC_COVERED:
        if os.path.isdir(f"{root}/proc/{name}"):
            _mount("tmpfs", f"{root}/proc/{name}", "tmpfs", MS_RDONLY)
        elif os.path.exists(f"{root}/proc/{name}"):
            _mount("/dev/null", f"{root}/proc/{name}", None, MS_BIND)
    _add_sys(root)
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            _bind(f"/dev/{name}", f"{root}/dev/{name}")
    for name, where in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{where}", f"{root}/dev/{name}")
    shm = "mode=1777" if shared_memory is None else f"mode=1777,size={shared_memory}"
    for name, kind, data in (("shm", "tmpfs", shm), ("pts", "devpts", "newinstance,ptmxmode=0666,mode=620")):
        os.makedirs(f"{root}/dev/{name}")
        _mount(kind, f"{root}/dev/{name}", kind, MS_NOSUID | MS_NODEV, data)
    os.symlink("pts/ptmx", f"{root}/dev/ptmx")


def _add_sys(root: str) -> None:
    """Adds /sys with the folders in SYS, from a new sysfs with the host's network, or from the machine's without."""
    _mount("tmpfs", f"{root}/sys", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k")
    source, shown = f"{root}/mnt", [*SYS, *SYS_OF_NETWORK]
    try:
        _mount("sysfs", source, "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except PermissionError:  # where a part of the machine's /sys is masked (mount_namespaces(7))
        source, shown = "/sys", [*SYS]
    for name in shown:
        if os.path.isdir(f"{source}/{name}"):
            _bind(f"{source}/{name}", f"{root}/sys/{name}")
    os.makedirs(f"{root}/sys/fs/cgroup")
    if source != "/sys":
        _check(_libc.umount2(source.encode(), MNT_DETACH), f"umount {source}")
    _make_read_only(f"{root}/sys")


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    # Recursive: mounts below the source cannot be left out in a less privileged namespace (mount_namespaces(7)).
    _mount(source, target, None, MS_BIND | MS_REC)


def _make_read_only(target: str) -> None:
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY)
    _check(
        _libc.syscall(
            ctypes.c_long(SYS_MOUNT_SETATTR),
            ctypes.c_long(AT_FDCWD),
            ctypes.c_char_p(target.encode()),
            ctypes.c_long(AT_RECURSIVE),
            attributes,
            ctypes.c_size_t(ctypes.sizeof(attributes)),
        ),
        f"make {target} read-only (which needs Linux 5.12)",
    )


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    _check(_libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
