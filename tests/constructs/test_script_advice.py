"""Mistakes in the scripts of `code` and of an image, which synthesis warns of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Duration
from stacks import ON_ONE_GPU, UserStack

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    Debugger,
    HeterogeneousJob,
    InstanceGroup,
    S3Channel,
    Spot,
    TorchCompile,
    TrainingCode,
    TrainingImage,
    training_code_path,
)

SCRIPT = """
for batch in loader:
    loss = model(tokenizer(batch, padding="longest"))
    loss.backward()
    optimizer.step()
    history.append(loss.item())
is_data_host = os.environ["SM_CURRENT_INSTANCE_GROUP"] == "cpu_group"
"""
ON_GROUPS = HeterogeneousJob(
    groups={"data_group": InstanceGroup("ml.c5.xlarge")},
    train=DataParallelJob(InstanceGroup("ml.g5.xlarge")),
    train_group="dnn_group",
)
COMPILED = CompiledJob(InstanceGroup("ml.g5.xlarge"), compiler=TorchCompile())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def warned_of(source: Path, **props: Any) -> list[str]:
    stack = UserStack()
    stack.workflow(code=TrainingCode(str(source)), **props)
    return [name for name in stack.warned() if name.startswith("script-")]


def test_what_slows_a_compiled_step_is_a_warning_of_a_compiled_job_alone(source: Path) -> None:
    assert warned_of(source, job=COMPILED) == ["script-padding", "script-item"]
    assert warned_of(source) == []


READS = 'import os\nfolder = os.environ["SM_CHANNEL_TRAIN"]\n'


@pytest.mark.parametrize(
    ("name", "text", "warns"),
    [
        ("train.py", READS, True),
        ("data.py", READS, True),
        ("evaluate.py", READS + 'if __name__ == "__main__":\n    main()\n', False),  # of another job
    ],
)
def test_a_channel_that_the_job_does_not_have_is_a_warning(tmp_path: Path, name: str, text: str, warns: bool) -> None:
    (tmp_path / "train.py").write_text("import data\n")
    (tmp_path / name).write_text(text)
    of_job = {"channels": {"training": S3Channel(UserStack().bucket, "images/")}}
    assert warned_of(tmp_path, **of_job) == ["script-channel"] * warns
    assert warned_of(tmp_path, channels={"train": S3Channel(UserStack().bucket, "images/")}) == []


def test_a_group_that_the_job_does_not_have_is_a_warning(source: Path) -> None:
    channels = {"images": S3Channel(UserStack().bucket, "images/", groups=["data_group"])}
    assert warned_of(source, job=ON_GROUPS, channels=channels) == ["script-group"]


def test_a_spot_job_without_a_checkpoint_is_a_warning(source: Path) -> None:
    assert "script-checkpoint" in warned_of(source, spot=Spot(max_wait=Duration.hours(30)))


def test_the_warning_has_file_line_reason_and_how_to_switch_it_off(source: Path) -> None:
    stack = UserStack()
    stack.workflow(code=TrainingCode(str(source)), job=COMPILED)
    [text] = stack.warnings("script-item")
    assert text.startswith(f"{source}/train.py:6: loss.item() in each step makes the host wait for the device")
    assert "a comment `# training-jobs: allow item` switches this off" in text


def test_scripts_that_a_dockerfile_copies_are_read_and_others_are_not(source: Path) -> None:
    (source / "tools.py").write_text("leader = 'algo-1'")
    (source / "Dockerfile").write_text("FROM python:3.11\nCOPY train.py /opt/ml/code/\n")
    stack = UserStack()
    stack.workflow(job=COMPILED, image=TrainingImage.from_asset(stack, "Image", str(source)))
    assert [name for name in stack.warned() if name.startswith("script-")] == ["script-padding", "script-item"]


@pytest.mark.parametrize("kind", ["compiled", "heterogeneous"])
def test_the_packaged_images_have_none(kind: str) -> None:
    stack = UserStack()
    image = TrainingImage.from_asset(stack, "Image", training_code_path(), file=f"{kind}/Dockerfile")
    stack.workflow(
        job=COMPILED if kind == "compiled" else ON_GROUPS, image=image, spot=Spot(max_wait=Duration.hours(30))
    )
    assert [name for name in stack.warned() if name.startswith("script-")] == []


@pytest.mark.parametrize(("job", "warned"), [(COMPILED, ["debugger-beside-compiler"]), (ON_ONE_GPU, [])])
def test_debugger_beside_a_compiler_is_a_warning(job: Any, warned: list[str]) -> None:
    stack = UserStack()
    stack.workflow(job=job, debugger=Debugger(stack.place("tensors/")))
    assert [name for name in stack.warned() if name.startswith("debugger")] == warned
