"""Errors and warnings of what an image starts, of jobs that train with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stacks import UserStack, message_of

from cdk_sagemaker_training import DataParallelJob, InstanceGroup, TrainingCode, TrainingImage, unlisted

DLC = "public.ecr.aws/deep-learning-containers/pytorch:2.13-cu133-amzn2023-sagemaker"
OPTIONS = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()\n"
STARTS = 'COPY *.py /opt/program/\nENTRYPOINT ["python", "/opt/program/{}"]\n'


def image(stack: UserStack, folder: Path, text: str, base: str = "python:3.11") -> TrainingImage:
    (folder / "train.py").write_text("print(1)\n")
    (folder / "options.py").write_text(OPTIONS)
    (folder / "reads.py").write_text("open('/opt/ml/input/config/hyperparameters.json')\n")
    (folder / "Dockerfile").write_text(f"FROM {base}\n{text}\n")
    return TrainingImage.from_asset(stack, "Own", str(folder))


def message(folder: Path, text: str, base: str = "python:3.11", **props: Any) -> str:
    stack = UserStack()
    own = image(stack, folder, text, base)
    return message_of(lambda: stack.task(image=own, **props))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STARTS.format("other.py"), "Dockerfile:3, of image, must start a file that the image has, to whose path the Dockerfile"),
        (STARTS.format("options.py"), "the arguments of {folder}/Dockerfile:3, of image, must be taken by the script: "),
        ('CMD ["python", "train.py"]', "Dockerfile:1, of image, must have the program train, which SageMaker runs in place"),
        ('ENTRYPOINT ["tini", "--", "python"]', "Dockerfile:2, of image, must not begin with tini, which SageMaker's argument"),
    ],
)  # fmt: skip
def test_an_image_that_cannot_start_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    found = message(tmp_path, text)
    assert said.format(folder=tmp_path) in found
    assert "switches this off" in found


def test_a_container_of_aws_starts_a_script_that_the_image_names_and_has(tmp_path: Path) -> None:
    assert "must name the script that SageMaker's toolkit starts" in message(
        tmp_path, "COPY train.py /opt/ml/code/", DLC
    )
    found = message(tmp_path, "COPY train.py /opt/ml/\nENV SAGEMAKER_PROGRAM=train.py", DLC)
    assert "must copy to /opt/ml/code the script that SAGEMAKER_PROGRAM names" in found


@pytest.mark.parametrize(
    "props",
    [
        {"environment": {"SAGEMAKER_PROGRAM": "train.py"}},
        {"hyperparameters": {"sagemaker_program": "train.py"}},
    ],
)
def test_a_job_may_name_what_the_image_does_not(tmp_path: Path, props: dict[str, Any]) -> None:
    stack = UserStack()
    stack.task(image=image(stack, tmp_path, "COPY train.py /opt/ml/code/", DLC), **props)


def test_an_entry_point_of_the_job_that_the_image_lacks_is_an_error(tmp_path: Path) -> None:
    stack = UserStack()
    own = image(stack, tmp_path, "COPY train.py /opt/ml/code/", DLC)
    stack.workflow(image=own, container_entrypoint=["python", "/opt/ml/code/train.py"])
    found = message(tmp_path, "COPY train.py /opt/", container_entrypoint=["python", "/opt/program/train.py"])
    assert found.startswith("container_entrypoint must start a file that the image has")


def test_code_is_started_by_an_image_that_names_no_script(tmp_path: Path) -> None:
    stack = UserStack()
    own = image(stack, tmp_path, "RUN pip install pandas", DLC)
    stack.task(image=own, code=TrainingCode(str(tmp_path), entry_point="train.py"))


def test_code_beside_an_image_that_starts_a_script_of_its_own_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    code = TrainingCode(str(tmp_path), entry_point="train.py")
    found = message(tmp_path, STARTS.format("train.py"), code=code)
    assert found.startswith("code must be left out, like code=None")
    assert found.endswith("with an image that starts '/opt/program/train.py'")


def test_a_base_that_is_not_listed_may_have_anything(tmp_path: Path) -> None:
    stack = UserStack()
    own = image(stack, tmp_path, "COPY train.py /opt/ml/code/", DLC)
    own.base = unlisted("pytorch:2.13-mine")
    stack.task(image=own)


def test_hyperparameters_that_nothing_in_an_image_reads_are_a_warning(tmp_path: Path) -> None:
    stack = UserStack()
    stack.task(
        image=image(stack, tmp_path, 'COPY train.py /\nENTRYPOINT ["python", "/train.py"]'), hyperparameters={"lr": 1}
    )
    [text] = stack.warnings("image-ignores-hyperparameters")
    assert "so its script does not get hyperparameters['lr']" in text
    reads = UserStack()
    reads.task(image=image(reads, tmp_path, STARTS.format("train.py")), hyperparameters={"lr": 1})
    assert reads.warnings("image-ignores-hyperparameters") == []


def test_hyperparameters_are_no_arguments_of_what_an_image_starts(tmp_path: Path) -> None:
    stack = UserStack()
    text = 'COPY options.py /opt/\nENTRYPOINT python /opt/options.py "$@"'
    stack.task(image=image(stack, tmp_path, text), hyperparameters={"other": 1})
    assert len(stack.warnings("image-ignores-hyperparameters")) == 1


def test_files_below_opt_ml_and_machines_that_train_alone_are_warnings(tmp_path: Path) -> None:
    stack = UserStack()
    text = "RUN pip install torch\nCOPY train.py /opt/ml/\nENTRYPOINT"
    text += ' ["torchrun", "--nproc_per_node", "1", "/opt/ml/train.py"]'
    stack.task(image=image(stack, tmp_path, text), job=DataParallelJob(InstanceGroup("ml.g5.xlarge", 2), launcher=None))
    assert {"image-in-opt-ml", "command-hosts-alone"} <= {*stack.warned()}


@pytest.mark.parametrize(
    ("base", "text", "script", "found"),
    [
        ("python:3.11", "", "import torch", ["script-import"]),
        ("python:3.11", "RUN pip install torch", "import torch", []),
        ("python:3.11", "RUN pip install torch", "import numpy, transformers", ["script-import"]),
        ("python:3.11", "RUN pip install unknown-package", "import transformers", []),  # which may need it
        ("python:3.11", "RUN pip install --upgrade pip && pip3 install -r /tmp/own.txt", "import sklearn", []),
        ("python:3.11", "RUN python -m pip install -r /tmp/own.txt", "import transformers", ["script-import"]),
        ("python:3.11", "RUN pip install numpy -c /tmp/own.txt", "import sklearn", ["script-import"]),
        ("python:3.11", "RUN pip install git+https://x/y", "import transformers", []),
        ("python:3.11", "RUN conda install transformers", "import transformers", []),
        ("ubuntu:24.04", "RUN apt-get install -y python3-numpy", "import numpy", []),
        ("ubuntu:24.04", "RUN apt-get install -y python3-pip", "import numpy", ["script-import"]),
        ("pytorch/pytorch:2.9.1-cuda12.6-cudnn9-runtime", "", "import torch, numpy", []),
        (DLC, "", "import torch, boto3", []),
        (DLC, "", "import transformers", ["script-import"]),
        (DLC, "RUN pip install transformers==4.57.1", "import transformers, torch, boto3", []),
    ],
)  # fmt: skip
def test_what_a_script_imports_is_in_its_image(
    tmp_path: Path, base: str, text: str, script: str, found: list[str]
) -> None:
    (tmp_path / "own.txt").write_text("scikit-learn\n")
    (tmp_path / "main.py").write_text(f"{script}\n")
    stack = UserStack()
    copied = f'COPY own.txt /tmp/\nCOPY main.py /opt/\n{text}\nENTRYPOINT ["python", "/opt/main.py"]'
    stack.task(image=image(stack, tmp_path, copied, base))
    assert [name for name in stack.warned() if name.startswith("script-")] == found
    assert all(" in a RUN pip install of its Dockerfile" in text for text in stack.warnings("script-import"))


@pytest.mark.parametrize(
    ("text", "requirements", "script", "found"),
    [
        ("RUN pip install pandas", "", "import torch, pandas", []),
        ("RUN pip install pandas", "", "import transformers", ["script-import"]),
        ("RUN pip install pandas", "transformers", "import transformers", []),
        ("RUN pip install transformers", "pandas", "import transformers, pandas", []),
        ("RUN pip install transformers", "pandas", "import trl", ["script-import"]),
        ("RUN make", "pandas", "import trl", []),
    ],
)
def test_code_has_what_its_image_and_its_requirements_install(
    tmp_path: Path, text: str, requirements: str, script: str, found: list[str]
) -> None:
    stack, folder = UserStack(), tmp_path / "src"
    folder.mkdir()
    (folder / "main.py").write_text(f"{script}\n")
    if requirements:
        (folder / "requirements.txt").write_text(requirements)
    own = image(stack, tmp_path, text, DLC)
    stack.task(image=own, code=TrainingCode(str(folder), entry_point="main.py"))
    assert [name for name in stack.warned() if name.startswith("script-")] == found


def test_a_build_whose_requirements_pip_cannot_install_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("numpy==1.99.0\n")
    text = 'COPY own.txt train.py /opt/\nRUN pip install {}-r /opt/own.txt\nENTRYPOINT ["python", "/opt/train.py"]'
    found = message(tmp_path, text.format(""), "python:3.12-slim")
    assert found.startswith(f"{tmp_path}/own.txt:1, of image, must")
    (tmp_path / "own.txt").write_text("tensorflow==2.12.0\n")
    assert "wheels for Python 3.8, 3.9, 3.10, 3.11 alone" in message(tmp_path, text.format(""), "python:3.12-slim")
    stack = UserStack()
    stack.task("Older", image=image(stack, tmp_path, text.format(""), "python:3.11-slim"))
    stack = UserStack()
    stack.task(image=image(stack, tmp_path, text.format("--extra-index-url https://x "), "python:3.12-slim"))


def test_a_build_that_replaces_the_containers_framework_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("torch==2.9.0\n")
    text = "COPY own.txt /tmp/\nCOPY train.py /opt/ml/code/\nRUN pip install -r /tmp/own.txt\nENV SAGEMAKER_PROGRAM=train.py"
    stack = UserStack()
    stack.task(image=image(stack, tmp_path, text, DLC))
    assert "requirement-replaces-framework" in stack.warned()


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", ["script-launcher"]),
        ("ENV RANK=0\n", []),
        ('ENTRYPOINT ["torchrun", "--nproc-per-node", "4", "/opt/program/loop.py"]\n', ["script-process-group"]),
    ],
)
def test_how_many_processes_an_image_starts_is_of_its_entry_point(tmp_path: Path, text: str, rules: list[str]) -> None:
    loop = "    optimizer.zero_grad()\n    model(batch).backward()\n    optimizer.step()\n"
    (tmp_path / "loop.py").write_text(f'import os\n\nrank = int(os.environ["RANK"])\nfor batch in loader:\n{loop}')
    stack = UserStack()
    own = image(stack, tmp_path, f"RUN pip install torch\n{STARTS.format('loop.py')}{text}")
    stack.workflow(image=own, job=DataParallelJob(InstanceGroup("ml.g5.12xlarge")))
    assert [name for name in stack.warned() if name.startswith("script-")] == rules
