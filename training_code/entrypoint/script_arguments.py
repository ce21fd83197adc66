"""Starts a training script with its arguments in the form that it takes, or a command, in place of SageMaker's toolkit.

`TrainingCode(arguments=..., flags=..., command=...)` puts this file beside the script, and beside one of the shell with a
requirements.txt. `script_arguments.json` names the script, the form and the flags, or the command, which takes the place of this
process, so that signals and the exit code are its own. It requires Python 3.8 or later, and no packages.
"""

import json
import os
import sys
from pathlib import Path

SETTINGS = "script_arguments.json"
TRUE = ("true", "1", "yes", "on")


def converted(given, form, flags):
    """The script's arguments, of the toolkit's: for each hyperparameter its option, `--key`, or `-k` for a letter, and its value.

    Flags are options without a value, which are given where the value is true.
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
    """Start the script, or the command."""
    folder = Path(__file__).resolve().parent
    settings = json.loads((folder / SETTINGS).read_text())
    if "command" in settings:
        # What ModelTrainer of SageMaker's SDK tells of the hosts (its environment.py), and the toolkit does not.
        hosts = sorted(json.loads(os.environ.get("SM_HOSTS", '["algo-1"]')))
        count, rank = len(hosts), hosts.index(os.environ.get("SM_CURRENT_HOST", hosts[0]))
        names = ("SM_HOST_COUNT", "SM_CURRENT_HOST_RANK", "SM_MASTER_ADDR", "SM_MASTER_PORT")
        os.environ.update({name: str(it) for name, it in zip(names, (count, rank, hosts[0], 7777))})  # noqa: B905
        os.execvp("bash", ["bash", "-e", "-c", settings["command"], "bash", *sys.argv[1:]])
    script = str(folder / settings["script"])
    program = sys.executable if script.endswith(".py") else "bash"
    os.execvp(program, [program, script, *converted(sys.argv[1:], settings["form"], settings["flags"])])


if __name__ == "__main__":
    main()
