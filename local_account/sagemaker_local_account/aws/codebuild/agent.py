"""The agent in a build's host: it runs the buildspec's commands, and is the client of the build's docker daemon.

It is copied into the host and executed as a program, and imports only the standard library. As in CodeBuild, each command is a
script that inherits the variables and the working directory of the one before.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PLAN, PHASES, SOCKET = "plan.json", "phases.jsonl", "docker.sock"
_NO_DAEMON = (
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running? "
    "(environment.privilegedMode of the project must be true)"
)


class _Commands:
    """Runs the commands of a build, each in a shell with the variables and directory of the last one."""

    def __init__(self, folder: Path, shell: str, source: str) -> None:
        self._folder = folder
        self._shell = shell
        self._directory = folder / "directory"
        self._directory.write_text(source)
        self._variables = folder / "variables"
        self._variables.touch()
        self.succeeding = True

    def run(self, command: str) -> tuple[int, str]:
        """Runs a command; returns its exit status, and the last line that it printed."""
        script, text = self._folder / "script.sh", self._folder / "command.sh"
        text.write_text(f"{command}\n")
        variables, directory = shlex.quote(str(self._variables)), shlex.quote(str(self._directory))
        script.write_text(
            f". {variables}\n"
            f'cd "$(cat {directory})" || exit\n'
            f"trap 'set -- $?; export -p > {variables}; pwd > {directory}; exit $1' EXIT\n"
            f"export CODEBUILD_BUILD_SUCCEEDING={int(self.succeeding)}\n"
            "set -a\n"
            f". {shlex.quote(str(text))}\n"
        )
        _say(f"Running command {command}")
        with subprocess.Popen(
            [self._shell, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as running:
            assert running.stdout is not None
            last = ""
            for line in running.stdout:
                print(line, end="", flush=True)
                last = line.strip() or last
        return running.returncode, last


def drive(folder: Path) -> int:
    """Runs the phases of a plan, and writes their beginnings and ends as lines of `phases.jsonl`; returns the exit code."""
    plan = json.loads((folder / PLAN).read_text())
    commands = _Commands(folder, plan["shell"], plan["source"])
    for phase in plan["phases"]:
        name = phase["name"]
        _say(f"Entering phase {name}")
        _note(folder, phase=name, start=time.time())
        message = _run_phase(commands, phase)
        commands.succeeding = commands.succeeding and not message
        _note(folder, phase=name, end=time.time(), message=message)
        _say(f"Phase complete: {name} State: {'FAILED' if message else 'SUCCEEDED'}")
        if message:
            _say(f"Phase context status code: COMMAND_EXECUTION_ERROR Message: {message}")
        # POST_BUILD runs after a failed BUILD; any other failed phase is the last.
        if message and name != "BUILD":
            break
    return 0 if commands.succeeding else 1


def _run_phase(commands: _Commands, phase: dict[str, Any]) -> str:
    """Runs a phase up to its first failing command, then its `finally`; returns the error message, or ""."""
    message = ""
    for part in ("commands", "finally"):
        for command in phase[part]:
            code, last = commands.run(command)
            if code != 0:
                message = message or f"Error while executing command: {command}. Reason: exit status {code}: {last}"
                break
    return message


def docker(folder: Path, arguments: list[str]) -> int:
    """Runs a docker command in the build's daemon, with this process's standard streams; returns the exit code."""
    with socket.socket(socket.AF_UNIX) as daemon:
        directory = os.open(folder, os.O_RDONLY)
        try:
            # Through the folder's descriptor: the path of a socket is limited to 108 characters.
            daemon.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        except OSError:
            print(_NO_DAEMON, file=sys.stderr)
            return 1
        finally:
            os.close(directory)
        request = json.dumps({"arguments": _with_values(arguments), "directory": os.getcwd()})
        socket.send_fds(daemon, [f"{request}\n".encode()], [0, 1, 2])
        daemon.shutdown(socket.SHUT_WR)
        return int(daemon.makefile().read() or 1)


def _with_values(arguments: list[str]) -> list[str]:
    """Replaces `--build-arg NAME` by `NAME=value`: the daemon does not have this process's variables."""
    names = {position + 1 for position, word in enumerate(arguments[:-1]) if word == "--build-arg"}
    return [
        f"{word}={os.environ[word]}" if position in names and word in os.environ else word
        for position, word in enumerate(arguments)
    ]


def _note(folder: Path, **content: Any) -> None:
    with (folder / PHASES).open("a") as file:
        file.write(f"{json.dumps(content)}\n")


def _say(text: str) -> None:
    print(f"[Container] {time.strftime('%Y/%m/%d %H:%M:%S', time.gmtime())} {text}", flush=True)


if __name__ == "__main__":
    own = Path(sys.argv[1])
    sys.exit(docker(own, sys.argv[3:]) if sys.argv[2] == "docker" else drive(own))
