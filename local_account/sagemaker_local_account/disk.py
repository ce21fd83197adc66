"""A host's volume that is smaller than the machine's disk, so that it can be full.

It is a tmpfs inside the host's mount namespace, which the account cannot see into: what the host's folder holds is copied
in before the command starts, and out again after it has ended.
"""

from __future__ import annotations

import os
import shutil

from . import rootfs

PATH = "/opt/ml"  # where SageMaker mounts a training machine's volume


class Volume:
    """The volume of a host, over its folder `folder`; mounted by process 1 of the host, copied back by its keeper."""

    def __init__(self, folder: str, mebibytes: int) -> None:
        self._mebibytes = mebibytes
        # By its descriptor the folder can be had when it is under nobody's root any more.
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY)

    def mount(self, root: str) -> None:
        """Raises OSError where what is there does not fit."""
        rootfs.mount_tmpfs(root + PATH, f"size={self._mebibytes}m")
        shutil.copytree(f"/proc/self/fd/{self._folder}", root + PATH, dirs_exist_ok=True, symlinks=True)

    def copy_back(self) -> None:
        os.fchdir(self._folder)  # the host's /proc does not have the process that does this
        shutil.copytree(PATH, ".", ignore=_mounts, dirs_exist_ok=True, symlinks=True)


def _mounts(folder: str, names: list[str]) -> list[str]:
    """What is on no disk of the host: the file systems that it has mounted."""
    return [name for name in names if os.path.ismount(f"{folder}/{name}")]
