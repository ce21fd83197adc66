"""What a command of bash starts is what bash starts, and what launchers refuse is what torchrun and accelerate refuse."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from training_jobs.facts.launchers import RefusedError, keys_of_config, read_arguments
from training_jobs.lint import Command, Job
from training_jobs.lint.command_arguments import given_by
from training_jobs.lint.requirements import absent_modules
from training_jobs.lint.shell import ALL, UNKNOWN, Run, runs

PROGRAMS = ("torchrun", "accelerate", "deepspeed", "python", "pip", "make")
PASSED = ("--lr", "0.1")
VARIABLES = {"SM_HOST_COUNT": "2", "NAME": "value"}
QUICK, SOAK, EACH = 20, 20, 100
# What stands in the place of programs writes its arguments to a file; bash is bash.
STAND_IN = """#!/bin/bash
printf '%s\\0' "$PWD" "${0##*/}" "$@" >> "$TRACE"
printf '\\1' >> "$TRACE"
"""
# What torchrun and accelerate read of arguments, and whether accelerate starts with a file, in one process that imports both.
LAUNCHERS = """
import contextlib, io, json, sys
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from torch.distributed.run import get_args_parser
PARSERS = {"torchrun": get_args_parser, "accelerate launch": launch_command_parser}
def read(launcher, words):
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        try:
            found = vars(PARSERS[launcher]().parse_args(words))
            return [found["training_script"], found["training_script_args"], found.get("nproc_per_node")]
        except SystemExit:
            return text.getvalue().strip().splitlines()[-1].partition("error: ")[2]
def start(file):
    try:
        prepare_multi_gpu_env(_validate_launch_command(launch_command_parser().parse_args(["--config_file", file, "a.py"]))[0])
        return ""
    except Exception as error:
        return repr(error)
arguments, files = json.load(sys.stdin)
print(json.dumps([[read(*case) for case in arguments], [start(file) for file in files]]))
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name in PROGRAMS:
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    return folder


def started(text: str, programs: Path, folder: Path) -> list[tuple[str, tuple[str, ...]]]:
    """The programs that bash starts, with the folders in which it does."""
    trace = folder / "trace"
    trace.write_bytes(b"")
    folder.joinpath(*["src"] * 8).mkdir(parents=True, exist_ok=True)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "TRACE": str(trace), **VARIABLES}
    command = ["bash", "-e", "-c", text, "command", *PASSED]
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    found = [entry.split("\0")[:-1] for entry in trace.read_text().split("\1")[:-1]]
    return [(os.path.relpath(where, folder), tuple(words)) for where, *words in found]


def is_of(run: Run, where: str, words: Iterable[str]) -> bool:
    """Whether bash's words are those that were read, as far as they are known."""
    parts = [
        "".join(f"{re.escape(word)}\0" for word in PASSED)
        if word == ALL
        else "(?:[^\1]*\0)?"  # none, or several
        if word == UNKNOWN
        else re.escape(word).replace(re.escape(UNKNOWN), "[^\1]*") + "\0"
        for word in run.words
    ]
    text = "".join(f"{word}\0" for word in words)
    return bool(re.fullmatch("".join(parts), text)) and run.folder in (None, PurePosixPath(where))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('torchrun --nnodes=2 train.py "$@"', ["torchrun --nnodes=2 train.py $@"]),
        ("pip install a > log 2>&1; python b.py --n 2 > log", ["pip install a", "python b.py --n 2"]),
        ("# it's a comment\nN=4\ntorchrun --x $N \\\n  a.py # and isn't\n", ["torchrun --x 4 a.py"]),
        ("if [ -f a ]; then\n pip install a\nfi\npython b.py", ["?pip install a", "python b.py"]),
        ("for n in 1 2; do python a.py $n; done; python b.py", ["?python a.py \0", "python b.py"]),
        ("pip install a || true\npython b.py || exit 1\npython c.py", ["pip install a", "python b.py", "python c.py"]),
        ("[ -n \"$X\" ] && N=4 && python a.py\npython b.py $N", ["?python a.py", "python b.py \0"]),
        ("cd src && accelerate launch a.py", ["accelerate launch a.py"]),
        ("python a.py --hosts $SM_HOST_COUNT '$@'", ["python a.py --hosts 2 $@"]),
        ("ARGS='--a 1'; torchrun $ARGS a.py", ["torchrun \0 a.py"]),
        ("N=$(( 2 * $(echo 3) )); torchrun --n $N a.py", ["torchrun --n \0 a.py"]),
        ("A=1 B=2 python a.py | tee log && python b.py", ["python a.py", "python b.py"]),
        ("make || N=5\ntorchrun $N a.py", ["make", "torchrun \0 a.py"]),
        ("exec python a.py\npython b.py", ["python a.py"]),
        ("exit 0\npython a.py", []),
        ("f() {\n python a.py\n}\nf", []),
        ("cat <<EOF\npython a.py\nEOF\n", []),
        ("python 'a.py", []),
    ],
)  # fmt: skip
def test_what_a_text_starts_is_read_as_far_as_it_is_certain(text: str, expected: list[str]) -> None:
    found = [("" if run.is_certain else "?") + " ".join(run.words) for run in runs(text, VARIABLES)]
    assert found == expected


def drawn(number: int) -> str:
    """A text of bash of lines that scripts have."""
    rng = random.Random(number)

    def word() -> str:
        return rng.choice(
            [
                "--a",
                "--n=3",
                "2",
                "a.py",
                "'b c'",
                '"d e"',
                "$NAME",
                '"${NAME}x"',
                "$A",
                '"$B"',
                "$SM_HOST_COUNT",
                "$(echo 7)",
            ]
        )

    def program() -> str:
        before = rng.choice(["", "", "", "X=1 ", "env X=1 ", "nohup "])
        after = rng.choice(
            ["", "", "", " > log", " 2>&1", " >> log 2> errors", " | tee log", '  "$@"', " # isn't a word"]
        )
        return f"{before}{rng.choice(PROGRAMS)} {' '.join(word() for _ in range(rng.randrange(5)))}{after}"

    def line() -> str:
        return rng.choice(
            [
                *(program() for _ in range(5)),
                *(
                    "A=1",
                    "export A=2 B=$NAME",
                    "B='x y'",
                    "set -x",
                    "cd src",
                    "echo done",
                    "# it's",
                    "",
                    "C=$(date)",
                ),
                f'if [ -n "$A" ]; then\n  {program()}\n  A=5\nelse\n  {program()}\nfi',
                f"for n in 1 2; do\n{program()}\ndone",
                f'[ -z "$A" ] && {program()} || true',
                f"{program()} || echo failed",
                f"{rng.choice(PROGRAMS)} \\\n  --x 1 \\\n  a.py",
                f"true && {program()}",
                "false || A=7",
                f"{program()}; {program()}",
                f"{{ {program()}\n}}",
            ]
        )

    return "\n".join(line() for _ in range(rng.randrange(1, 8)))


def check_drawn(numbers: Iterable[int], programs: Path, folder: Path) -> int:
    seen = 0
    for number in numbers:
        text = drawn(number)
        left = started(text, programs, folder)
        for run in runs(text, VARIABLES):
            if not run.is_certain:
                continue
            while left and not is_of(run, *left[0]):
                left = left[1:]
            assert left, f"{number}: bash does not start {run}:\n{text}"
            left, seen = left[1:], seen + 1
    return seen


def test_bash_starts_what_is_read_of_drawn_texts_in_its_order(programs: Path, tmp_path: Path) -> None:
    assert check_drawn(range(QUICK), programs, tmp_path) > QUICK


@pytest.mark.soak
@pytest.mark.parametrize("shard", range(SOAK))
def test_bash_starts_what_is_read_of_many_drawn_texts(programs: Path, tmp_path: Path, shard: int) -> None:
    assert check_drawn(range(QUICK + shard * EACH, QUICK + (shard + 1) * EACH), programs, tmp_path) > EACH


ARGUMENTS: list[tuple[str, str]] = [
    ("torchrun", "--nproc_per_node 4 train.py --lr 1"),
    ("torchrun", "--nproc-per-node=auto --standalone train.py"),
    ("torchrun", "--nproc 2 train.py"),  # argparse takes the beginning of a name
    ("torchrun", "--n 2 train.py"),  # of several
    ("torchrun", "--nproc_per_nodes 4 train.py"),
    ("torchrun", "--max_restarts x train.py"),
    ("torchrun", "--start_method thread train.py"),
    ("torchrun", "--nnodes 2"),
    ("torchrun", "-m package.train --lr 1"),
    ("torchrun", "train.py --nproc_per_node 4"),
    ("accelerate launch", "--config_file a.yaml train.py"),
    ("accelerate launch", "--num-processes 4 train.py"),
    ("accelerate launch", "--num_proc 4 train.py"),  # which accelerate's parser does not take
    ("accelerate launch", "--mixed_precision fp12 train.py"),
    ("accelerate launch", "--num_machines two train.py"),
    ("accelerate launch", "--multi_gpu --use_fsdp train.py --seed 1"),
    ("accelerate launch", "--fsdp_version 3 train.py"),
    ("accelerate launch", ""),
]


def outcome(launcher: str, version: str, words: list[str]) -> dict[str, Any] | str:
    try:
        return read_arguments(launcher, version, words)
    except RefusedError as error:
        return str(error)


def without_names(message: Any) -> str:
    return re.sub(r"(?:training_)?script.*", "...", str(message))


@pytest.fixture(scope="module")
def launchers(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], list[str]]:
    """What torchrun and accelerate make of ``ARGUMENTS``, and accelerate of ``CONFIGS``."""
    folder = tmp_path_factory.mktemp("files")
    files = [folder / f"{number}.yaml" for number in range(len(CONFIGS))]
    for file, (content, _) in zip(files, CONFIGS, strict=True):
        file.write_text(content)
    given = json.dumps([[(launcher, words.split()) for launcher, words in ARGUMENTS], list(map(str, files))])
    program = subprocess.run([sys.executable, "-c", LAUNCHERS], input=given, capture_output=True, text=True, check=True)
    read, started = json.loads(program.stdout.splitlines()[-1])
    return read, started


def test_launchers_end_at_the_arguments_at_which_they_are_said_to(launchers: tuple[list[Any], list[str]]) -> None:
    for (launcher, words), real in zip(ARGUMENTS, launchers[0], strict=True):
        version = {"torchrun": "2.13.0", "accelerate launch": "1.15.0"}[launcher]
        found = outcome(launcher, version, words.split())
        if isinstance(found, str):
            # Each names what is required by names of its own.
            assert without_names(found) == without_names(real), words
            continue
        script, arguments, processes = real
        assert (found["script"], found.get("arguments", [])) == (script, arguments), words
        assert found.get("nproc_per_node", processes) == processes


def command(text: str, files: Mapping[str, str], folder: Path, **given: Any) -> Command:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(content)
    installed = {name: given.pop(name) for name in ("modules", "absent") if name in given}
    return Command(
        text,
        folder,
        {name: folder / name for name in files},
        **{"hosts": 1, "devices": 4, "job": Job(**installed), **given},
    )


TWO: Mapping[str, Any] = {"hosts": 2}
MEET = "--nnodes 2 --node_rank $SM_CURRENT_HOST_RANK --master_addr $SM_MASTER_ADDR"
C10D = "--nnodes $SM_HOST_COUNT --rdzv_backend c10d --rdzv_endpoint $SM_MASTER_ADDR:29400"
MACHINES = "--num_machines $SM_HOST_COUNT --machine_rank $SM_CURRENT_HOST_RANK --main_process_ip $SM_MASTER_ADDR"


@pytest.mark.parametrize(
    ("text", "given", "found"),
    [
        ("torchrun --nproc_per_node 4 train.py", {}, []),
        ("torchrun --nproc_per_node 4 train.py", TWO, ["hosts-alone --nnodes 1"]),
        ("torchrun --standalone train.py", TWO, ["hosts-alone --standalone"]),
        ("torchrun --standalone train.py", {}, []),
        ("torchrun --nnodes $SM_HOST_COUNT train.py", {}, []),
        ("torchrun --nnodes $SM_HOST_COUNT train.py", {"hosts": None}, []),
        (f"torchrun {MEET} train.py", TWO, []),
        (f"python -m torch.distributed.run {MEET} train.py", TWO, []),
        (f"torchrun {C10D} train.py", TWO, []),
        ("torchrun --nnodes 1:2 --rdzv_backend c10d --rdzv_endpoint algo-1:29400 train.py", TWO, []),
        ("PET_NNODES=2 PET_MASTER_ADDR=algo-1 PET_NODE_RANK=$SM_CURRENT_HOST_RANK torchrun train.py", TWO, []),
        ("torchrun --nnodes 4 train.py", TWO, ["fails 4 with 2"]),
        ("torchrun --nnodes 2 train.py", {}, ["fails 2 with 1"]),
        (f"torchrun {MEET.replace('$SM_CURRENT_HOST_RANK', '0')} train.py", TWO, ["fails --node_rank 0 on 2 machines"]),
        ("torchrun --nnodes 2 --node_rank $SM_CURRENT_HOST_RANK train.py", TWO, ["fails localhost"]),
        ("torchrun --nnodes 2 --rdzv_backend c10d train.py", TWO, ["fails no --rdzv_endpoint"]),
        ("torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint localhost:29400 train.py", TWO, ["fails localhost"]),
        ("torchrun --nproc_per_node gpu train.py", {"devices": 0}, ["fails gpu"]),
        ("torchrun --nproc_per_node four train.py", {"devices": 0}, []),
        ("torchrun --nproc_per_nodes 4 train.py", {}, ["fails unrecognized arguments: --nproc_per_nodes"]),
        ("torchrun trian.py", {}, ["fails 'trian.py'"]),
        ("cd src && torchrun trian.py", {}, ["fails 'src/trian.py'"]),
        ("torchrun /opt/ml/code/trian.py", {}, ["fails 'trian.py'"]),
        ("torchrun /opt/program/train.py", {}, []),
        ("git clone X && torchrun trian.py", {}, []),
        ("pip install a && torchrun trian.py", {}, ["fails 'trian.py'"]),
        ("torchrun trian.py # training-jobs: allow command", {}, []),
        ("torchrun -m package.train", {}, []),
        ("torchrun $OPTIONS train.py", TWO, []),
        ("python train.py", TWO, []),
        ("python -u trian.py", {}, ["fails 'trian.py'"]),
        ("python3.12 trian.py", {}, ["fails 'trian.py'"]),
        ("accelerate launch train.py", {}, []),
        ("accelerate launch --mixed_precision $PRECISION --num_machines $MACHINES train.py", {}, []),
        ("bash maybe.sh; [ -f a ] && bash surely.sh", {}, []),
        ("bash surely.sh", {}, ["fails 'trian.py'"]),
        ("accelerate launch train.py", {"modules": frozenset({"torch"})}, ["fails accelerate launch"]),
        ("accelerate launch train.py", {"absent": frozenset({"accelerate"})}, ["fails accelerate launch"]),
        ("pip install accelerate; accelerate launch train.py", {"modules": frozenset({"torch"})}, []),
        ("deepspeed train.py", {"absent": frozenset({"deepspeed"})}, ["fails deepspeed train.py"]),
        ("deepspeed train.py", TWO, ["hosts-alone deepspeed without --hostfile"]),
        ("deepspeed --hostfile hosts train.py", TWO, []),
        ("accelerate launch train.py", TWO, ["hosts-alone num_machines 1"]),
        (f"accelerate launch --multi_gpu {MACHINES} train.py", TWO, []),
        ("accelerate launch --num_machines 2 train.py", TWO,
         ["fails machine_rank 0 on 2 machines", "fails main_process_ip is missing"]),
        (f"accelerate launch --multi_gpu {MACHINES} --num_machines 4 train.py", TWO, ["fails 4 with 2"]),
        ("accelerate launch --multi_gpu --num_machines 2 --rdzv_backend c10d --main_process_ip $SM_MASTER_ADDR train.py", TWO,
         []),
        (f"accelerate launch --use_deepspeed {MACHINES} train.py", TWO,
         ["hosts-alone deepspeed_multinode_launcher pdsh"]),
        (f"accelerate launch --use_deepspeed --deepspeed_multinode_launcher standard {MACHINES} train.py", TWO, []),
        (f"accelerate launch --use_deepspeed --deepspeed_multinode_launcher nossh {MACHINES} train.py", TWO, []),
    ],
)  # fmt: skip
def test_a_command_that_cannot_train_is_found(
    tmp_path: Path, text: str, given: Mapping[str, Any], found: list[str]
) -> None:
    files = {"maybe.sh": "if [ -f a ]; then\n  torchrun trian.py\nfi\n", "surely.sh": "torchrun trian.py\n"}
    of = command(text, {"train.py": "", "src/train.py": "", **files}, tmp_path, **given)
    assert [f"{mistake.kind} {mistake.got}" for mistake in of.mistakes()] == found


DEEPSPEED = "distributed_type: DEEPSPEED\nnum_processes: 4\n"


@pytest.mark.parametrize(
    ("text", "mode", "newline", "found"),
    [
        ("./go.sh", 0o644, "\n", ["fails go.sh"]),
        ("./go.sh", 0o755, "\n", []),
        ("chmod +x go.sh && ./go.sh", 0o644, "\n", []),
        ("bash go.sh", 0o644, "\n", []),
        ("bash go.sh", 0o644, "\r\n", ["fails CR LF in go.sh"]),
        ("./go.sh", 0o755, "\r\n", ["fails CR LF in go.sh"]),
        ("true\r\nbash go.sh", 0o755, "\n", ["fails CR LF"]),
    ],
)
def test_a_file_that_bash_cannot_run_is_found_where_it_cannot(
    tmp_path: Path, text: str, mode: int, newline: str, found: list[str]
) -> None:
    of = command(text, {"go.sh": "", "train.py": ""}, tmp_path)
    (tmp_path / "go.sh").write_bytes(newline.join(["#!/bin/bash", "set -e", "true", ""]).encode())
    (tmp_path / "go.sh").chmod(mode)
    assert [f"{mistake.kind} {mistake.got}" for mistake in of.mistakes()] == found
    done = subprocess.run(["bash", "-e", "-c", text], cwd=tmp_path, capture_output=True, check=False)
    assert bool(done.returncode) == bool(found), done.stderr


FSDP = "distributed_type: FSDP\nnum_processes: 4\n"
CONFIGS: list[tuple[str, list[str]]] = [
    (FSDP, []),
    ("num_processes: 4\n", ["fails a.yaml"]),
    ("distributed_type: FSDP\n", ["fails none, nor in a.yaml"]),
    ("distributed_type: 'NO'\n", []),
    (f"{FSDP}- broken", ["fails a.yaml"]),
    ("- FSDP\n", ["fails a.yaml"]),
    (f"{FSDP}num_procesess: 4\n", ["fails 'num_procesess' of a.yaml"]),
    (f"{FSDP}fp16: true\ndynamo_backend: 'NO'\n", []),
    (f"{FSDP}fsdp_config:\n  fsdp_cpu_ram_efficient_loading: true\n  fsdp_sync_module_states: false\n",
     ["fails false of a.yaml"]),
    (f"{FSDP}fsdp_config:\n  fsdp_shrding_strategy: FULL_SHARD\n",
     ["ignores-key 'fsdp_shrding_strategy' in fsdp_config of a.yaml"]),
    (f"{FSDP}fsdp_config:\n  sharding_strategy: FULL_SHARD\n", []),
]  # fmt: skip


def test_accelerate_ends_at_the_files_at_which_it_is_said_to(
    tmp_path: Path, launchers: tuple[list[Any], list[str]]
) -> None:
    for (content, expected), real in zip(CONFIGS, launchers[1], strict=True):
        of = command("accelerate launch --config_file a.yaml train.py", {"a.yaml": content, "train.py": ""}, tmp_path)
        assert [f"{mistake.kind} {mistake.got}" for mistake in of.mistakes()] == expected
        assert bool(real) == any(mistake.startswith("fails") for mistake in expected), (content, real)


@pytest.mark.parametrize(
    ("content", "given", "found"),
    [
        ("compute_environment: AMAZON_SAGEMAKER\n", {}, ["fails 'AMAZON_SAGEMAKER' of a.yaml"]),
        (DEEPSPEED, {"absent": frozenset({"deepspeed"})}, ["fails distributed_type: DEEPSPEED"]),
        (f"{DEEPSPEED}deepspeed_config:\n  deepspeed_config_file: z.json\n  zero_stage: 3\n", {},
         ["fails 'zero_stage' of a.yaml"]),
        (f"{FSDP}num_machines: 1\n", TWO, ["hosts-alone num_machines 1"]),
        (f"{FSDP}num_machines: 2\nmachine_rank: 0\nmain_process_ip: algo-1\n", TWO, ["fails machine_rank 0 on 2 machines"]),
    ],
)  # fmt: skip
def test_a_file_of_accelerate_that_cannot_train_is_found(
    tmp_path: Path, content: str, given: Mapping[str, Any], found: list[str]
) -> None:
    text = "accelerate launch --config_file a.yaml train.py"
    of = command(text, {"a.yaml": content, "train.py": "", "z.json": "{}"}, tmp_path, **given)
    assert [f"{mistake.kind} {mistake.got}" for mistake in of.mistakes()] == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("zero.json", ["fails zero.json with 'stge'"]),
        ("zreo.json", ["fails 'zreo.json'"]),
        ("/opt/ml/code/zero.json", ["fails zero.json with 'stge'"]),
        ("/opt/elsewhere/zero.json", []),
    ],
)
def test_a_file_of_deepspeed_that_accelerates_file_names_is_read(tmp_path: Path, name: str, found: list[str]) -> None:
    content = f"{DEEPSPEED}deepspeed_config:\n  deepspeed_config_file: {name}\n"
    files = {"a.yaml": content, "train.py": "", "zero.json": '{"zero_optimization": {"stge": 3}}'}
    of = command("accelerate launch --config_file a.yaml train.py", files, tmp_path)
    assert [f"{mistake.kind} {mistake.got}" for mistake in of.mistakes()] == found


def test_a_file_of_accelerate_that_is_not_there_is_found(tmp_path: Path) -> None:
    text = "accelerate launch --config_file configs/b.yaml train.py"
    [mistake] = command(text, {"configs/a.yaml": FSDP, "train.py": ""}, tmp_path).mistakes()
    assert (mistake.kind, mistake.got, mistake.example) == ("fails", "'configs/b.yaml'", "'configs/a.yaml'")


@pytest.mark.parametrize(
    ("text", "processes"),
    [
        ("torchrun train.py", 1),
        ("torchrun --nproc_per_node 8 train.py", 8),
        ("torchrun --nproc_per_node auto train.py", 4),
        ("N=4; torchrun --nproc_per_node $N train.py", 4),
        ("torchrun --nproc_per_node $(nvidia-smi -L | wc -l) train.py", None),
        ("accelerate launch --multi_gpu --num_processes 16 --num_machines 2 train.py", 8),
        ("accelerate launch train.py", None),
        ("accelerate launch --config_file a.yaml train.py", 4),
        ("accelerate launch --config_file a.yaml --num_processes 2 train.py", 2),
        ("deepspeed --num_gpus 2 train.py", 2),
        ("deepspeed train.py", None),
        ("python train.py", None),
    ],
)
def test_processes_of_each_host_are_known_where_the_command_says_them(
    tmp_path: Path, text: str, processes: int | None
) -> None:
    assert command(text, {"train.py": "", "a.yaml": FSDP}, tmp_path).processes() == processes


@pytest.mark.parametrize(
    ("text", "given", "flags"),
    [
        ('python train.py "$@"', {"lr": "0.1"}, []),
        ('python train.py --lr 2 "$@" --fast', {"lr": "0.1", "fast": "true"}, ["fast"]),
        ('python train.py "$@" --lr=2 -k v --shift -1', {"lr": '"2"', "k": '"v"', "shift": '"-1"'}, []),
        ("python train.py --lr $LR --name a$X", {"lr": None, "name": None}, []),
        ("python train.py --sizes 1 2 3", {"sizes": '"1"'}, []),
        ("deepspeed train.py --lr 1", {"lr": '"1"', "local_rank": None}, []),
        ("deepspeed --no_local_rank train.py --lr 1", {"lr": '"1"'}, []),
    ],
)
def test_a_scripts_options_are_those_of_the_command_and_the_hyperparameters(
    tmp_path: Path, text: str, given: Mapping[str, str | None], flags: list[str]
) -> None:
    [start] = command(text, {"train.py": ""}, tmp_path).starts
    assert given_by(start, {"lr": "0.1"}) == (given, flags, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('bash run.sh "$@"', "torchrun --n 4 train.py $@ --last"),
        ("chmod +x run.sh && N=5 && ./run.sh --lr 1", "torchrun --n 4 train.py --lr 1 --last"),
        ("cd src && sh run.sh", "torchrun --n 3 train.py --last"),
    ],
)
def test_a_file_of_bash_that_a_command_starts_is_read_too(tmp_path: Path, text: str, words: str) -> None:
    script = 'set -e\nN={}\ntorchrun --n $N train.py "$@" --last\n'
    of = command(text, {"run.sh": script.format(4), "src/run.sh": script.format(3), "train.py": ""}, tmp_path)
    *_, run = of.runs
    assert " ".join(run.words) == words


@pytest.mark.parametrize("text", ["python train.py $OPTIONS", "python -m torch.distributed.launch train.py --lr 1"])
def test_options_that_are_not_certain_are_none(tmp_path: Path, text: str) -> None:
    [start] = command(text, {"train.py": ""}, tmp_path).starts
    assert given_by(start, {}) is None


def test_packages_that_come_by_extras_alone_are_absent_unless_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("accelerate\nwandb\n")
    assert {"deepspeed", "flash_attn", "wandb"} & absent_modules(tmp_path) == {"deepspeed", "flash_attn"}


def test_the_newest_version_of_the_table_is_that_of_the_launchers_here() -> None:
    from accelerate.commands.config.config_args import ClusterConfig  # here, since it imports PyTorch

    assert keys_of_config("1.15.0") - {"fp16", "dynamo_backend"} == {
        field.name for field in dataclasses.fields(ClusterConfig)
    }
