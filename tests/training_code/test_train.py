"""train.py from its command line, as real processes on this machine: alone, as two ranks, and with a data host."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import preloaded
import pytest
from dockerfile_parse import DockerfileParser
from programs import TRAINING_CODE, Ended, Program, free_port, variables

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code" / "heterogeneous"))

from model import held_out_accuracy

TRAIN = TRAINING_CODE / "heterogeneous" / "train.py"
ONE_WORKER = ("--workers", "1")  # each imports PyTorch; the batches are the same
SHORT = ("--epochs", "3")
OF_SHORT = 9  # losses that it prints, of 6 steps and 3 epochs
UNEVEN = (
    *ONE_WORKER,
    "--epochs",
    "3",
    "--batch-size",
    "500",
)  # of 1,437 digits: two steps of two ranks, the second of 219 and 218


Start = Callable[..., Program]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    programs: list[Program] = []

    def start(*arguments: object, **more: object) -> Program:
        programs.append(Program(TRAIN, *arguments, **more))  # type: ignore[arg-type]
        return programs[-1]

    yield start
    for program in programs:
        program.close()


def put_digits(base: Path) -> None:
    folder = base / "input" / "data" / "digits"
    folder.mkdir(parents=True)
    from sklearn.datasets import load_digits  # not by each process that collects the tests: it takes seconds

    digits = load_digits()
    np.savez(folder / "digits.npz", images=digits.images.astype(np.uint8), labels=digits.target)


@dataclass(frozen=True)
class AJob:
    """A job that has ended, of a data host and a host that trains; each has a folder like ``/opt/ml``."""

    data_base: Path
    trainer_base: Path
    data_host: Ended
    trainer: Ended


def run_job(start: Start, folder: Path, *arguments: str, processes: int = 1) -> AJob:
    data, trainer = folder / "algo-1", folder / "algo-2"
    put_digits(data)
    trainer.mkdir(exist_ok=True)
    arguments = (*arguments, "--port", str(free_port()))
    serving = start(data, *arguments, **variables(data, "data_group", "digits"))
    training = start(trainer, *arguments, processes=processes, **variables(trainer, "dnn_group"))
    trained = training.end()
    return AJob(data, trainer, serving.end(), trained)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laptop")


@pytest.fixture(scope="module")
def alone(start: Start, laptop: Path) -> Ended:
    """One process on a laptop, with everything as it is by default."""
    return start(laptop).end()


@pytest.fixture(scope="module")
def two_ranks(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return start(tmp_path_factory.mktemp("two_ranks"), *UNEVEN, processes=2).end()


@pytest.fixture(scope="module")
def job(start: Start, tmp_path_factory: pytest.TempPathFactory) -> AJob:
    return run_job(start, tmp_path_factory.mktemp("job"), *SHORT)


@pytest.fixture(scope="module")
def failed_job(start: Start, tmp_path_factory: pytest.TempPathFactory) -> AJob:
    """A job whose trainer cannot keep its first checkpoint, since a file is in the way."""
    folder = tmp_path_factory.mktemp("failed")
    (folder / "algo-2").mkdir()
    (folder / "algo-2" / "checkpoints").write_text("not a folder")
    return run_job(start, folder, *SHORT)


def test_a_laptop_ends_well(alone: Ended) -> None:
    assert alone.code == 0, alone


def test_a_host_that_trains_says_so_first(alone: Ended) -> None:
    assert alone.lines[0] == "host localhost of homogeneousCluster trains on cpu, 1 of 1 processes, from epoch 0"


def test_the_model_is_right_on_at_least_95_of_100_held_out_digits(alone: Ended, laptop: Path) -> None:
    assert held_out_accuracy(laptop / "output" / "model" / "model.pt") >= 0.95


def test_the_accuracy_that_is_printed_last_is_the_saved_models(alone: Ended, laptop: Path) -> None:
    accuracy = held_out_accuracy(laptop / "output" / "model" / "model.pt")
    assert alone.lines[-1] == f"accuracy {accuracy:.4f}"


def test_every_tenth_step_prints_its_loss_and_the_rate(alone: Ended) -> None:
    steps = [
        line.split()[1]
        for line in alone.lines
        if re.fullmatch(r"step \d+ loss [\d.]+ learning_rate 0\.003000 samples/s \d+", line)
    ]
    assert steps == [str(step) for step in range(10, 8 * 23 + 1, 10)]  # 8 epochs of 1,437 digits by 64


def test_the_loss_of_an_epoch_falls(alone: Ended) -> None:
    losses = [float(line.split()[3]) for line in alone.losses if line.startswith("epoch ")]
    assert losses == sorted(losses, reverse=True)


def test_a_data_host_ends_well_when_the_training_has(job: AJob) -> None:
    assert (job.data_host.code, job.trainer.code) == (0, 0), job


def test_a_data_host_says_that_it_serves(job: AJob) -> None:
    assert job.data_host.lines == ["host localhost of data_group serves batches from 2 worker processes"]


def test_the_host_that_trains_leaves_the_model(job: AJob) -> None:
    assert f"accuracy {held_out_accuracy(job.trainer_base / 'model' / 'model.pt'):.4f}" == job.trainer.lines[-1]


def test_a_data_host_leaves_nothing(job: AJob) -> None:
    assert [path.name for path in job.data_base.iterdir()] == ["input"]


def test_batches_of_a_data_host_train_exactly_as_a_hosts_own(job: AJob, alone: Ended) -> None:
    assert job.trainer.losses == alone.losses[: len(job.trainer.losses)]
    assert len(job.trainer.losses) == OF_SHORT


@pytest.mark.soak  # one training more
def test_another_seed_trains_otherwise(start: Start, tmp_path: Path, alone: Ended) -> None:
    assert start(tmp_path, *ONE_WORKER, "--epochs", "1", "--seed", "1").end().losses[0] != alone.losses[0]


@pytest.mark.soak  # test_interruptions.py kills
def test_a_killed_training_goes_on_exactly_from_its_checkpoint(start: Start, tmp_path: Path, alone: Ended) -> None:
    killed = start(tmp_path, *SHORT, *ONE_WORKER)
    killed.until("epoch 1 ")
    killed.kill()
    losses = start(tmp_path, *SHORT, *ONE_WORKER).end().losses
    expected = alone.losses[:OF_SHORT]
    assert losses == expected[-len(losses) :]
    assert not losses[0].startswith("step 10 ")


@pytest.mark.soak  # test_interruptions.py interrupts within an epoch
def test_a_training_killed_within_an_epoch_goes_on_exactly_there(start: Start, tmp_path: Path, alone: Ended) -> None:
    arguments = (*SHORT, *ONE_WORKER, "--checkpoint-every", "10")
    killed = start(tmp_path, *arguments)
    killed.until("step 30 ")  # of 23 steps in an epoch; the checkpoint of step 20 is written
    killed.kill()
    ended = start(tmp_path, *arguments).end()
    expected = alone.losses[:OF_SHORT]
    assert ended.losses == expected[-len(ended.losses) :]
    assert ended.losses[0] in ("step 30 " + alone.losses[3][8:], "step 40 " + alone.losses[4][8:])


@pytest.mark.soak  # one process is stopped above
@pytest.mark.parametrize("arguments", [pytest.param((), id="held"), pytest.param(("--shard",), id="shared")])
def test_ranks_that_are_stopped_keep_the_step_that_they_are_in(
    start: Start, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    long = (*ONE_WORKER, "--epochs", "100000", "--batch-size", "20", *arguments)
    stopped = start(tmp_path, *long, processes=2)
    stopped.until("step 10 ")
    ended = stopped.stop()
    assert ended.code == 0, ended
    kept = int(re.fullmatch(r"stopped by SIGTERM with the checkpoint of step (\d+)", ended.lines[-1])[1])  # type: ignore[index]
    # Where two processes print at once, a line may begin with the other's text.
    printed = [int(found[1]) for line in ended.lines if (found := re.search(r"step (\d+) loss", line))]
    assert kept - 10 < max(printed, default=10) <= kept, ended.lines
    again = start(tmp_path, *long, processes=2)
    again.until(f"step {kept - kept % 10 + 10} ")
    assert again.stop().code == 0


@pytest.mark.soak  # test_checkpoints.py has the other kinds' checkpoints
@pytest.mark.parametrize("sharded", [(), ("--shard",)], ids=["whole", "sharded"])
def test_a_resumed_training_has_the_learning_rate_of_its_own_arguments(
    start: Start, tmp_path: Path, sharded: tuple[str, ...]
) -> None:
    kept = []
    for epochs, more in (("1", ()), ("2", ("--learning-rate", "0"))):
        assert start(tmp_path, *ONE_WORKER, "--epochs", epochs, *more, *sharded, processes=2).end().code == 0
        kept.append((tmp_path / "output" / "model" / "model.pt").read_bytes())
    assert kept[0] == kept[1]


@pytest.mark.soak  # test_service_epochs.py continues uneven ranks
def test_ranks_of_an_uneven_dataset_go_on_from_their_checkpoint(start: Start, tmp_path: Path, two_ranks: Ended) -> None:
    assert start(tmp_path, *UNEVEN, "--epochs", "1", "--checkpoint-every", "1", processes=2).end().code == 0
    ended = start(tmp_path, *UNEVEN, "--checkpoint-every", "1", processes=2).end()
    # The checkpoint of an epoch's last step is one before its report, which comes again.
    assert ended.losses == two_ranks.losses


def test_ranks_of_an_uneven_dataset_take_equally_many_steps_and_read_each_sample(two_ranks: Ended) -> None:
    assert two_ranks.code == 0, two_ranks
    epochs = [line for line in two_ranks.lines if line.startswith("data_service epoch=")]
    assert len(epochs) == 3
    assert all(" batches=2 dropped_samples=0 " in line for line in epochs), epochs


@pytest.mark.soak  # test_service_epochs.py has what ranks get from a data host, and test_training_code.py such a job
def test_two_ranks_train_alike_with_a_data_host_and_without(start: Start, tmp_path: Path, two_ranks: Ended) -> None:
    losses = run_job(start, tmp_path, *UNEVEN, processes=2).trainer.losses
    assert losses == two_ranks.losses
    assert len(losses) == 3


def test_a_batch_that_an_epoch_cannot_fill_is_an_error_that_says_so(start: Start, tmp_path: Path) -> None:
    ended = start(tmp_path, *ONE_WORKER, "--epochs", "2", "--batch-size", "2000", processes=2).end()
    assert ended.code != 0
    said = "batch_size times ranks must be from 1 to the number of samples, 1437, like 64, got 4000"
    assert any(said in line for line in ended.lines), ended


EVEN = (*ONE_WORKER, "--epochs", "2", "--batch-size", "200")  # of 1,437 digits: four batches for each of two ranks


@pytest.fixture(scope="module")
def even_ranks(start: Start, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The loss of each epoch, of two ranks that each hold the model."""
    return epoch_losses(start(tmp_path_factory.mktemp("even"), *EVEN, processes=2).end())


def epoch_losses(ended: Ended) -> list[float]:
    losses = [float(line.split()[3]) for line in ended.losses if line.startswith("epoch ")]
    assert len(losses) == 2, ended
    return losses


@pytest.mark.soak  # test_oracle.py has two ranks that share a model, beside plain PyTorch
def test_ranks_that_share_a_model_train_as_ranks_that_each_hold_it(
    start: Start, tmp_path: Path, even_ranks: list[float]
) -> None:
    ended = start(tmp_path, *EVEN, "--shard", processes=2).end()
    assert epoch_losses(ended) == pytest.approx(even_ranks, abs=1e-4)
    assert f"accuracy {held_out_accuracy(tmp_path / 'output' / 'model' / 'model.pt'):.4f}" == ended.lines[-1]


@pytest.mark.soak  # test_compiled_train.py has two compiled ranks, and compiled code that is kept
def test_compiled_ranks_that_share_a_model_train_alike_and_go_on_from_their_checkpoint(
    start: Start, tmp_path: Path, even_ranks: list[float]
) -> None:
    compiled = {"TRAINING_COMPILER": "inductor", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    arguments = (*ONE_WORKER, "--batch-size", "200", "--shard", "true")
    first = start(tmp_path, "--epochs", "1", *arguments, processes=2, **compiled).end()
    second = start(tmp_path, "--epochs", "2", *arguments, processes=2, **compiled).end()
    lines = [line for line in first.losses + second.losses if line.startswith("epoch ")]
    assert [float(line.split()[3]) for line in lines] == pytest.approx(even_ranks, abs=1e-4), second
    assert any((tmp_path / "cache").rglob("*.main.cpp"))  # what inductor wrote, and nothing does without it


def test_the_hosts_of_a_failed_training_fail(failed_job: AJob) -> None:
    assert (failed_job.data_host.code, failed_job.trainer.code) == (1, 1), failed_job


def test_a_data_host_says_why_the_training_failed(failed_job: AJob) -> None:
    last = failed_job.data_host.lines[-1]
    assert last.startswith("Exception: TrainerFailed: training rank 0 failed: FileExistsError: "), failed_job.data_host


def test_a_data_host_that_hears_of_no_trainer_fails(start: Start, tmp_path: Path) -> None:
    put_digits(tmp_path)
    ended = start(
        tmp_path, "--heartbeat-timeout", "1", "--port", "0", **variables(tmp_path, "data_group", "digits")
    ).end()
    assert ended.code == 1
    assert ended.lines[-1] == "Exception: TrainerFailed: no heartbeat of training rank 0 for 1 s"


def test_a_data_host_without_its_digits_fails_and_names_the_file(start: Start, tmp_path: Path) -> None:
    ended = start(tmp_path, "--port", "0", **variables(tmp_path, "data_group", "digits")).end()
    assert ended.code == 1
    assert str(tmp_path / "input" / "data" / "digits" / "digits.npz") in ended.lines[-1]


@pytest.mark.parametrize(
    "folder",
    [
        "compiled",
        "data_parallel",
        "heterogeneous",
        "heterogeneous/images",
        "model_parallel",
        "model_parallel/huggingface",
    ],
)
def test_the_images_files_are_all_that_it_needs(tmp_path: Path, folder: str) -> None:
    dockerfile = DockerfileParser(fileobj=io.BytesIO((TRAINING_CODE / folder / "Dockerfile").read_bytes()))
    copies = [line["value"].split() for line in dockerfile.structure if line["instruction"] == "COPY"]
    for *sources, target in copies:
        for source in (TRAINING_CODE / source for source in sources):
            to = tmp_path / target.lstrip("/")
            if source.is_dir():
                shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, to)
    script = tmp_path / "opt" / "ml" / "code" / "train.py"
    with preloaded.start([script, "--help"], cwd=tmp_path, env={}) as helped:
        assert "--batch-size" in helped.communicate()[0]
