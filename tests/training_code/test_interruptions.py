"""Trainings of each kind that are interrupted at seeded moments, by SIGTERM or SIGKILL, end with the losses of one that was not.

A job's hosts get SIGTERM when it is stopped or its spot machines are taken back, and end without one when a machine fails.
TensorFlow's and Ray's examples need packages that the tests' environment lacks, which `make soak` installs once.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import preloaded
import pytest
from packages import TENSORFLOW, packages
from programs import TRAINING_CODE, Program, free_port, losses_of

MOMENTS = 10

QUICK = 1  # moment of the quick kinds that every change waits for; `make soak` has all
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128, "hidden_size": 32}
LLAMA |= {"intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}


SCHEDULE = "--warm-up 6 --least-rate 0.1"
TWO_REPLICAS = '{"hybrid_shard_degree": 2}'  # of four ranks, with the stand-in for SMP


@dataclasses.dataclass(frozen=True)
class Kind:
    """A script that trains, with sizes that take seconds."""

    script: str
    arguments: str
    ranks: int = 1
    paths: tuple[str, ...] = ()
    seconds: float = 0.05  # within which of a logged step it is interrupted
    quick: bool = False
    inputs: Callable[[Path], dict[str, str]] = lambda folder: {}
    packages: tuple[str, ...] = ()  # that the tests' environment lacks

    def start(self, folder: Path, inputs: Path, packages: Path | None = None) -> Program:
        folder.mkdir(exist_ok=True)
        variables = {
            "PYTHONPATH": ":".join(str(TRAINING_CODE / path) for path in ("", *self.paths)),
            **self.inputs(inputs),
        }
        command = (TRAINING_CODE / self.script, folder, *self.arguments.split())
        return Program(*command, processes=self.ranks, packages=packages, **variables)


def a_model_and_tokens(folder: Path) -> dict[str, str]:
    for name in ("model", "tokens"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps(LLAMA))
    tokens = np.random.default_rng(0).integers(0, 128, 5000).astype(np.uint16)
    np.save(folder / "tokens" / "tokens-00000.npy", tokens)
    channels = {f"SM_CHANNEL_{name.upper()}": str(folder / name) for name in ("model", "tokens")}
    return {"SM_CHANNELS": '["model", "tokens"]', **channels}


def a_folder_of_images(folder: Path) -> dict[str, str]:
    sys.path.insert(0, str(TRAINING_CODE / "heterogeneous" / "images"))
    import make_images

    if not (folder / "train").is_dir():
        make_images.write(folder / "train", 60, 10, side=48, seed=0)
    return {"SM_CHANNELS": '["train"]', "SM_CHANNEL_TRAIN": str(folder / "train")}


def a_compilers_cache(folder: Path) -> dict[str, str]:
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "HOME": str(folder), "TRAINING_COMPILER": "inductor"}


def quiet_tensorflow(folder: Path) -> dict[str, str]:
    return {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "HOME": str(folder)}


def quiet_warnings(folder: Path) -> dict[str, str]:
    return {"PYTHONWARNINGS": "ignore::FutureWarning,ignore::UserWarning"}  # of FSDP1's shards, hundreds of lines


KINDS = {
    "data parallel": Kind("data_parallel/train.py", f"--epochs 12 --precision fp16 {SCHEDULE}", ranks=2, quick=True),
    "heterogeneous": Kind(
        "heterogeneous/train.py",
        f"--workers 1 --epochs 2 --batch-size 20 --checkpoint-every 15 --precision fp16 {SCHEDULE}",
    ),
    "images": Kind(
        "heterogeneous/images/train.py",
        "--workers 1 --epochs 2 --batch-size 8 --depth 26 --width 8 --size 32 --log-every 1 --checkpoint-every 3",
        paths=("heterogeneous/images",),
        inputs=a_folder_of_images,
    ),
    "compiled": Kind(
        "compiled/train.py",
        "--steps=40 --checkpoint-every=7 --log-every=1 --batch-size=4 --sequence=32 --width=32 --layers=1 --heads=2 "
        f"--preprocessing-workers=0 {SCHEDULE}",
        inputs=a_compilers_cache,
    ),
    "model parallel": Kind(
        "model_parallel/train.py",
        "--steps 24 --checkpoint-every 5 --log-every 1 --stop-check-every 1 --tensor 2 --layers 2 --width 32 --heads 8 "
        f"--hidden 64 --context 16 --batch-size 8 --text-bytes 200000 --weight-decay 0.1 --evaluate-every 3 {SCHEDULE}",
        ranks=2,
        paths=("model_parallel",),
    ),
    "huggingface": Kind(
        "model_parallel/huggingface/train.py",
        "--steps 24 --checkpoint-every 5 --log-every 1 --stop-check-every 1 --data-shard 2 --context 16 --batch-size 8",
        ranks=2,
        paths=("model_parallel", "model_parallel/huggingface"),
        inputs=a_model_and_tokens,
    ),
    "smp": Kind(
        str(Path(__file__).parent / "smp_stand_in.py"),
        "--steps 24 --checkpoint-every 5 --log-every 1 --layers 2 --width 32 --heads 4 --hidden 64 --context 16 "
        "--batch-size 8 --text-bytes 200000 --precision fp32",
        ranks=2,
        paths=("model_parallel",),
        inputs=quiet_warnings,
    ),
    "ray": Kind(
        "heterogeneous/ray_data/train.py",
        "--epochs 2 --batch-size 32 --data-tasks 1",
        paths=("heterogeneous", "heterogeneous/ray_data"),
        inputs=lambda folder: {"RAY_ADDRESS": "local"},  # else of a cluster whose file is left in /tmp/ray
        packages=("pyarrow",),
    ),
    "tensorflow data parallel": Kind(
        "data_parallel/tensorflow/train.py", "--epochs 12", inputs=quiet_tensorflow, packages=TENSORFLOW
    ),
    "tensorflow heterogeneous": Kind(
        "heterogeneous/tensorflow/train.py",
        "--epochs 2 --batch-size 20",
        paths=("heterogeneous/tensorflow",),
        inputs=quiet_tensorflow,
        packages=TENSORFLOW,
    ),
    "tensorflow compiled": Kind(
        "compiled/tensorflow/train.py",
        "--compiler=xla --steps=40 --checkpoint-every=7 --log-every=1 --batch-size=4 --sequence=32 --width=32 --layers=1",
        paths=("compiled/tensorflow",),
        inputs=quiet_tensorflow,
        packages=TENSORFLOW,
    ),
}
OTHER_LAYOUTS: dict[str, dict[str, Any]] = {
    "huggingface": {"arguments": KINDS["huggingface"].arguments.replace("--data-shard 2", "--tensor 2")},
    "model parallel": {
        "arguments": KINDS["model parallel"].arguments.replace("--tensor 2", "--pipeline 2 --microbatches 2")
    },
    "smp": {"ranks": 4, "inputs": lambda folder: {**quiet_warnings(folder), "SM_HP_MP_PARAMETERS": TWO_REPLICAS}},
}
SMDDP = Kind(
    str(Path(__file__).parent / "smddp_stand_in.py"), f"{KINDS['data parallel'].arguments} --backend smddp", ranks=2
)
HOROVOD = Kind(
    str(Path(__file__).parent / "horovod_stand_in.py"),
    KINDS["data parallel"].arguments,
    ranks=2,
    paths=("data_parallel",),
)
SERVER = """
import json, sys
import tensorflow as tf
cluster, no_gpus = tf.train.ClusterSpec(json.loads(sys.argv[1])), tf.compat.v1.ConfigProto(device_count={"GPU": 0})
tf.distribute.Server(cluster, job_name="ps", task_index=int(sys.argv[2]), config=no_gpus).join()
"""
CASES = [
    pytest.param(name, moment, marks=() if kind.quick and moment < QUICK else pytest.mark.soak)
    for name, kind in KINDS.items()
    for moment in range(MOMENTS)
]


@pytest.fixture(scope="session")
def packages_of(pytestconfig: pytest.Config) -> Callable[[Kind], Path | None]:
    """The folder with a kind's packages, which is filled once for all runs."""

    def folder(kind: Kind) -> Path | None:
        return packages(pytestconfig, *kind.packages) if kind.packages else None

    return folder


@pytest.fixture(scope="module")
def uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, packages_of: Callable[[Kind], Path | None]
) -> Callable[[str], tuple[Path, dict[str, str]]]:
    """The inputs of a kind, and the losses of a training of it that nothing interrupts."""
    found: dict[str, tuple[Path, dict[str, str]]] = {}

    def of(name: str) -> tuple[Path, dict[str, str]]:
        if name not in found:
            inputs = tmp_path_factory.mktemp("inputs")
            kind = KINDS[name]
            program = kind.start(tmp_path_factory.mktemp("uninterrupted"), inputs, packages_of(kind))
            ended = program.end()
            program.close()
            assert ended.code == 0, ended
            found[name] = (inputs, losses_of(ended.lines))
        return found[name]

    return of


@pytest.mark.parametrize(("name", "moment"), CASES)
def test_an_interrupted_training_ends_with_the_losses_of_one_that_was_not(
    uninterrupted: Callable[[str], tuple[Path, dict[str, str]]],
    packages_of: Callable[[Kind], Path | None],
    name: str,
    moment: int,
    tmp_path: Path,
) -> None:
    kind, chosen = KINDS[name], random.Random(f"{name} {moment}")
    inputs, expected = uninterrupted(name)
    at = chosen.choice(list(expected)[:-1])
    packages = packages_of(kind)
    program = kind.start(tmp_path, inputs, packages)
    program.until(f"{at} ")
    time.sleep(chosen.uniform(0, kind.seconds))
    if chosen.random() < 0.5:
        rest = program.stop().lines
    else:
        program.kill()
        rest = program.end().lines
    first = [*program.seen, *rest]
    program.close()
    again = kind.start(tmp_path, inputs, packages)
    ended = again.end()
    again.close()
    assert ended.code == 0, ended
    for lines in (first, ended.lines):
        assert losses_of(lines).items() <= expected.items()
    assert losses_of(first) | losses_of(ended.lines) == expected


@pytest.mark.soak
@pytest.mark.parametrize("moment", range(3))
@pytest.mark.parametrize("name", OTHER_LAYOUTS)
def test_an_interrupted_training_goes_on_in_another_layout(
    uninterrupted: Callable[[str], tuple[Path, dict[str, str]]], name: str, moment: int, tmp_path: Path
) -> None:
    kind, chosen = KINDS[name], random.Random(f"{name} in another layout {moment}")
    inputs, expected = uninterrupted(name)
    at = chosen.choice(list(expected)[6:-1])  # after a checkpoint
    program = kind.start(tmp_path, inputs)
    program.until(f"{at} ")
    time.sleep(chosen.uniform(0, kind.seconds))
    if moment % 2:
        program.stop()
    else:
        program.kill()
    program.close()
    other_kind = dataclasses.replace(kind, **OTHER_LAYOUTS[name])
    assert other_kind != kind
    other = other_kind.start(tmp_path, inputs)
    ended = other.end()
    other.close()
    assert ended.code == 0, ended
    found = losses_of(ended.lines)
    assert 0 < len(found) < len(expected)  # it did not begin again
    assert list(found) == list(expected)[-len(found) :]
    steps = {step: float(expected[step]) for step in found}
    assert {step: float(loss) for step, loss in found.items()} == pytest.approx(steps, abs=1e-4)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if SCHEDULE in kind.arguments])
def test_a_schedule_changes_the_losses_of_each_script(
    uninterrupted: Callable[[str], tuple[Path, dict[str, str]]], name: str, tmp_path: Path
) -> None:
    inputs, scheduled = uninterrupted(name)
    arguments = KINDS[name].arguments.replace(SCHEDULE, "")
    program = dataclasses.replace(KINDS[name], arguments=arguments).start(tmp_path, inputs)
    constant = losses_of(program.end().lines)
    program.close()
    assert list(constant) == list(scheduled)
    assert constant != scheduled


@pytest.mark.soak  # test_checkpoints.py and test_train.py have PyTorch's
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.packages == TENSORFLOW])
def test_a_resumed_training_of_tensorflow_has_the_learning_rate_of_its_own_arguments(
    uninterrupted: Callable[[str], tuple[Path, dict[str, str]]],
    packages_of: Callable[[Kind], Path | None],
    name: str,
    tmp_path: Path,
) -> None:
    kind, (inputs, expected) = KINDS[name], uninterrupted(name)
    packages = packages_of(kind)
    program = kind.start(tmp_path, inputs, packages)
    program.until(f"{list(expected)[len(expected) // 3]} ")
    program.stop()
    program.close()
    slower = dataclasses.replace(kind, arguments=f"{kind.arguments} --learning-rate=1e-9")
    again = slower.start(tmp_path, inputs, packages)
    ended = again.end()
    again.close()
    assert ended.code == 0, ended
    found = losses_of(ended.lines)
    assert 0 < len(found) < len(expected)
    assert list(found)[-1] == list(expected)[-1]
    assert found != {step: expected[step] for step in found}


@pytest.mark.soak
def test_smddp_is_a_backend_of_the_data_parallel_example(
    uninterrupted: Callable[[str], tuple[Path, dict[str, str]]], tmp_path: Path
) -> None:
    """With a stand-in for the library: without it the import fails."""
    program = SMDDP.start(tmp_path, tmp_path)
    ended = program.end()
    program.close()
    assert losses_of(ended.lines) == uninterrupted("data parallel")[1], ended


@pytest.mark.soak
def test_horovods_example_has_the_losses_of_the_data_parallel_one_and_goes_on_from_its_checkpoint(
    uninterrupted: Callable[[str], tuple[Path, dict[str, str]]], tmp_path: Path
) -> None:
    """With a stand-in for the library, of which there is no wheel (docs/horovod.md)."""
    first = HOROVOD.start(tmp_path, tmp_path)
    first.until("epoch 5 ")
    stopped = [*first.seen, *first.stop().lines]
    first.close()
    again = HOROVOD.start(tmp_path, tmp_path)
    ended = again.end()
    again.close()
    assert losses_of(stopped) | losses_of(ended.lines) == uninterrupted("data parallel")[1], ended
    assert set(losses_of(ended.lines)) != set(uninterrupted("data parallel")[1])


@pytest.mark.soak
def test_two_hosts_of_tensorflow_train_one_model_by_what_the_launcher_sets(
    packages_of: Callable[[Kind], Path | None], tmp_path: Path
) -> None:
    """TF_CONFIG as the toolkit sets it, but for the hosts' names: `_build_tf_config_for_mwms` of
    aws/sagemaker-tensorflow-training-toolkit, training.py."""
    kind, hosts, workers = KINDS["tensorflow data parallel"], [], [f"localhost:{free_port()}" for _ in range(2)]
    script, arguments = TRAINING_CODE / kind.script, kind.arguments.split()
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        cluster = {"cluster": {"worker": workers}, "environment": "cloud", "task": {"index": number, "type": "worker"}}
        variables = {"TF_CONFIG": json.dumps(cluster), "SM_HOSTS": '["algo-1", "algo-2"]'}
        variables |= {"SM_CURRENT_HOST": f"algo-{number + 1}", **quiet_tensorflow(tmp_path)}
        hosts.append(Program(script, tmp_path / str(number), *arguments, packages=packages_of(kind), **variables))
    first, second = (host.end() for host in hosts)
    for host in hosts:
        host.close()
    assert (first.code, second.code) == (0, 0), (first, second)
    assert list(losses_of(first.lines)) == [f"epoch {epoch}" for epoch in range(1, 13)]
    assert losses_of(second.lines) == {}
    assert [(tmp_path / str(number) / "output/model/model.keras").exists() for number in range(2)] == [True, False]


@pytest.mark.soak
def test_one_worker_of_parameter_servers_has_the_losses_of_one_device_and_goes_on_from_a_checkpoint(
    uninterrupted: Callable[[str], tuple[Path, dict[str, str]]],
    packages_of: Callable[[Kind], Path | None],
    tmp_path: Path,
) -> None:
    """Servers and TF_CONFIG as the toolkit has them on two hosts: `_run_ps` and `_build_tf_config_for_ps` of
    aws/sagemaker-tensorflow-training-toolkit, training.py."""
    script = TRAINING_CODE / "data_parallel" / "tensorflow" / "parameter_server.py"
    kind, expected, losses, stopped = (
        KINDS["tensorflow data parallel"],
        uninterrupted("tensorflow data parallel")[1],
        {},
        [],
    )
    for moment in ("interrupted", "to the end"):
        tasks = {"master": 1, "ps": 2, "worker": 1}
        cluster = {task: [f"localhost:{free_port()}" for _ in range(count)] for task, count in tasks.items()}
        common = {"packages": packages_of(kind), **quiet_tensorflow(tmp_path)}
        servers = [
            Program("-c", tmp_path, SERVER, json.dumps(cluster), index, **common) for index in range(tasks["ps"])
        ]
        tasks_of_the_script = [
            Program(
                script,
                tmp_path,
                *kind.arguments.split(),
                **common,
                TF_CONFIG=json.dumps({"cluster": cluster, "environment": "cloud", "task": {"type": task, "index": 0}}),
            )
            for task in ("master", "worker")
        ]
        coordinator, worker = tasks_of_the_script
        if moment == "interrupted":
            coordinator.until("epoch 3 ")
            stopped = [*coordinator.seen, *coordinator.stop().lines]
            losses |= losses_of(stopped)
        else:
            ended = coordinator.end()
            assert ended.code == 0, ended
            losses |= losses_of(ended.lines)
        assert worker.end().code == 0
        for program in (*servers, *tasks_of_the_script):
            program.close()
    assert any("stopped by SIGTERM with the checkpoint of step" in line for line in stopped), stopped
    assert losses == expected
    assert (tmp_path / "output" / "model" / "model.keras").exists()


@pytest.mark.soak
def test_ranks_of_which_one_lacks_the_checkpoint_do_not_train(tmp_path: Path) -> None:
    script, store = TRAINING_CODE / "data_parallel" / "train.py", preloaded.agents_store()
    hosts = []
    for rank in (0, 1):
        folder = tmp_path / f"algo-{rank + 1}"
        folder.mkdir()
        if rank == 0:
            whole = KINDS["data parallel"].start(folder, folder)
            assert whole.end().code == 0
            whole.close()
        arguments = {
            "cwd": folder,
            "env": {"PYTHONPATH": str(TRAINING_CODE)},
            "world": 2,
            "first": rank,
            "store": store,
        }
        hosts.append(preloaded.start([script, "--epochs", "20"], **arguments))
    said = [host.communicate()[0] for host in hosts]
    for host in hosts:
        assert host.wait() != 0
        host.close()
    assert all("'step-00000088': 'rank 1 lacks it'" in text for text in said), said
