"""A host's volume of limited size, for the fault "full disk".

It is a tmpfs inside the host's mount namespace, which the account cannot access: the host's folder is copied into it before the
command starts, and back after it has ended.
"""

from __future__ import annotations

import os
import shutil

from sagemaker_local_account.runtime import rootfs

PATH = "/opt/ml"  # where SageMaker mounts a training machine's volume


class Volume:
    """The volume of a host, mounted over its folder by process 1 of the host and copied back by its keeper.

    Args:
        folder: the host's folder for /opt/ml on this machine.
        mebibytes: the volume's size.
    """

    def __init__(self, folder: str, mebibytes: int) -> None:
        self._mebibytes = mebibytes
        # A descriptor, which stays valid after pivot_root(2).
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY)

    def mount(self, root: str) -> None:
        """Mounts the volume and copies the folder into it.

        Raises:
            OSError: the content does not fit.
        """
        rootfs.mount_tmpfs(root + PATH, f"size={self._mebibytes}m")
        shutil.copytree(f"/proc/self/fd/{self._folder}", root + PATH, dirs_exist_ok=True, symlinks=True)

    def copy_back(self) -> None:
        """Copies the volume's content to the folder."""
        os.fchdir(self._folder)  # the host's /proc does not show this process
        shutil.copytree(PATH, ".", ignore=_mounts, dirs_exist_ok=True, symlinks=True)


def _mounts(folder: str, names: list[str]) -> list[str]:
    """The mount points in a folder, which are not copied."""
    return [name for name in names if os.path.ismount(f"{folder}/{name}")]
