"""Whether the installed moto is one that this account can be built on: `make moto` installs the newest and runs this.

Prints each part of moto that is not what its replacement was written for, and ends with 1 where there is one.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from . import patches
from .account import LocalAccount


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        patches.collected() as misfits,
        LocalAccount(state=Path(folder) / "state"),
    ):
        pass
    for misfit in misfits:
        print(misfit)
    print(f"moto {version('moto')}: {len(misfits)} of the account's patches do not fit")
    return 1 if misfits else 0


if __name__ == "__main__":
    sys.exit(main())
