"""Installs packages by uv, with what pip's settings and options mean: its cache is shared by all environments of this machine.

uv reads its own settings alone, so that an index, a folder of wheels, constraints or a certificate that pip was told of would not
count. Settings of uv's own, in variables that begin with UV_, win over them. This file is also read by release/uv_install.py
before anything else is installed.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from uv import find_uv_bin

# The variables of uv for the settings of pip, and what stands between several values.
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
}
# Options of `pip install` that are pip's alone, or change nothing in an environment that is made once for its requirements.
_DROPPED = frozenset(
    [
        "-q",
        "--quiet",
        "-v",
        "-vv",
        "-vvv",
        "--verbose",
        "-I",
        "--ignore-installed",
        "--isolated",
        "--require-virtualenv",
        "--no-input",
        "--no-color",
        "--debug",
        "--no-python-version-warning",
        "--disable-pip-version-check",
        "--no-cache",
        "--no-cache-dir",
        "--compile",
        "--no-compile",
        "--compile-bytecode",
        "--use-pep517",
        "--no-warn-script-location",
        "--no-warn-conflicts",
        "--check-build-dependencies",
        "--prefer-binary",
        "--no-clean",
        "-n",
    ]
)
_DROPPED_WITH_VALUE = frozenset(
    [
        "--retries",
        "--resume-retries",
        "--timeout",
        "--cache-dir",
        "--progress-bar",
        "--root-user-action",
        "--exists-action",
        "--src",
        "--log",
        "--use-feature",
        "--use-deprecated",
        "--global-option",
        "--keyring-provider",
        "--upgrade-strategy",
        "-p",
        "--python",
        "--link-mode",
    ]
)
_TRUE = ("1", "true", "yes", "on", "y", "t")
_RENAMED = {
    "--trusted-host": "--allow-insecure-host",
    "--pre": "--prerelease=allow",
    "--force-reinstall": "--reinstall",
}
_VARIABLES_OF_OPTIONS = {"--proxy": "ALL_PROXY", "--client-cert": "SSL_CLIENT_CERT"}


def settings(listed: str) -> tuple[list[str], dict[str, str]]:
    """Returns the arguments and variables of uv for what `pip config list` prints, which has the variables of pip first.

    A variable of pip wins over its files.
    """
    lines = "\n".join(sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")))
    of_pip = dict(re.findall(r"^(?:\w+|:env:)\.([\w-]+)='(.*)'$", lines, re.MULTILINE))
    found = {
        variable: between.join(of_pip[name].replace("\\n", " ").split())
        for name, (variable, between) in VARIABLES.items()
        if name in of_pip
    }
    if of_pip.get("pre", "").lower() in _TRUE:
        found["UV_PRERELEASE"] = "allow"
    # uv has no variable for it.
    return ["--no-index"] if of_pip.get("no-index", "").lower() in _TRUE else [], found


def command(python: Path, *, compiles: bool = True) -> tuple[list[str], dict[str, str]]:
    """Returns the command that installs packages into the environment of a Python, without its arguments, and its variables.

    The newest version of all indexes is taken, as by pip.
    """
    pip = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(pip, check=False, capture_output=True, text=True).stdout  # without pip it has no settings
    arguments, variables = settings(listed)
    compiling = ["--compile-bytecode"] if compiles else []
    words = [find_uv_bin(), "pip", "install", "--python", str(python), *compiling, *arguments]
    return words, {"UV_INDEX_STRATEGY": "unsafe-best-match", **variables, **os.environ}


def options(of_pip: Sequence[str], packages: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the arguments and variables of uv for options of `pip install`.

    pip upgrades the packages that are named, and what they require only where it must; `--upgrade` of uv upgrades everything.

    Args:
        of_pip: the options, each value a word of its own.
        packages: the names of the packages of the command.
    """
    arguments: list[str] = []
    variables: dict[str, str] = {}
    eager = any(pair == ("--upgrade-strategy", "eager") for pair in itertools.pairwise(of_pip))
    rest = iter(of_pip)
    for option in rest:
        if option in _DROPPED_WITH_VALUE:
            next(rest, None)
        elif option in _VARIABLES_OF_OPTIONS:
            variables[_VARIABLES_OF_OPTIONS[option]] = next(rest, "")
        elif option in ("--no-binary", "--only-binary"):
            arguments += [word for name in next(rest, "").split(",") for word in (option, name)]
        elif option in ("-U", "--upgrade"):
            arguments += ["--upgrade"] if eager else [f"--upgrade-package={name}" for name in packages]
        elif option not in _DROPPED:
            arguments.append(_RENAMED.get(option, option))
    return arguments, variables


def failure(output: str) -> str:
    """Returns what uv said of an installation that failed, in one line that begins with what cannot be installed.

    Like "cannot install pandas==0: Because there is no version of pandas==0 and you require pandas==0, we can conclude ..."
    """
    said = " ".join(output.partition("error: ")[2].split()) or " ".join(output.split()[-40:])
    cause = said.removeprefix("No solution found when resolving dependencies").removeprefix(" cause: ")
    wanted = re.findall(r"you require (\S+?)[,.]?(?:\s|$)", cause)
    built = re.search(r"Failed to build `([^`]+)`", cause)
    name = wanted[-1] if wanted else built[1] if built else ""
    return f"cannot install {name}: {cause}" if name else f"uv pip install failed: {cause}"
