"""Training code that hosts fetch from S3: `code=TrainingCode(...)`."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stage
from rendered import resolved
from sdk_recordings import as_read, recorded
from stacks import UserStack, message_of, reads

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    Mpi,
    Ray,
    S3Channel,
    Torchrun,
    TrainingCode,
    TrainingCompiler,
    TrainingImage,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    for path, text in {
        "train.py": "print('trains')",
        "run.sh": "#!/bin/sh\n",
        "models/gpt.py": "class GPT: ...",
        "models/__pycache__/gpt.pyc": "compiled",
        ".git/HEAD": "ref",
        "notes.ipynb": "{}",
        "requirements.txt": "einops\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "run.sh").chmod(0o755)
    return folder


def archive_of(stack: UserStack) -> tuple[str, dict[str, int]]:
    """The hash of the one asset in a stack's assembly, and the modes of the archive's files by name."""
    assembly = Path(Stage.of(stack).synth().directory)  # type: ignore[union-attr]
    [asset] = assembly.glob("asset.*.gz")
    with tarfile.open(asset, mode="r:gz") as archive:
        return asset.name.split(".")[1], {one.name: one.mode for one in archive.getmembers()}


def test_the_archive_has_the_files_of_the_folder_and_no_hidden_or_excluded_ones(source: Path) -> None:
    stack = UserStack()
    stack.task(code=TrainingCode(str(source), exclude=["*.ipynb"]))
    assert archive_of(stack)[1] == {
        "models/gpt.py": 0o644,
        "requirements.txt": 0o644,
        "run.sh": 0o755,
        "train.py": 0o644,
    }


def test_arguments_of_another_form_put_what_starts_the_script_beside_it(source: Path) -> None:
    stack = UserStack()
    stack.workflow(code=TrainingCode(str(source), arguments="--key=value", flags=["compile"]))
    assert {"script_arguments.py", "script_arguments.json"} < archive_of(stack)[1].keys()
    assert json.loads(stack.request()["HyperParameters"]["sagemaker_program"]) == "script_arguments.py"


def test_a_command_is_started_by_the_file_beside_it(source: Path) -> None:
    stack = UserStack()
    stack.workflow(code=TrainingCode(str(source), command='accelerate launch train.py "$@"'))
    assert {"script_arguments.py", "script_arguments.json"} < archive_of(stack)[1].keys()
    assert json.loads(stack.request()["HyperParameters"]["sagemaker_program"]) == "script_arguments.py"


def test_requirements_beside_a_script_of_the_shell_are_installed_by_starting_it_from_python(source: Path) -> None:
    stack = UserStack()
    stack.workflow(code=TrainingCode(str(source), entry_point="run.sh"))
    assert json.loads(stack.request()["HyperParameters"]["sagemaker_program"]) == "script_arguments.py"
    (source / "requirements.txt").unlink()
    plain = UserStack()
    plain.workflow(code=TrainingCode(str(source), entry_point="run.sh"))
    assert json.loads(plain.request()["HyperParameters"]["sagemaker_program"]) == "run.sh"


def test_files_that_are_left_out_start_and_install_nothing(source: Path) -> None:
    (source / "setup.py").write_text("")
    assert TrainingCode(str(source), entry_point="run.sh", exclude=["requirements.txt"]).program == "run.sh"
    job = DataParallelJob(InstanceGroup("ml.g5.12xlarge"), launcher=Torchrun())
    UserStack().task(job=job, code=TrainingCode(str(source), exclude=["setup.py"]))
    message = message_of(lambda: UserStack().task(job=job, code=TrainingCode(str(source))))
    assert message.startswith("code.directory must be a folder without setup.py for Torchrun()")


def test_the_script_of_a_command_is_the_first_of_the_folder_that_it_names(source: Path) -> None:
    assert TrainingCode(str(source), command="python setup.py && python ./train.py models/gpt.py").script == "train.py"
    assert TrainingCode(str(source), command="bash run.sh").script == ""


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"entry_point": "run.sh"}, "entry_point must be left out beside command ... got 'run.sh'"),
        ({"arguments": "key=value"}, "arguments must be left out beside command ... got 'key=value'"),
        ({"flags": ["amp"]}, "flags must be left out beside command ... got ('amp',)"),
        ({"command": " "}, "command must be a command of bash ... like 'accelerate launch ... got ' '"),
        (
            {"command": "python 'train.py"},
            'command must be a command of bash, with an end for each quote ... got "python \'train.py"',
        ),
    ],
)
def test_what_a_command_cannot_be_with_is_refused(source: Path, props: dict[str, Any], message: str) -> None:
    given = {"command": "python train.py", **props}
    assert reads(message_of(lambda: TrainingCode(str(source), **given)), message)


def test_a_command_beside_the_training_compiler_is_taken_since_that_launches_nothing(source: Path) -> None:
    stack = UserStack()
    job = CompiledJob(InstanceGroup("ml.p3.2xlarge"), compiler=TrainingCompiler())
    image = TrainingImage.from_training_compiler(stack, "Compiler", "pytorch", "1.13.1")
    stack.workflow(job=job, image=image, code=TrainingCode(str(source), command="bash run.sh"))
    assert stack.request()["HyperParameters"]["sagemaker_training_compiler_enabled"] == "true"


@pytest.mark.parametrize(
    ("launcher", "key"), [(Torchrun(), "sagemaker_torch_distributed_enabled"), (Mpi(), "sagemaker_mpi_enabled")]
)
def test_a_command_beside_a_launcher_is_refused(source: Path, launcher: Any, key: str) -> None:
    job = DataParallelJob(InstanceGroup("ml.g5.12xlarge"), launcher=launcher)
    code = TrainingCode(str(source), command="accelerate launch train.py")
    assert reads(
        message_of(lambda: UserStack().task(job=job, code=code)),
        f"launcher must be left out beside code.command ... got {key!r}",
    )


@pytest.mark.parametrize("other", [{"flags": ["compile"]}, {"arguments": "key=value"}, {"arguments": "--key=value"}])
def test_the_archives_hash_depends_on_the_form_of_arguments(source: Path, other: Any) -> None:
    hashes = []
    for given in ({}, other):
        stack = UserStack()
        stack.task(code=TrainingCode(str(source), **given))
        hashes.append(archive_of(stack)[0])
    assert hashes[0] != hashes[1]


def test_a_folder_that_has_the_name_of_what_starts_the_script_is_refused(source: Path) -> None:
    (source / "script_arguments.json").write_text("{}")
    TrainingCode(str(source))
    message = message_of(lambda: TrainingCode(str(source), arguments="key=value"))
    assert message.startswith("directory must be a folder without a file of this name")
    assert "'script_arguments.json'" in message


def test_an_unknown_form_of_arguments_is_refused(source: Path) -> None:
    message = message_of(lambda: TrainingCode(str(source), arguments="-key value"))  # type: ignore[arg-type]
    assert "arguments must be" in message


@pytest.mark.parametrize(
    ("edit", "changed"),
    [
        (lambda folder: (folder / "train.py").touch(), False),
        (lambda folder: (folder / ".git" / "HEAD").write_text("other"), False),
        (lambda folder: (folder / "models" / "gpt.py").write_text("class GPT2: ..."), True),
        (lambda folder: (folder / "run.sh").chmod(0o644), True),
        (lambda folder: (folder / "train.py").rename(folder / "main.py"), True),
    ],
    ids=["time", "hidden", "content", "mode", "name"],
)
def test_the_hash_is_that_of_what_hosts_see(source: Path, edit: Callable[[Path], Any], changed: bool) -> None:
    def hash_of_code() -> str:
        stack = UserStack()
        stack.task(code=TrainingCode(str(source), "run.sh"))
        return archive_of(stack)[0]

    before = hash_of_code()
    edit(source)
    assert (hash_of_code() != before) == changed


def test_the_request_names_script_and_archive_as_the_sdks_does(source: Path) -> None:
    stack = UserStack()
    stack.workflow(
        job=DataParallelJob(InstanceGroup("ml.g5.12xlarge"), launcher=Torchrun()),
        code=TrainingCode(str(source)),
        hyperparameters={"epochs": 3},
    )
    ours = stack.request()["HyperParameters"]
    sdk = recorded("torchrun_one_machine")["request"]["HyperParameters"]
    assert {name: as_read(text) for name, text in ours.items() if name != "sagemaker_submit_directory"} == {
        name: as_read(sdk[name]) for name in ("epochs", "sagemaker_program", "sagemaker_torch_distributed_enabled")
    }
    bucket = "cdk-hnb659fds-assets-123456789012-us-east-1"
    assert ours["sagemaker_submit_directory"] == f'"s3://{bucket}/{archive_of(stack)[0]}.gz"'


def test_without_a_network_the_code_is_a_channel_of_all_groups(source: Path) -> None:
    stack = UserStack()
    stack.workflow(
        job=HeterogeneousJob(
            groups={"data": InstanceGroup("ml.c5.xlarge")},
            train=DataParallelJob(InstanceGroup("ml.g5.xlarge")),
            train_group="gpu",
        ),
        code=TrainingCode(str(source)),
        network_isolation=True,
        channels={"images": S3Channel(stack.bucket, "images/", groups=["data"])},
    )
    request = stack.request()
    code = request["InputDataConfig"][1]
    assert code["ChannelName"] == "code"
    place = code["DataSource"]["S3DataSource"]
    assert sorted(place["InstanceGroupNames"]) == sorted(
        group["InstanceGroupName"] for group in request["ResourceConfig"]["InstanceGroups"]
    )
    archive = place["S3Uri"].rsplit("/", 1)[1]
    directory = json.loads(request["HyperParameters"]["sagemaker_submit_directory"])
    assert directory == f"/opt/ml/input/data/code/{archive}"


def test_jobs_may_read_archives_of_any_version_and_no_other_assets(source: Path) -> None:
    stack = UserStack()
    stack.workflow(code=TrainingCode(str(source)))
    reads = [one["Resource"] for one in stack.statements() if one["Action"] == "s3:GetObject"]
    assert [str(resolved(place)).rsplit("/", 1)[1] for place in reads] == ["*.gz*"]
    assert archive_of(stack)


def image_of(stack: UserStack, folder: Path, *lines: str) -> TrainingImage:
    (folder / "Dockerfile").write_text("\n".join(["FROM python:3.11", "RUN pip install sagemaker-training", *lines]))
    return TrainingImage.from_asset(stack, "Own", directory=str(folder))


@pytest.mark.parametrize(
    "line",
    [
        "ENV SAGEMAKER_PROGRAM=train.py",
        "COPY train.py /opt/ml/code/",
        "WORKDIR /opt/ml/code\nCOPY --chmod=755 run.sh .",
    ],
)
def test_an_image_with_a_script_of_its_own_is_refused(source: Path, line: str) -> None:
    stack = UserStack()
    image = image_of(stack, source, line)
    message = message_of(lambda: stack.task(image=image, code=TrainingCode(str(source))))
    assert message.startswith("code must be left out")
    assert message.endswith(f"with an image whose Dockerfile has a script of its own ({line.splitlines()[-1]})")


def test_an_image_with_libraries_of_its_own_is_taken(source: Path) -> None:
    stack = UserStack()
    stack.workflow(image=image_of(stack, source, "COPY models /opt/lib/"), code=TrainingCode(str(source)))
    assert "sagemaker_program" in stack.request()["HyperParameters"]


@pytest.mark.parametrize(
    ("props", "because"),
    [
        (
            {"environment": {"SAGEMAKER_PROGRAM": "x.py"}},
            "environment['SAGEMAKER_PROGRAM'], which names another script",
        ),
        (
            {"job": DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Ray("fit.py"))},
            "a launcher that starts 'ray_cluster/ray_cluster.py' of the image",
        ),
    ],
)
def test_what_starts_another_script_is_refused(source: Path, props: dict[str, Any], because: str) -> None:
    message = message_of(lambda: UserStack().task(code=TrainingCode(str(source)), **props))
    assert reads(message, f"code must be left out ... got {TrainingCode(str(source))!r} with {because}")


@pytest.mark.parametrize("name", ["sagemaker_program", "sagemaker_submit_directory"])
def test_a_hyperparameter_that_the_code_sets_is_refused(source: Path, name: str) -> None:
    message = message_of(lambda: UserStack().task(code=TrainingCode(str(source)), hyperparameters={name: "x.py"}))
    assert reads(message, f"hyperparameters must not contain {name!r}, which code sets ... got 'x.py'")


def test_a_channel_named_code_is_refused_without_a_network_and_taken_with_one(source: Path) -> None:
    stack = UserStack()
    props = {"code": TrainingCode(str(source)), "channels": {"code": S3Channel(stack.bucket, "code/")}}
    message = message_of(lambda: stack.workflow("Isolated", network_isolation=True, **props))
    assert message.startswith("channels must not contain 'code', by which a job with network isolation gets its code")
    stack.workflow(**props)
    assert [channel["ChannelName"] for channel in stack.request()["InputDataConfig"]] == ["code"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "directory must be a folder with the training script ... got 'nowhere'"),
        (
            ("src", "main.py"),
            "entry_point must be a file of directory that exclude does not leave out",
        ),
        (
            ("src", "train.py", ["train*"]),
            "entry_point must be a file of directory that exclude does not leave out",
        ),
        (("src", "../src/train.py"), "entry_point must be a file of directory"),
    ],
)
def test_a_folder_without_the_script_is_refused(
    source: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[Any, ...], message: str
) -> None:
    monkeypatch.chdir(source.parent)
    assert reads(message_of(lambda: TrainingCode(*arguments)), f"{message} ... ")
