"""Installs packages by uv with the settings that pip has on this machine.

    .venv/bin/python release/uv_install.py -r requirements.txt

uv reads its own settings alone, so that an index, a folder of wheels, constraints or a certificate that pip was told of would not
count. Settings of uv's own, in variables that begin with UV_, win over them. Packages are compiled, as by pip: programs whose
environment says PYTHONDONTWRITEBYTECODE would compile them anew each time they start.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

# The variables of uv for the settings of pip, and what stands between several values.
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "no-index": ("UV_NO_INDEX", " "),
}


def settings(listed: str) -> dict[str, str]:
    """The variables of uv for what `pip config list` prints; a setting of a variable's own comes last there and wins."""
    found: dict[str, str] = {}
    for name, value in re.findall(r"^(?:\w+|:env:)\.([\w-]+)='(.*)'$", listed, re.M):
        if name in VARIABLES:
            variable, between = VARIABLES[name]
            found[variable] = between.join(value.replace("\\n", " ").split())
    return found


def environment() -> dict[str, str]:
    """This process's environment with pip's settings for uv, the newest version of all indexes as pip takes it."""
    pip = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(pip, check=True, capture_output=True, text=True).stdout
    # `pip config list` has the variables first.
    lines = sorted(listed.splitlines(), key=lambda line: line.startswith(":env:"))
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **settings("\n".join(lines)), **os.environ}


if __name__ == "__main__":
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "install", "--python", sys.executable, "--compile-bytecode", *sys.argv[1:]]
    sys.exit(subprocess.run(command, env=environment(), check=False).returncode)
