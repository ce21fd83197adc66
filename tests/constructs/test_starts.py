"""What the toolkit in the container can start, held against the toolkit itself: entry point, folder and launcher."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sagemaker_training import environment, mpi, process, pytorch_xla, torch_distributed
from sagemaker_training.errors import ClientError
from stacks import UserStack, message_of

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    InstanceGroup,
    Mpi,
    PyTorchXla,
    Torchrun,
    TrainingCode,
    TrainingCompiler,
    TrainingImage,
)

_PROCESS: dict[str, Any] = {"args": ["--lr", "1"], "env_vars": {}, "processes_per_host": 1}
_HOSTS: dict[str, Any] = {"master_hostname": "algo-1", "hosts": ["algo-1"]}
# The toolkit's runner of each launcher, which is made and not run.
RUNNERS: dict[str, Callable[[str], Any]] = {
    "none": lambda program: process.ProcessRunner(program, **_PROCESS),
    "torchrun": lambda program: torch_distributed.TorchDistributedRunner(
        program, **_PROCESS, **_HOSTS, current_host="algo-1", network_interface_name="lo"
    ),
    "mpi": lambda program: mpi.MasterRunner(
        program, **_PROCESS, **_HOSTS, custom_mpi_options="", network_interface_name="lo"
    ),
    "xla": lambda program: pytorch_xla.PyTorchXLARunner(
        program, **_PROCESS, **_HOSTS, current_host="algo-1", num_gpus=1
    ),
}
GROUP = InstanceGroup("ml.p3.16xlarge", 2)
JOBS = {
    "none": DataParallelJob(GROUP),
    "torchrun": DataParallelJob(GROUP, launcher=Torchrun()),
    "mpi": DataParallelJob(GROUP, launcher=Mpi()),
    "xla": CompiledJob(InstanceGroup("ml.p3.16xlarge", 2), compiler=TrainingCompiler(), launcher=PyTorchXla()),
}
FOLDERS = {
    "a script": (["train.py"], "train.py"),
    "a script in a folder": (["src/train.py"], "src/train.py"),
    "a script of the shell": (["run.sh"], "run.sh"),
    "a script of the shell and requirements": (["run.sh", "requirements.txt"], "run.sh"),
    "a program": (["run"], "run"),
    "a package": (["setup.py", "train.py"], "train.py"),
    "a package and requirements": (["setup.py", "requirements.txt", "train.py"], "train.py"),
    "a script in a package's folder": (["setup.py", "src/train.py"], "src/train.py"),
    "a script of the shell in a package": (["setup.py", "run.sh"], "run.sh"),
    "a script of the shell below a package": (["setup.py", "bin/run.sh"], "bin/run.sh"),
    "a program in a package": (["setup.py", "run"], "run"),
}


def starts(folder: Path, program: str, launcher: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the toolkit has a command for it that Python finds: `python -m` takes a module's name."""
    monkeypatch.setattr(environment, "code_dir", str(folder))
    runner = RUNNERS[launcher](program)
    monkeypatch.setattr(runner, "_setup", lambda: None)
    try:
        command = runner._create_command()
    except Exception:  # the toolkit's own classes of errors
        return False
    module = command[len(command) - 1 - command[::-1].index("-m") + 1] if "-m" in command else ""
    return "/" not in module


@pytest.mark.parametrize("launcher", JOBS)
@pytest.mark.parametrize("name", FOLDERS)
def test_code_is_refused_where_the_toolkit_has_no_command_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, launcher: str
) -> None:
    files, entry_point = FOLDERS[name]
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("")
    code = TrainingCode(str(tmp_path), entry_point=entry_point)
    stack = UserStack()
    of_compiler = {"image": TrainingImage.from_training_compiler(stack, "Compiler", "pytorch", "1.13.1")}
    props = {"job": JOBS[launcher], "code": code, **(of_compiler if launcher == "xla" else {})}
    if starts(tmp_path, entry_point, launcher, monkeypatch):
        stack.workflow(**props)
    else:
        assert re.match(r"code\.(entry_point|directory) must", message_of(lambda: stack.workflow(**props)))


@pytest.mark.parametrize(
    "name",
    [
        "train.py",
        "a+b-c_1.py",
        "deep/er/train.py",
        "my train.py",
        "-train.py",
        "träin.py",
        "tr@in.py",
        "a(1).py",
        "a;b.sh",
    ],
)
def test_names_that_the_toolkit_starts_are_taken_and_no_others(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("")
    stack, code = UserStack(), TrainingCode(str(tmp_path), entry_point=name)
    try:
        process.validate_entry_point(name)
    except ClientError:
        assert message_of(lambda: stack.task(code=code)).startswith("code.entry_point must have letters, digits and")
    else:
        stack.task(code=code)


@pytest.mark.parametrize(
    ("program", "launcher", "taken"),
    [("run.sh", "torchrun", False), ("run.sh", "mpi", True), ("run.py", "torchrun", True)],
)
def test_a_program_that_an_image_or_a_variable_names_is_refused_as_code_is(
    tmp_path: Path, program: str, launcher: str, taken: bool
) -> None:
    (tmp_path / program).write_text("")
    lines = [
        "FROM 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.3.0-gpu-py311",
        f"COPY {program} /opt/ml/code/",
    ]
    (tmp_path / "Dockerfile").write_text("\n".join([*lines, f"ENV SAGEMAKER_PROGRAM={program}"]))
    (tmp_path / "plain.Dockerfile").write_text("\n".join(lines))
    for file, variables in (("Dockerfile", {}), ("plain.Dockerfile", {"SAGEMAKER_PROGRAM": program})):
        stack = UserStack()
        image = TrainingImage.from_asset(stack, "Own", directory=str(tmp_path), file=file)
        props = {"job": JOBS[launcher], "image": image, "environment": variables}
        if taken:
            stack.task(**props)
        else:
            message = message_of(lambda: stack.task(**props))  # noqa: B023
            assert message.endswith(
                "must end in .py for Torchrun(), which starts Python scripts alone, like 'train.py', got 'run.sh'"
            )


@pytest.mark.parametrize(
    "props",
    [{"environment": {"SAGEMAKER_PROGRAM": "train.py"}}, {"container_entrypoint": ["bash", "run.sh"]}],
    ids=["a variable names another", "the toolkit is not started"],
)
def test_a_shell_script_that_an_image_names_is_taken_where_the_launcher_does_not_start_it(
    tmp_path: Path, props: dict[str, Any]
) -> None:
    (tmp_path / "run.sh").write_text("")
    base = "FROM 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.3.0-gpu-py311"
    lines = [base, "COPY run.sh /opt/ml/code/", "ENV SAGEMAKER_PROGRAM=run.sh"]
    (tmp_path / "Dockerfile").write_text("\n".join(lines))
    stack = UserStack()
    image = TrainingImage.from_asset(stack, "Own", directory=str(tmp_path), file="Dockerfile")
    stack.workflow(job=JOBS["torchrun"], image=image, **props)
