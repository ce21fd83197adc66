"""What SageMaker starts in an image that a Dockerfile builds: mistakes at which the job would end, and what is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from training_jobs.cli.main import app
from training_jobs.facts.bases import base_of, is_public
from training_jobs.lint import refused_arguments
from training_jobs.lint.dockerfile import Dockerfile
from training_jobs.lint.image_start import ImageStart

PLAIN = "import json\nprint(json.load(open('/opt/ml/input/config/hyperparameters.json')))\n"
OPTIONS = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()\n"
FILES: Mapping[str, str] = {
    "train.py": PLAIN,
    "options.py": OPTIONS,
    "known.py": OPTIONS.replace("parse_args", "parse_known_args"),
    "command.py": OPTIONS.replace("p.parse", "p.add_argument('command')\np.parse"),
    "folders.py": "import os\nprint(os.environ['SM_MODEL_DIR'])\n",
    "asks.py": "import os\nif 'SM_MODEL_DIR' in os.environ:\n    print(os.environ['SM_MODEL_DIR'])\n",
    "tries.py": "import os\ntry:\n    d = os.environ['SM_MODEL_DIR']\nexcept KeyError:\n    d = '/opt/ml/model'\n",
    "main.py": "import os\nif __name__ == '__main__':\n    print(os.environ['SM_MODEL_DIR'])\n",
    "unused.py": "import os\ndef f():\n    return os.environ['SM_HOSTS']\n",
    "below.sh": "#!/bin/bash\ncd /opt/program/below\nexec python train.py\n",
    "start.sh": "#!/bin/bash\nset -e\nexec python /opt/program/train.py\n",
    "lost.sh": "#!/bin/bash\nexec python /opt/other/train.py\n",
    "passes.sh": '#!/bin/bash\nexport A=1\nexec "$@"\n',
    "program/train": "#!/usr/bin/env python\nprint(1)\n",
    "bare/train": "print(1)\n",
    "requirements.txt": "numpy\n",
    "toolkit.txt": "sagemaker-training==5.1.4\n",
}
EXECUTABLE = ("start.sh", "below.sh", "lost.sh", "passes.sh", "program/train", "bare/train")
COPY = "WORKDIR /opt/program\nCOPY *.py *.txt *.sh ./\n"


def start(folder: Path, text: str, base: str = "public", **given: Any) -> ImageStart:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
        (folder / name).chmod(0o755 if name in EXECUTABLE else 0o644)
    (folder / "windows.sh").write_bytes(b"#!/bin/bash\r\npython train.py\r\n")
    (folder / "windows.sh").chmod(0o755)
    (folder / "Dockerfile").write_text(f"FROM python:3.11\n{text}\n")
    return ImageStart(Dockerfile(folder, "Dockerfile", {}), base, **given)  # type: ignore[arg-type]


def found(folder: Path, text: str, base: str = "public", **given: Any) -> list[str]:
    of = start(folder, text, base, **given)
    refused = [] if of.starts_toolkit else refused_arguments(of.command, {})
    return [f"{one.kind} {one.got}" for one in of.mistakes()] + [f"refused {one.refusal.got}" for one in refused]


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ('ENTRYPOINT ["python", "train.py"]', []),
        ('ENTRYPOINT ["/usr/bin/python3", "-u", "/opt/program/train.py"]', []),
        ('ENTRYPOINT ["python", "tarin.py"]', ["fails '/opt/program/tarin.py'"]),
        ('ENTRYPOINT ["python", "/opt/ml/code/train.py"]', ["fails '/opt/ml/code/train.py'"]),
        ('WORKDIR /opt\nENTRYPOINT ["python", "train.py"]', ["fails '/opt/train.py'"]),
        ("ENTRYPOINT python /opt/train.py", ["fails '/opt/train.py'"]),
        ('RUN cp train.py /opt/\nENTRYPOINT ["python", "/opt/train.py"]', []),
        ('RUN git clone x /opt/x\nENTRYPOINT ["python", "/opt/x/train.py"]', []),
        ('COPY --from=other /built /opt/x\nENTRYPOINT ["python", "/opt/x/train.py"]', []),
        ('RUN echo "print(1)" > /opt/train.py\nENTRYPOINT ["python", "/opt/train.py"]', []),
        ('RUN pip install numpy && mkdir /opt/x\nENTRYPOINT ["python", "/opt/x/train.py"]', ["fails '/opt/x/train.py'"]),
        ('ENTRYPOINT ["python", "/usr/local/bin/train.py"]', []),  # which the base may have
        ('ENTRYPOINT ["python", "/opt/ml/input/data/code/train.py"]', []),
        ('ENTRYPOINT ["python", "options.py"]', ["refused 'train' with options.py"]),
        ('ENTRYPOINT ["python", "options.py", "--lr", "1"]', []),  # of which argparse may take it
        ('ENTRYPOINT ["python", "known.py"]', []),
        ('ENTRYPOINT ["python", "command.py"]', []),
        ("ENTRYPOINT python options.py", []),  # to whose shell it is given
        ('ENTRYPOINT ["bash", "-c", "python options.py"]', []),
        ('ENTRYPOINT ["bash", "start.sh"]', []),
        ('ENTRYPOINT ["./start.sh"]', []),
        ('ENTRYPOINT ["/opt/program/lost.sh"]', ["fails '/opt/other/train.py'"]),
        ('ENTRYPOINT ["./windows.sh"]', ["fails '/opt/program/windows.sh'", "fails CR LF in opt/program/windows.sh"]),
        ('ENTRYPOINT ["./passes.sh"]', ["fails none with 'python:3.11'"]),
        ('RUN pip install sagemaker-training\nENTRYPOINT ["./passes.sh"]', []),
        ('ENTRYPOINT ["./passes.sh", "python", "options.py"]', ["refused 'train' with options.py"]),
        ('ENTRYPOINT ["dumb-init", "--", "python", "options.py"]', ["refused 'train' with options.py"]),
        ('ENTRYPOINT ["tini", "--", "python", "train.py"]', ["fails 'tini'"]),
        ('ENTRYPOINT ["/usr/bin/tini", "--", "python", "train.py"]', ["fails '/usr/bin/tini'"]),
        ('ENV LR=1\nENTRYPOINT ["python", "train.py", "--lr", "$LR"]', ["fails '$LR'"]),
        ('ENTRYPOINT ["sh", "-c", "python train.py --lr $LR"]', []),
        ('ENV PATH=/opt/program\nENTRYPOINT ["python", "train.py"]', ["fails '/opt/program'"]),
        ('ENV PATH=/opt/venv/bin\nENTRYPOINT ["python", "train.py"]', []),
        ('ENV PATH=/opt/program:$PATH\nENTRYPOINT ["python", "train.py"]', []),
        ('RUN yum install -y git\nENTRYPOINT ["python", "train.py"]', ["fails yum with 'python:3.11'"]),
        ('RUN yum install -y git || apt-get install -y git\nENTRYPOINT ["python", "train.py"]', []),
        ('RUN yum install -y git; true\nENTRYPOINT ["python", "train.py"]', []),
        ('RUN command -v yum && yum install -y git || true\nENTRYPOINT ["python", "train.py"]', []),
        ('RUN apt-get install -y git\nENTRYPOINT ["python", "train.py"]', []),
        ('CMD ["python", "train.py"]', ["fails none with 'python:3.11'"]),
        ("RUN pip install -r requirements.txt", ["fails none with 'python:3.11'"]),
        ("RUN pip install -r toolkit.txt", []),
        ("RUN pip install .", []),
        ("RUN pip install --no-cache-dir 'numpy>=1.2' torch==2.9", ["fails none with 'python:3.11'"]),
        ("RUN apt-get update && apt-get install -y nginx && rm -rf /var/lib/apt/lists/*", ["fails none with 'python:3.11'"]),
        ("RUN apt-get install -y nginx; ln -s /opt/program/train.py /usr/bin/train", []),
        ('COPY program /usr/local/bin/\nCMD ["serve"]', []),
        ("COPY program/train /usr/local/bin/train", []),
        ("COPY program /opt/program", ["fails PATH without '/opt/program/train'"]),
        ("COPY program /opt/program\nENV PATH=/opt/program:$PATH", []),
        ("COPY bare/train /usr/local/bin/", ["fails '/usr/local/bin/train'"]),
        ("COPY train.py /usr/local/bin/train", ["fails '/usr/local/bin/train'"]),
        ("COPY train.py /usr/local/bin/train\nRUN chmod +x /usr/local/bin/train", ["fails '/usr/local/bin/train'"]),
        ("COPY --chmod=755 program/train /usr/local/bin/", []),
        ('ENTRYPOINT ["python", "folders.py"]', ["fails os.environ['SM_MODEL_DIR'] of folders.py:2"]),
        ('ENTRYPOINT ["python", "main.py"]', ["fails os.environ['SM_MODEL_DIR'] of main.py:3"]),
        ('RUN pip install sagemaker-training\nENTRYPOINT ["python", "main.py"]', []),  # which may start it
        ('ENTRYPOINT ["./below.sh"]', ["fails '/opt/program/below/train.py'"]),
        ('COPY train.py below/\nENTRYPOINT ["./below.sh"]', []),
        ('ENV SM_MODEL_DIR=/opt/ml/model\nENTRYPOINT ["python", "folders.py"]', []),
        ('ENTRYPOINT ["python", "asks.py"]', []),
        ('ENTRYPOINT ["python", "tries.py"]', []),
        ('ENTRYPOINT ["python", "unused.py"]', []),
        ('ENTRYPOINT ["torchrun", "--nproc_per_node", "x", "train.py"]', []),
        ('ENTRYPOINT ["torchrun", "--nprocs", "2", "train.py"]', ["fails unrecognized arguments: --nprocs"]),
        ('# training-jobs: allow command\nENTRYPOINT ["python", "tarin.py"]', []),
        ("COPY <<EOF /opt/train.py\nprint(1)\nEOF\nENTRYPOINT [\"python\", \"/opt/train.py\"]", []),
        ('FROM python:3.11\nCOPY train.py /last/\nENTRYPOINT ["python", "/opt/train.py"]', ["fails '/opt/train.py'"]),
    ],
)  # fmt: skip
def test_what_an_image_starts_is_there_and_takes_the_argument_train(
    tmp_path: Path, text: str, mistakes: list[str]
) -> None:
    assert found(tmp_path, COPY + text) == mistakes


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("COPY train.py /opt/ml/code/\nENV SAGEMAKER_PROGRAM=train.py", []),
        ("COPY . /opt/ml/code\nENV SAGEMAKER_PROGRAM=train.py", []),
        ("COPY train.py /opt/ml/code\nENV SAGEMAKER_PROGRAM=train.py", []),  # a folder that the container has
        ("COPY train.py /opt/ml/\nENV SAGEMAKER_PROGRAM=train.py", ["fails '/opt/ml/train.py' and no '/opt/ml/code/train.py'"]),
        (
            "COPY train.py /opt/ml/code/\nENV SAGEMAKER_PROGRAM=tarin.py",
            ["fails '/opt/ml/code/train.py' and no '/opt/ml/code/tarin.py'"],
        ),
        ("COPY train.py /opt/x/\nENV SAGEMAKER_PROGRAM=train.py SAGEMAKER_SUBMIT_DIRECTORY=/opt/x", []),
        ("COPY train.py /opt/ml/code/", ["fails no SAGEMAKER_PROGRAM"]),
        ("COPY train.py /opt/ml/code/\nENV SAGEMAKER_TRAINING_MODULE=mine.training:main", []),
        ("RUN curl x | tar x -C /opt/ml/code\nENV SAGEMAKER_PROGRAM=train.py", []),
    ],
)  # fmt: skip
def test_sagemakers_toolkit_finds_the_script_that_an_image_names(
    tmp_path: Path, text: str, mistakes: list[str]
) -> None:
    assert found(tmp_path, text, "toolkit") == mistakes


def test_a_request_may_name_the_script_and_a_base_that_is_not_known_may_have_all(tmp_path: Path) -> None:
    assert found(tmp_path, "COPY train.py /opt/ml/code/", "toolkit", program="train.py") == []
    variables = COPY + 'ENTRYPOINT ["python", "folders.py"]'
    for text in ("", variables, 'ENTRYPOINT ["python", "/opt/other.py"]', 'CMD ["python", "train.py"]'):
        assert found(tmp_path, text, "") == []


def test_an_entry_point_of_the_job_replaces_the_images(tmp_path: Path) -> None:
    image = COPY + 'ENTRYPOINT ["python", "tarin.py"]'
    assert found(tmp_path, image, entrypoint=("python", "options.py")) == []
    assert found(tmp_path, image, entrypoint=("python", "/opt/options.py")) == ["fails '/opt/options.py'"]
    refused = ["refused 'all' with options.py"]
    assert found(tmp_path, image, entrypoint=("python", "options.py"), arguments=("all",)) == refused


def test_machines_of_an_image_that_train_by_themselves_are_told(tmp_path: Path) -> None:
    text = COPY + 'ENTRYPOINT ["torchrun", "--nproc_per_node", "4", "train.py"]'
    assert found(tmp_path, text, hosts=2) == ["hosts-alone --nnodes 1"]


def test_files_in_folders_that_sagemaker_reserves_are_told(tmp_path: Path) -> None:
    of = start(tmp_path, "COPY train.py known.py /opt/ml/\nCOPY options.py /opt/ml/code/\nCOPY asks.py /opt/ml/model/")
    assert [path for _, path in of.reserved()] == ["/opt/ml/known.py", "/opt/ml/model/asks.py", "/opt/ml/train.py"]


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("python:3.11-slim", True),
        ("docker.io/library/ubuntu", True),
        ("public.ecr.aws/docker/library/python:3.12", True),
        ("pytorch/pytorch:2.9.1-cuda12.6-cudnn9-runtime", True),
        ("nvcr.io/nvidia/pytorch:25.03-py3", True),
        ("nvidia/cuda@sha256:00", True),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/python:3.11", False),
        ("mine/python:3.11", False),
        ("jupyter/base", False),
    ],
)  # fmt: skip
def test_images_of_others_are_known_by_their_whole_name(name: str, public: bool) -> None:
    assert is_public(name) == public


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("public.ecr.aws/deep-learning-containers/pytorch:2.13-cu133-amzn2023-sagemaker", "toolkit"),
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-training:2.8.0-gpu-py312", "toolkit"),
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-gpu-py312-ec2", ""),
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-gpu-py312", ""),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:1", ""),
        ("python:3.11", "public"),
    ],
)
def test_a_base_is_known_by_its_name(name: str, base: str) -> None:
    assert base_of(name) == base


def test_the_command_line_reads_the_dockerfile_of_a_folder(tmp_path: Path) -> None:
    start(tmp_path, COPY + 'ENTRYPOINT ["python", "tarin.py"]')
    found = CliRunner().invoke(app, ["lint", str(tmp_path)])
    assert found.exit_code == 1
    assert found.output.startswith(
        "Dockerfile:4: must start a file that the image has, to whose path the Dockerfile copies"
    )
    start(tmp_path, COPY + 'ENTRYPOINT ["python", "options.py"]')
    refused = CliRunner().invoke(app, ["lint", str(tmp_path)]).output
    assert refused.startswith("Dockerfile:4: the script's arguments must be taken by the script: SageMaker runs")
    start(tmp_path, COPY + 'ENTRYPOINT ["python", "train.py"]')
    assert CliRunner().invoke(app, ["lint", str(tmp_path)]).output == ""


@pytest.mark.parametrize(
    ("base", "manager", "has"),
    [
        ("public.ecr.aws/deep-learning-containers/pytorch:2.13-cu133-amzn2023-sagemaker", "apt-get", False),
        ("public.ecr.aws/deep-learning-containers/pytorch:2.13-cu133-amzn2023-sagemaker", "dnf", True),
        (
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-gpu-py312-cu126-ubuntu22.04",
            "apt-get",
            True,
        ),
        (
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-gpu-py312-cu126-ubuntu22.04",
            "yum",
            False,
        ),
        (
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-gpu-py312",
            "yum",
            True,
        ),  # which is not said
        ("python:3.12-alpine", "apt-get", False),
        ("python:3.12-slim", "apt-get", True),
        ("amazonlinux:2023", "yum", True),
        ("mine/python:3.12", "yum", True),
    ],
)
def test_a_build_has_the_package_manager_of_its_base(tmp_path: Path, base: str, manager: str, has: bool) -> None:
    (tmp_path / "Dockerfile").write_text(f'FROM {base}\nRUN {manager} install -y git\nENTRYPOINT ["run"]\n')
    found = [one.got for one in ImageStart(Dockerfile(tmp_path, "Dockerfile", {}), base_of(base)).mistakes()]
    assert found == ([] if has else [f"{manager} with {base!r}"])
