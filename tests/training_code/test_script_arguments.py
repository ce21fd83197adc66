"""What starts a script with its arguments in the form that it takes, beside parsers that take that form."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cdk_sagemaker_training import training_code_path

STARTER = Path(training_code_path()) / "entrypoint" / "script_arguments.py"
# As the toolkit sorts and passes hyperparameters (`to_cmd_args` in mapping.py of sagemaker-training).
GIVEN = ["--compile", "False", "--dry-run", "True", "-k", "3", "--lr", "1e-3", "--text", "a b=c", "--value", "v"]


def started(folder: Path, script: str, form: str, flags: list[str], *given: str, name: str = "train.py") -> str:
    (folder / name).write_text(script)
    (folder / STARTER.name).write_bytes(STARTER.read_bytes())
    (folder / "script_arguments.json").write_text(json.dumps({"script": name, "form": form, "flags": flags}))
    command = [sys.executable, STARTER.name, *given]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


ARGUMENTS = "import json, sys; print(json.dumps(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("form", "passed"),
    [
        (
            "--key value",
            ["--compile", "False", "--dry-run", "-k", "3", "--lr", "1e-3", "--text", "a b=c", "--value", "v"],
        ),
        ("--key=value", ["--compile=False", "--dry-run", "--k=3", "--lr=1e-3", "--text=a b=c", "--value=v"]),
        ("key=value", ["compile=False", "--dry-run", "k=3", "lr=1e-3", "text=a b=c", "value=v"]),
    ],
)
def test_arguments_have_the_form_and_flags_have_no_value(tmp_path: Path, form: str, passed: list[str]) -> None:
    assert json.loads(started(tmp_path, ARGUMENTS, form, ["dry-run"], *GIVEN)) == passed


def commanded(folder: Path, command: str, *given: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / STARTER.name).write_bytes(STARTER.read_bytes())
    (folder / "script_arguments.json").write_text(json.dumps({"command": command}))
    return subprocess.run(
        [sys.executable, STARTER.name, *given],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_a_command_has_the_hyperparameters_as_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ARGUMENTS)
    done = commanded(tmp_path, f'{sys.executable} train.py --seed 1 "$@"', "--text", "a b", "--path", "$HOME")
    assert json.loads(done.stdout) == ["--seed", "1", "--text", "a b", "--path", "$HOME"]


def test_a_command_ends_at_its_first_error_with_its_exit_code(tmp_path: Path) -> None:
    done = commanded(tmp_path, "(exit 3); echo trains")
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.parametrize(("host", "rank"), [("algo-1", "0"), ("algo-10", "1"), ("algo-2", "2")])
def test_a_command_finds_its_host_among_all_as_model_trainer_says_it(tmp_path: Path, host: str, rank: str) -> None:
    hosts = {"SM_HOSTS": json.dumps(["algo-1", "algo-2", "algo-10"]), "SM_CURRENT_HOST": host}
    names = '"$SM_HOST_COUNT $SM_CURRENT_HOST_RANK $SM_MASTER_ADDR $SM_MASTER_PORT"'
    assert commanded(tmp_path, f"echo {names}", **hosts).stdout.split() == ["3", rank, "algo-1", "7777"]


def test_a_flag_that_is_false_is_left_out(tmp_path: Path) -> None:
    given = ["--amp", "False", "--seed", "1"]
    assert json.loads(started(tmp_path, ARGUMENTS, "--key value", ["amp"], *given)) == ["--seed", "1"]


def test_argparse_takes_what_is_passed(tmp_path: Path) -> None:
    script = """
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
parser.add_argument("--lr", type=float)
print(json.dumps(vars(parser.parse_args())))
"""
    parsed: Any = json.loads(started(tmp_path, script, "--key value", ["amp"], "--amp", "True", "--lr", "0.5"))
    assert argparse.Namespace(**parsed) == argparse.Namespace(amp=True, lr=0.5)


def test_a_configurator_like_nanogpts_takes_what_is_passed(tmp_path: Path) -> None:
    script = """
import sys
from ast import literal_eval
out_dir, max_iters, compile = "out", 5000, True
for argument in sys.argv[1:]:
    assert argument.startswith("--")
    key, value = argument.split("=")
    globals()[key[2:]] = type(globals()[key[2:]])(literal_eval(value) if key != "--out_dir" else value)
print(out_dir, max_iters, compile)
"""
    given = ["--compile", "False", "--max_iters", "3", "--out_dir", "/opt/ml/model"]
    assert started(tmp_path, script, "--key=value", [], *given) == "/opt/ml/model 3 False\n"


def test_a_shell_script_is_started_by_bash(tmp_path: Path) -> None:
    assert started(tmp_path, 'echo "$@"', "key=value", [], "--a", "1", name="run.sh") == "a=1\n"


def test_the_script_takes_the_place_of_the_process_and_its_exit_code_is_the_scripts(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as error:
        started(tmp_path, "import os, sys; assert os.getpid(); sys.exit(17)", "key=value", [])
    assert error.value.returncode == 17
