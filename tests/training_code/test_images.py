"""heterogeneous/images: ResNet on JPEGs that two data hosts decode, as processes of this machine."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from programs import TRAINING_CODE, Ended, Program, free_port, losses_of, record_of, variables

IMAGES = TRAINING_CODE / "heterogeneous" / "images"
ON_ADDRESS = Path(__file__).parent / "on_address.py"
ADDRESSES = ("127.0.0.1", "127.0.0.2")
sys.path.insert(0, str(IMAGES))

from image_folder import ImageFolder, centre_box, cropped  # noqa: E402
from make_images import main, write  # noqa: E402
from resnet import DEPTHS, ResNet  # noqa: E402


@dataclass(frozen=True)
class Size:
    """How large a training is. ``files`` are those of an epoch, of which ``batch`` make a step."""

    files: int
    batch: int
    epochs: int
    stop_at: int  # the step in which it is interrupted, of the second epoch
    arguments: str

    @property
    def steps(self) -> int:
        return -(-self.files // self.batch)

    def command(self, port: int) -> list[str]:
        sizes = f"--batch-size {self.batch} --epochs {self.epochs} --port {port} {self.arguments}"
        return ["--classes", "10", "--log-every", "1", "--warm-up-epochs", "1", "--workers", "1", *sizes.split()]


SMALL = Size(60, 8, 2, stop_at=10, arguments="--depth 26 --width 8 --size 32")
RESNET_50 = Size(2000, 100, 2, stop_at=30, arguments="--depth 50 --size 32")


class Hosts:
    """A job of two data hosts, which have the channel train, and one that trains, which has the channel validation."""

    def __init__(self, base: Path, size: Size, classes: int = 10) -> None:
        self.base, self.size = base, size
        self._programs: list[Program] = []
        for host, channel, images in (("data", "train", size.files), ("trainer", "validation", 20)):
            write(base / host / "input" / "data" / channel, images, classes, side=48 if size is SMALL else 128, seed=0)

    def alone(self) -> Program:
        """One process without data hosts, in a folder of its own."""
        folder = self.base / "alone"
        folder.mkdir()
        folders = {
            "--train": self.base / "data/input/data/train",
            "--validation": self.base / "trainer/input/data/validation",
        }
        command = [*self.size.command(free_port()), *(part for pair in folders.items() for part in pair)]
        self._programs.append(Program(IMAGES / "train.py", folder, *command, PYTHONPATH=f"{TRAINING_CODE}:{IMAGES}"))
        return self._programs[-1]

    def start(self) -> list[Program]:
        """The processes of the data hosts, and that which trains."""
        command = self.size.command(free_port())
        data, trainer = self.base / "data", self.base / "trainer"
        paths = {"PYTHONPATH": f"{TRAINING_CODE}:{IMAGES}"}
        started = []
        for address in ADDRESSES:
            where = variables(data, "data_group", "train", host=address, data_hosts=ADDRESSES)
            started.append(Program(ON_ADDRESS, data, address, IMAGES / "train.py", *command, **where, **paths))
        where = variables(trainer, "dnn_group", "validation", data_hosts=ADDRESSES)
        started.append(Program(IMAGES / "train.py", trainer, *command, **where, **paths))
        self._programs += started
        return started

    def checkpoint(self) -> dict[str, Any]:
        return record_of(self.base / "trainer" / "checkpoints")

    def close(self) -> None:
        for program in self._programs:
            program.close()


@dataclass(frozen=True)
class Trainings:
    """A training in one process, and a job that SIGTERM has interrupted: its hosts, and the checkpoint between."""

    size: Size
    alone: Ended
    stopped: list[str]
    between: dict[str, Any]
    resumed: list[Ended]


@pytest.fixture(
    scope="module",
    # Two data hosts and a rank, three times; test_train.py has the same of digits.
    params=[
        pytest.param(size, id=id, marks=pytest.mark.soak) for size, id in ((SMALL, "small"), (RESNET_50, "resnet-50"))
    ],
)
def trainings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    size, base = request.param, tmp_path_factory.mktemp("job")
    hosts = Hosts(base, size)
    try:
        alone = hosts.alone().end()
        *data_hosts, trainer = hosts.start()
        trainer.until(f"step {size.stop_at} ")
        stopped = [*trainer.seen, *trainer.stop().lines]
        for host in data_hosts:
            host.end()
        between = hosts.checkpoint()
        resumed = [program.end() for program in reversed(hosts.start())]
    finally:
        hosts.close()
    return Trainings(size, alone, stopped, between, resumed)


def epochs(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("epoch ")]


def test_all_hosts_end_well(trainings: Trainings) -> None:
    assert [host.code for host in (trainings.alone, *trainings.resumed)] == [0, 0, 0, 0], trainings


def test_both_data_hosts_serve(trainings: Trainings) -> None:
    said = [host.lines[0] for host in trainings.resumed[1:]]
    serving = [f"host {address} of data_group serves batches from 1 worker processes" for address in ADDRESSES]
    assert sorted(said) == serving


def test_the_checkpoint_of_an_interruption_counts_the_files_that_were_read_before_it(trainings: Trainings) -> None:
    steps = int(trainings.between["steps"]) - trainings.size.steps  # of the second epoch
    assert 0 < steps < trainings.size.steps
    assert trainings.between["samples"] == trainings.size.files + steps * trainings.size.batch


def test_an_interrupted_training_has_the_losses_of_one_that_was_not(trainings: Trainings) -> None:
    found = [losses_of(lines) for lines in (trainings.alone.lines, trainings.stopped, trainings.resumed[0].lines)]
    assert [*found[1].items(), *found[2].items()] == [*found[0].items()]
    assert len(found[0]) == trainings.size.epochs * (trainings.size.steps + 1)


def test_the_model_is_evaluated_after_each_epoch(trainings: Trainings) -> None:
    lines = epochs(trainings.alone.lines)
    assert all(re.search(r" accuracy [01]\.\d{4}$", line) for line in lines), lines


def test_resnet_50_has_the_parameters_of_torchvisions() -> None:
    """25,557,032: https://pytorch.org/vision/stable/models/generated/torchvision.models.resnet50.html."""
    model = ResNet(DEPTHS[50])
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    names = {"conv1.weight", "layer1.0.downsample.1.running_mean", "layer4.2.bn3.bias", "fc.weight"}
    assert names <= model.state_dict().keys()


def test_images_travel_in_the_layout_in_which_they_are_trained_on(tmp_path: Path) -> None:
    write(tmp_path, 2, 1, side=48, seed=0)
    pixels = torch.stack([ImageFolder(tmp_path, size=32)[index]["image"] for index in (0, 1)])
    assert pixels.dtype == torch.uint8
    assert pixels.permute(0, 3, 1, 2).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("mode", "suffix"), [("RGB", ".JPEG"), ("L", ".jpg"), ("CMYK", ".jpeg"), ("RGBA", ".png")])
def test_files_of_each_colour_mode_become_rgb(tmp_path: Path, mode: str, suffix: str) -> None:
    """ImageNet has JPEGs in CMYK and grey, and a PNG: https://github.com/cytsai/ilsvrc-cmyk-image-list."""
    (tmp_path / "one").mkdir()
    Image.new(mode, (50, 40)).save(tmp_path / "one" / f"image{suffix}")
    assert ImageFolder(tmp_path, size=32)[0]["image"].shape == (32, 32, 3)


def test_a_jpeg_that_is_decoded_at_a_fraction_shows_the_same_box(tmp_path: Path) -> None:
    ramp = np.repeat(np.linspace(0, 255, 512, dtype=np.uint8)[:, None], 512, axis=1)
    file = tmp_path / "ramp.jpeg"
    Image.fromarray(np.stack([ramp, ramp.T, ramp], axis=2)).save(file, quality=95)
    with Image.open(file) as image:
        found = np.asarray(cropped(image, centre_box(*image.size), 32), dtype=int)
        assert image.size == (64, 64)
    with Image.open(file) as image:
        whole = np.asarray(
            image.convert("RGB").resize((32, 32), Image.Resampling.BOX, box=centre_box(512, 512)), dtype=int
        )
    assert np.abs(found - whole).max() <= 6


def test_a_folder_without_images_is_an_error_that_says_what_it_must_have(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must have files like n01440764/name\.JPEG, got .*test_a_folder"):
        ImageFolder(tmp_path)


def test_the_command_makes_as_many_files_as_it_is_given_and_a_tenth_to_validate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["make_images.py", str(tmp_path), "--images", "40", "--side", "16"])
    main()
    assert len(ImageFolder(tmp_path / "train").classes) == 10
    assert [len(ImageFolder(tmp_path / part)) for part in ("train", "val")] == [40, 4]
