"""Commands that cannot train, which synthesis refuses or warns of: tests/training_jobs/test_commands.py holds what is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from stacks import UserStack, message_of

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    Mpi,
    Torchrun,
    TrainingCode,
    TrainingImage,
    unlisted,
)

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--name", choices=["a", "b"])
parser.parse_args()
"""
FOUR_GPUS = "ml.g5.12xlarge"
FSDP = "distributed_type: FSDP\nnum_processes: {}\n"
LR = {"lr": 0.1}
SEVERAL = '--nnodes $SM_HOST_COUNT --node_rank $SM_CURRENT_HOST_RANK --master_addr $SM_MASTER_ADDR train.py "$@"'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in {
        "train.py": SCRIPT,
        "fsdp.yaml": FSDP.format(4),
        "wide.yaml": FSDP.format(8),
        "run.sh": 'torchrun --nproc_per_node 4 train.py "$@"\n',
        "apart.sh": '#!/bin/bash\n\ntorchrun --standalone train.py "$@"\n',
        "plain.sh": "python train.py --lr 1\n",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(source: Path, command: str, hosts: int = 1, instance_type: str = FOUR_GPUS, **props: Any) -> list[str]:
    """The warnings of a job that a command starts."""
    stack = UserStack()
    code = TrainingCode(str(source), **({"entry_point": command} if command.endswith(".sh") else {"command": command}))
    job = DataParallelJob(InstanceGroup(instance_type, hosts))
    stack.task(**{"job": job, "code": code, "hyperparameters": LR, **props})
    return [
        name for name in stack.warned() if name.startswith("command-") or "accelerators" in name or "launcher" in name
    ]


@pytest.mark.parametrize(
    ("command", "hosts", "found"),
    [
        ("torchrun --nproc_per_node 5 trian.py", 1, "command, of code, must start a file of code's folder, which the machine has "
         "in /opt/ml/code, like 'train.py', got 'trian.py'; a comment `# training-jobs: allow command` in it switches this off"),
        ("torchrun --nnodes 4 train.py", 2, "command, of code, must wait for as many machines as the job has, or it waits until "
         "max_runtime or a timeout, like --nnodes 2, got 4 with 2"),
        ("accelerate launch --config_file fsdp.yml train.py", 1, "command, of code, must name a config_file of code's folder, "
         "without which accelerate ends, like 'fsdp.yaml', got 'fsdp.yml'"),
        ("python train.py", 1, "the arguments of command, of code, must have 'lr', which the script requires, "
         "like {'lr': ...}, got none for train.py:4"),
        ("python train.py --lr x", 1, "--lr of command, of code, must be one that type=float of the script takes, like 3, "
         "got 'x' of train.py:4"),
        ('python train.py "$@" --name c', 1, "--name of command, of code, must be one of the script's choices, 'a', 'b', "
         "like 'a', got 'c' of train.py:5"),
        ('deepspeed train.py "$@"', 1, "--local_rank of command, of code, must be an option of the script"),
    ],
)  # fmt: skip
def test_a_command_at_which_the_job_ends_or_waits_is_refused(
    source: Path, command: str, hosts: int, found: str
) -> None:
    assert message_of(lambda: run(source, command, hosts)).startswith(found)


def test_a_hyperparameter_that_a_commands_script_does_not_take_is_refused_by_its_name(source: Path) -> None:
    message = message_of(lambda: run(source, 'torchrun train.py "$@"', hyperparameters={**LR, "name": "c"}))
    assert message.startswith(
        "hyperparameters['name'] must be one of the script's choices, 'a', 'b', like 'a', got 'c'"
    )


def test_a_file_of_bash_is_refused_with_its_line(source: Path) -> None:
    (source / "run.sh").write_text('set -e\n\ntorchrun trian.py "$@"\n')
    message = message_of(lambda: run(source, "run.sh"))
    assert message.startswith(f"{source / 'run.sh'}:3, of code, must start a file of code's folder")


def test_a_file_of_bash_with_the_lines_of_windows_is_refused(source: Path) -> None:
    (source / "run.sh").write_bytes(b'#!/bin/bash\r\ntorchrun train.py "$@"\r\n')
    assert message_of(lambda: run(source, "run.sh")).startswith(
        f"{source / 'run.sh'}:1, of code, must be started from lines that end with LF alone"
    )


@pytest.mark.parametrize(
    ("command", "hosts", "warned"),
    [
        ('torchrun --nproc_per_node 4 train.py "$@"', 1, []),
        ('torchrun --nproc_per_node $SM_NUM_GPUS train.py "$@"', 1, []),
        (f"torchrun --nproc_per_node 4 {SEVERAL}", 2, []),
        ("run.sh", 1, []),
        ("bash run.sh", 1, []),
        ('torchrun train.py "$@"', 1, ["idle-accelerators"]),
        ('torchrun --nproc_per_node 8 train.py "$@"', 1, ["more-processes-than-accelerators"]),
        ('accelerate launch --config_file wide.yaml train.py "$@"', 1, ["more-processes-than-accelerators"]),
        ('torchrun --nproc_per_node 4 train.py "$@"', 2, ["command-hosts-alone"]),
        ("apart.sh", 2, ["command-hosts-alone", "idle-accelerators"]),
        ("python train.py --lr 1", 1, ["no-launcher", "command-ignores-hyperparameters"]),
        ("plain.sh", 1, ["no-launcher", "command-ignores-hyperparameters"]),
        ('python train.py "$@"', 1, ["no-launcher"]),
        ("python train.py --lr $SM_HP_LR", 1, ["no-launcher"]),
    ],
)
def test_what_costs_machines_or_ignores_a_value_is_a_warning(
    source: Path, command: str, hosts: int, warned: list[str]
) -> None:
    if command == "bash run.sh":
        command = 'bash run.sh "$@"'
    assert sorted(run(source, command, hosts)) == sorted(warned)


@pytest.mark.parametrize(("variable", "warned"), [("SM_NUM_NEURONS", []), ("SM_NUM_GPUS", ["idle-accelerators"])])
def test_trainium_is_counted_by_neurons_and_has_no_gpu(source: Path, variable: str, warned: list[str]) -> None:
    command = f'torchrun --nproc_per_node ${variable} train.py "$@"'
    assert run(source, command, instance_type="ml.trn1.32xlarge") == warned


def test_processes_of_a_type_that_is_not_known_are_not_known(source: Path) -> None:
    (source / "zero.json").write_text('{"train_batch_size": 100, "train_micro_batch_size_per_gpu": 8}')
    (source / "other.py").write_text("")
    machines = InstanceGroup([FOUR_GPUS, unlisted("ml.p9e.48xlarge")], 2)
    code = TrainingCode(str(source), entry_point="other.py")
    UserStack().workflow(
        job=DataParallelJob(machines, launcher=Torchrun()), code=code, hyperparameters={"deepspeed": "zero.json"}
    )


def test_a_file_that_a_command_names_in_another_folder_is_not_sought_in_that_of_the_code(source: Path) -> None:
    (source / "src").mkdir()
    for name, text in {"other.py": "", "zero.json": "{}"}.items():
        (source / "src" / name).write_text(text)
    run(source, "cd src && torchrun --nproc_per_node 4 other.py --deepspeed zero.json")


def test_a_count_of_machines_that_is_a_token_leaves_what_depends_on_it_unknown(source: Path) -> None:
    stack = UserStack()
    count = cdk.CfnParameter(stack, "Count", type="Number").value_as_number
    job = DataParallelJob(InstanceGroup(FOUR_GPUS, count))
    command = 'torchrun --nnodes 4 --nproc_per_node 4 train.py "$@"'
    stack.task(job=job, code=TrainingCode(str(source), command=command), hyperparameters=LR)


def test_instance_groups_start_a_command_in_their_own_ways(source: Path) -> None:
    stack = UserStack()
    groups = {"cpu": InstanceGroup("ml.c5.xlarge")}
    job = HeterogeneousJob(groups=groups, train=DataParallelJob(InstanceGroup(FOUR_GPUS)), train_group="gpu")
    code = TrainingCode(str(source), command='torchrun --standalone train.py "$@"')
    stack.workflow(job=job, code=code, hyperparameters=LR)
    assert "command-hosts-alone" not in stack.warned()


def test_a_launcher_starts_a_file_of_bash_in_its_own_way(source: Path) -> None:
    job = DataParallelJob(InstanceGroup(FOUR_GPUS, 2), launcher=Mpi())
    assert "command-hosts-alone" not in run(source, "apart.sh", job=job)


@pytest.mark.parametrize(
    ("requirements", "command", "refused"),
    [
        (None, "accelerate launch train.py --lr 1", True),
        ("numpy\n", "accelerate launch train.py --lr 1", True),
        ("accelerate\n", "accelerate launch train.py --lr 1", False),
        ("trl\n", "accelerate launch train.py --lr 1", False),
        (None, "pip install accelerate && accelerate launch train.py --lr 1", False),
        ("wandb\n", "python -m accelerate.commands.launch train.py --lr 1", True),
        (None, "torchrun train.py --lr 1", False),
    ],
)
def test_a_launcher_that_nothing_brings_into_awss_container_is_refused(
    source: Path, requirements: str | None, command: str, refused: bool
) -> None:
    if requirements is not None:
        (source / "requirements.txt").write_text(requirements)
    stack = UserStack()
    image = TrainingImage.from_dlc(stack, "Pytorch", "pytorch", "2.13-cpu-amzn2023-sagemaker")
    job = DataParallelJob(InstanceGroup("ml.m5.xlarge"))

    def make() -> None:
        stack.task(job=job, image=image, code=TrainingCode(str(source), command=command))

    if refused:
        assert message_of(make).startswith(
            "command, of code, must start a program that the container has, or requirements.txt"
        )
    else:
        make()


WRONG = "hyperparameters['deepspeed'] must name a file that is right: it must have a train_batch_size that is"
MISSING = "hyperparameters['deepspeed'] must name a file of code's folder, like 'zero.json', got 'zreo.json'"


@pytest.mark.parametrize(
    ("launcher", "file", "refused"),
    [
        (Torchrun(processes_per_host=5), "zero.json", WRONG),
        (Torchrun(processes_per_host=7), "zero.json", WRONG),
        (Torchrun(processes_per_host=6), "zero.json", ""),
        (None, "zero.json", ""),  # how many processes the script starts is not known
        (Torchrun(), "zreo.json", MISSING),
        (Torchrun(), "/opt/ml/input/data/configs/zero.json", ""),
    ],
)
def test_a_file_of_deepspeed_is_held_against_the_processes_of_all_machines(
    source: Path, launcher: Torchrun | None, file: str, refused: str
) -> None:
    (source / "zero.json").write_text('{"train_batch_size": 96, "train_micro_batch_size_per_gpu": 8}')
    (source / "other.py").write_text("")
    job = DataParallelJob(InstanceGroup(FOUR_GPUS, 2), launcher=launcher)
    code = TrainingCode(str(source), entry_point="other.py")

    def make() -> None:
        UserStack().task(job=job, code=code, hyperparameters={"deepspeed": file})

    if refused:
        assert message_of(make).startswith(refused)
    else:
        make()


def test_a_file_of_deepspeed_in_a_command_is_held_against_the_commands_processes(source: Path) -> None:
    (source / "zero.json").write_text('{"train_batch_size": 100, "train_micro_batch_size_per_gpu": 8}')
    (source / "other.py").write_text("")
    message = message_of(lambda: run(source, "torchrun --nproc_per_node 4 other.py --deepspeed zero.json"))
    assert message.startswith("--deepspeed of command, of code, must name a file that is right")
    (source / "zero.json").write_text('{"train_batch_size": 96, "train_micro_batch_size_per_gpu": 8}')
    run(source, "torchrun --nproc_per_node 4 other.py --deepspeed zero.json")
