"""`training-jobs adopt --sdk`: the stack uploads the folder of the script, and AWS's toolkit starts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adopted import differing, requests_of
from sdk_recordings import recorded

from training_jobs.adopt import Adopted, adopted_stack
from training_jobs.adopt.code import Source, uploaded_code
from training_jobs.adopt.from_sdk import request_of_script

ESTIMATORS = [
    "model_dir",
    "mpi_pytorch",
    "notebook_groups_pytorch",
    "smddp_pytorch",
    "smtc_pytorchxla",
    "torchrun_two_machines",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "src"
    (source / "configs").mkdir(parents=True)
    (source / "train.py").write_text("print('trains')")
    (source / "run.sh").write_text("python train.py")
    (source / "configs" / "fsdp.yaml").write_text("distributed_type: FSDP")
    return source


def adopted(request: dict[str, Any], source: Source, beside: Path) -> Adopted:
    return adopted_stack(request, region="us-east-1", source_code=source, beside=beside)


def listed(one: Adopted) -> set[str]:
    return {it.member for it in one.differences}


def test_the_stack_of_an_estimator_differs_in_the_place_of_its_code(folder: Path) -> None:
    requests = {case: {**recorded(case)["request"], "TrainingJobName": case.replace("_", "-")} for case in ESTIMATORS}
    programs = {case: json.loads(one["HyperParameters"]["sagemaker_program"]) for case, one in requests.items()}
    for program in programs.values():
        (folder / program).write_text("print('trains')")
    stacks = {
        case: adopted(request, Source(str(folder), programs[case]), Path.cwd()) for case, request in requests.items()
    }
    sent, refused = requests_of(stacks)
    assert refused == {}
    for case, request in requests.items():
        assert differing(request, sent[case]) == listed(stacks[case])
        assert "HyperParameters.sagemaker_submit_directory" in listed(stacks[case])
        assert "HyperParameters.sagemaker_program" not in listed(stacks[case])


WHOLE = {"S3DataType": "S3Prefix", "S3DataDistributionType": "FullyReplicated"}


def of_model_trainer(**algorithm: Any) -> dict[str, Any]:
    """What a ModelTrainer sends (`tests/clients/test_adopt_sdks.py` has it of the real one)."""
    request = recorded("torchrun_two_machines")["request"]
    places = {"code": "s3://bucket/job/input/code", "sm_drivers": "s3://bucket/job/input/sm_drivers"}
    channels = [
        {"ChannelName": name, "DataSource": {"S3DataSource": {**WHOLE, "S3Uri": uri}}}
        for name, uri in {"train": "s3://bucket/train/", **places}.items()
    ]
    own = {
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["/bin/bash"],
        "ContainerArguments": ["-c", "sm_train.sh"],
    }
    return {
        **request,
        "AlgorithmSpecification": {**request["AlgorithmSpecification"], **own, **algorithm},
        "HyperParameters": {"epochs": "2"},
        "InputDataConfig": channels,
    }


TAKEN = {
    "AlgorithmSpecification.ContainerEntrypoint",
    "AlgorithmSpecification.ContainerArguments",
    "InputDataConfig[code]",
    "InputDataConfig[sm_drivers]",
    "HyperParameters.sagemaker_program",
    "HyperParameters.sagemaker_submit_directory",
}
TRAINER: dict[str, Any] = {"of_model_trainer": True, "requirements": ""}


@pytest.mark.parametrize(
    ("source", "code", "launcher", "added"),
    [
        ({"entry_point": "train.py"}, 'TrainingCode("src", entry_point="train.py")', None, set()),
        (
            {"entry_point": "train.py", "launcher": "Torchrun", "processes": 2},
            'TrainingCode("src", entry_point="train.py")',
            "Torchrun(processes_per_host=2)",
            {"sagemaker_torch_distributed_enabled", "sagemaker_mpi_num_of_processes_per_host"},
        ),
        (
            {"entry_point": "train.py", "launcher": "MPI", "mpi_options": "-x LD_PRELOAD"},
            'TrainingCode("src", entry_point="train.py")',
            'Mpi(custom_mpi_options="-x LD_PRELOAD")',
            {"sagemaker_mpi_enabled", "sagemaker_mpi_custom_mpi_options"},
        ),
        (
            {"command": "bash run.sh --config /opt/ml/input/data/code/configs/fsdp.yaml"},
            'TrainingCode("src", command="bash run.sh --config /opt/ml/code/configs/fsdp.yaml")',
            None,
            set(),
        ),
        (
            {"entry_point": "train.py", "requirements": "configs/more.txt"},
            'command="python -m pip install -r configs/more.txt && python train.py \\"$@\\""',
            None,
            set(),
        ),
        (
            {"entry_point": "run.sh", "exclude": (".git", "__pycache__", "*.ipynb")},
            'TrainingCode("src", entry_point="run.sh", exclude=["*.ipynb"])',
            None,
            set(),
        ),
    ],
)
def test_the_stack_of_a_model_trainer_starts_its_code_by_the_toolkit(
    folder: Path,
    source: dict[str, Any],
    code: str,
    launcher: str | None,
    added: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = of_model_trainer()
    stack = adopted(request, Source(str(folder), **{**TRAINER, **source}), folder.parent)
    assert code in stack.source
    assert (f"launcher={launcher}" in stack.source) if launcher else ("launcher" not in stack.source)
    monkeypatch.chdir(folder.parent)
    sent, refused = requests_of({"job": stack})
    assert refused == {}
    names = {f"HyperParameters.{name}" for name in added} | TAKEN
    assert {it for it in listed(stack) if it.startswith(("Algorithm", "InputData", "HyperParameters"))} == names
    channels = {it.partition("]")[0] + "]" for it in differing(request, sent["job"]) if it.startswith("InputData")}
    assert channels == {"InputDataConfig[code]", "InputDataConfig[sm_drivers]"}


def test_what_the_deployment_uploads_is_not_among_what_the_script_uploads(folder: Path) -> None:
    uploads = [
        f"s3://bucket/{key}" for key in ("job/input/code/train.py", "job/input/sm_drivers/sm_train.sh", "train/a.csv")
    ]
    source = Source(str(folder), "train.py", **TRAINER)
    own = adopted_stack(of_model_trainer(), region="us-east-1", uploads=uploads, source_code=source, beside=folder)
    assert (
        "uploads to these places before it starts its job, which the stack does not:\n# - s3://bucket/train/\n"
        in own.source
    )
    assert "# - s3://bucket/job/" not in own.source
    without = adopted_stack(of_model_trainer(), region="us-east-1", uploads=uploads)
    assert "With code=TrainingCode(...)\n# each deployment uploads a folder" in without.source
    assert "# - s3://bucket/job/input/code/\n# - s3://bucket/job/input/sm_drivers/\n" in without.source


def test_what_only_model_trainer_has_is_listed_with_its_line(folder: Path) -> None:
    (folder / "train.py").write_text("import os\nrank = os.environ['SM_CURRENT_HOST_RANK']\n")
    (folder / "run.sh").write_text("cd /opt/ml/input/data/code\n")
    found = listed(adopted(of_model_trainer(), Source(str(folder), "train.py", **TRAINER), folder))
    assert "run.sh:1" in found
    assert "train.py:2" not in found
    by_launcher = Source(str(folder), "train.py", launcher="Torchrun", **TRAINER)
    launched = adopted(of_model_trainer(), by_launcher, folder)
    assert {"train.py:2", "run.sh:1"} <= listed(launched)
    assert "launcher=Torchrun()" in launched.source
    assert "command" not in launched.source


@pytest.mark.parametrize(
    ("entry_point", "command"),
    [("train.py", "python train.py"), ("./run.sh", "bash run.sh"), ("configs/a.py", "python configs/a.py")],
)
def test_a_script_that_reads_what_a_command_is_told_of_hosts_is_started_by_one(
    folder: Path, entry_point: str, command: str
) -> None:
    (folder / "configs" / "a.py").write_text("")
    source = Source(str(folder), entry_point, **TRAINER)
    assert "command" not in adopted(of_model_trainer(), source, folder).source
    (folder / "run.sh").write_text("torchrun --nnodes $SM_HOST_COUNT train.py\n")
    assert f'command="{command} \\"$@\\""' in adopted(of_model_trainer(), source, folder).source


@pytest.mark.parametrize("requirements", ["requirements.txt", "./requirements.txt"])
def test_requirements_that_the_toolkit_finds_need_no_command(folder: Path, requirements: str) -> None:
    (folder / "requirements.txt").write_text("einops\n")
    source = Source(str(folder), "train.py", **{**TRAINER, "requirements": requirements})
    assert "command" not in adopted(of_model_trainer(), source, folder).source


def test_requirements_that_the_call_does_not_install_are_listed(folder: Path) -> None:
    (folder / "requirements.txt").write_text("einops\n")
    assert "requirements.txt" in listed(adopted(of_model_trainer(), Source(str(folder), "train.py", **TRAINER), folder))
    named = {**TRAINER, "requirements": "requirements.txt"}
    assert "requirements.txt" not in listed(
        adopted(of_model_trainer(), Source(str(folder), "train.py", **named), folder)
    )


@pytest.mark.parametrize(
    "image",
    [
        "huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312",
        "tensorflow-training:2.19.0-gpu-py312",
        "pytorch-training-neuronx:2.9.0-neuronx-py312",
    ],
)
def test_the_code_of_each_container_with_the_toolkit_is_uploaded(folder: Path, image: str) -> None:
    request = of_model_trainer(TrainingImage=f"763104351884.dkr.ecr.us-east-1.amazonaws.com/{image}")
    assert uploaded_code(request, Source(str(folder), "train.py", **TRAINER), folder) is not None


@pytest.mark.parametrize(
    ("image", "source"),
    [
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1", {"entry_point": "train.py"}),
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312", {"entry_point": "other.py"}),
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312", {"directory": "s3://b/code"}),
    ],
)
def test_code_stays_where_it_is_if_no_toolkit_is_known_or_no_folder_is_here(
    folder: Path, image: str, source: dict[str, Any]
) -> None:
    request = of_model_trainer(TrainingImage=image)
    assert (
        uploaded_code(
            request, Source(**{"directory": str(folder), "entry_point": "train.py", **TRAINER, **source}), folder
        )
        is None
    )


# A class with the members that the catcher reads of the SDK's, whose call has the same frames.
CALLS = """
import boto3

class ModelTrainer:
    training_image = "image"
    def __init__(self, source_code, distributed=None):
        self.source_code, self.distributed = source_code, distributed
    def train(self):
        boto3.client("sagemaker").create_training_job(TrainingJobName="job")

class SourceCode:
    def __init__(self, **given):
        members = dict.fromkeys(["source_dir", "entry_script", "command", "requirements", "ignore_patterns"])
        self.__dict__.update(members, **given)

class Estimator:
    source_dir, dependencies, git_config = None, ["shared"], None
    def __init__(self, **given):
        self.__dict__.update(given)
    def fit(self):
        boto3.client("sagemaker").create_training_job(TrainingJobName="job")
"""


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (
            "ModelTrainer(SourceCode(source_dir='src', command='bash run.sh', args=['--text', 'a b'])).train()",
            {"command": "bash run.sh --text 'a b'", "requirements": "", "of_model_trainer": True},
        ),
        (
            "ModelTrainer(SourceCode(source_dir='src', entry_script='train.py', requirements='requirements.txt')).train()",
            {"entry_point": "train.py", "requirements": "requirements.txt", "of_model_trainer": True},
        ),
        (
            "Estimator(entry_point='train.py', source_dir='src').fit()",
            {"entry_point": "train.py", "dependencies": ("shared",)},
        ),
        ("Estimator(entry_point='src/train.py').fit()", {"entry_point": "train.py", "dependencies": ("shared",)}),
    ],
)
def test_the_folder_of_the_call_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, found: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(f"{CALLS}\n{call}\n")
    caught = request_of_script(tmp_path / "script.py")
    assert caught.source == Source(str(tmp_path / "src"), **found)


def test_a_call_without_a_folder_has_none(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(f"{CALLS}\nModelTrainer(SourceCode(command='nvidia-smi')).train()\n")
    assert request_of_script(tmp_path / "script.py").source is None
