"""Starts a training script with its arguments in the form that it takes, in place of the toolkit's `--key value`.

`TrainingCode(arguments=..., flags=...)` puts this file beside the script, with `script_arguments.json`, which names the script,
the form and the flags. The script takes the place of this process, so that signals and the exit code are its own. It requires
Python 3.8 or later, and no packages.
"""

import json
import os
import sys
from pathlib import Path

SETTINGS = "script_arguments.json"
TRUE = ("true", "1", "yes", "on")


def converted(given, form, flags):
    """The arguments of the script.

    Args:
        given: Those of the toolkit: for each hyperparameter its option, `--key` or for one letter `-k`, and its value.
        form: "--key value", "--key=value" or "key=value".
        flags: The names of options without a value, which are given where the value is true.
    """
    arguments = []
    pairs = iter(given)
    for option in pairs:
        value = next(pairs)
        name = option.lstrip("-")
        if name in flags:
            arguments += [option] if value.lower() in TRUE else []
        elif form == "--key value":
            arguments += [option, value]
        else:
            arguments.append(f"{'--' if form.startswith('--') else ''}{name}={value}")
    return arguments


def main():
    """Start the script."""
    folder = Path(__file__).resolve().parent
    settings = json.loads((folder / SETTINGS).read_text())
    script = str(folder / settings["script"])
    program = sys.executable if script.endswith(".py") else "bash"
    os.execvp(program, [program, script, *converted(sys.argv[1:], settings["form"], settings["flags"])])


if __name__ == "__main__":
    main()
