"""Mistakes in the scripts of `code` and of an image, which synthesis warns of."""

from __future__ import annotations

import json
import re
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aws_cdk import Duration
from aws_cdk.aws_stepfunctions import JsonPath
from stacks import ON_ONE_GPU, UserStack

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    Debugger,
    HeterogeneousJob,
    InstanceGroup,
    Mpi,
    MultiWorkerMirrored,
    S3Channel,
    S3Prefix,
    Spot,
    TorchCompile,
    Torchrun,
    TrainingCode,
    TrainingImage,
    training_code_path,
)
from cdk_sagemaker_training.facts.images import Contents
from cdk_sagemaker_training.facts.modules import keras_of, modules_of
from cdk_sagemaker_training.request.scripts.known import installed_by

ON_A_CPU = DataParallelJob(InstanceGroup("ml.m5.xlarge"))
SCRIPT = """
for batch in loader:
    optimizer.zero_grad()
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


IMPORTS = "import deepspeed, PIL, sklearn, transformers, yaml\n"
NEWEST = "2.13-cpu-amzn2023-sagemaker"


def warned_in_container(folder: Path, **props: Any) -> list[str]:
    stack = UserStack()
    image = TrainingImage.from_dlc(stack, "Container", "pytorch", NEWEST)
    stack.workflow(image=image, code=TrainingCode(str(folder)), job=ON_A_CPU, **props)
    return [text for text in stack.warnings() if "[ack: cdk-sagemaker-training:script-import]" in text]


def test_a_module_that_awss_container_lacks_is_a_warning_unless_it_may_be_installed_or_found(tmp_path: Path) -> None:
    """The container has deepspeed, Pillow, scikit-learn and PyYAML: uv.lock of its version in aws/deep-learning-containers."""
    (tmp_path / "train.py").write_text(IMPORTS)
    [text] = warned_in_container(tmp_path)
    assert (
        f"{tmp_path}/train.py:1: no transformers is in the job's container: name transformers[torch] in a requirements.txt"
        in text
    )
    assert warned_in_container(tmp_path, environment={"PYTHONPATH": "/opt/ml/input/data/packages"}) == []
    assert warned_in_container(tmp_path, container_entrypoint=["python", "/opt/train.py"]) == []
    for name in ("requirements.txt", "setup.py", "setup.cfg", "pyproject.toml"):
        (tmp_path / name).write_text("transformers\n" if name == "requirements.txt" else "")
        assert warned_in_container(tmp_path) == [], name
        (tmp_path / name).unlink()
    assert len(warned_in_container(tmp_path)) == 1


@pytest.mark.parametrize(
    ("requirements", "lacks"),
    [
        ("trl==0.27.2\npeft\n", []),
        ("trl==0.27.2\n", ["peft"]),  # which trl has as an extra
        ("trl==0.27.2\npsutil\nhuggingface_hub[hf_xet]\n", ["peft"]),
        ("transformers\n", ["peft", "trl"]),
        ("", ["peft", "transformers", "trl"]),
        ("trl[peft]\n", []),
        ("trl==0.27.2\na-package-that-nobody-knows\n", []),
        ("trl==0.27.2\n./own\n", []),
    ],
)
def test_a_module_that_neither_the_container_has_nor_requirements_bring_is_a_warning(
    tmp_path: Path, requirements: str, lacks: list[str]
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "train.py").write_text("import pandas, peft, PIL, torch, transformers, trl, yaml\n")
    (tmp_path / "requirements.txt").write_text(requirements)
    told = [text.partition("no ")[2].partition(" is")[0] for text in warned_in_container(tmp_path)]
    names = re.findall(r"no (\w+) is in the job's container", " ".join(warned_in_container(tmp_path)))
    assert (sorted(names), len(told)) == (lacks, bool(lacks))


@pytest.mark.parametrize(
    ("line", "warns"),
    [
        ("torch==2.4.1", True),
        ("  Torch == 2.4 ; python_version > '3.8'", True),
        ("torch===2.3.0", True),
        ("torch==2.6.0", False),
        ("torch==2.6", False),
        ("torch==2.*", False),
        ("torch>=2.4", False),
        ("torch", False),
        ("torchvision==0.21.0", False),
        ("torchvision==0.20.1", True),  # which needs torch 2.5.1
        ("xformers==0.0.28", True),
        ("tensorflow==2.16.1", False),  # of which the container has none to replace
        ("# torch==2.4.1", False),
    ],
)
def test_a_framework_that_pip_would_replace_is_a_warning(tmp_path: Path, line: str, warns: bool) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "requirements.txt").write_text(f"transformers\n{line}\n")
    stack = UserStack()
    image = TrainingImage.from_dlc(stack, "Container", "pytorch-training", "2.6.0-gpu-py312")
    stack.task(image=image, code=TrainingCode(str(tmp_path)))
    texts = stack.warnings("requirement-replaces-framework")
    assert [f"{tmp_path}/requirements.txt:2 must go with the container's torch" in text for text in texts] == [
        True
    ] * warns
    excluded = UserStack()
    image = TrainingImage.from_dlc(excluded, "Container", "pytorch-training", "2.6.0-gpu-py312")
    excluded.task(image=image, code=TrainingCode(str(tmp_path), exclude=["requirements.txt"]))
    assert excluded.warnings("requirement-replaces-framework") == []


def test_of_a_container_whose_modules_are_not_known_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(IMPORTS)
    unknown = [
        "pytorch-training:2.3.0-gpu-py311",
        "pytorch:2.13-cpu-amzn2023-ec2",
        "pytorch-training:2.8-gpu-py312-cu129-ec2",
    ]
    unknown += [
        f"huggingface-pytorch-training:2.8.0-transformers{version}-gpu-py312" for version in ("4.40.0", "4.56.1")
    ]
    assert {*map(modules_of, unknown)} == {None}
    stack = UserStack()
    stack.task(code=TrainingCode(str(tmp_path)))
    assert "script-import" not in stack.warned()


HUB = "huggingface-pytorch-training"
# What the Dockerfiles and the uv.lock files in aws/deep-learning-containers install; and what they do not, nor what these need.
MODULES = {
    # opencv-python and mpi4py are in docker/pytorch/*/cpu/uv.lock alone, flash-attn in Dockerfile.cuda.
    "pytorch:2.13-cu133-amzn2023-sagemaker": (
        "flash_attn transformer_engine deepspeed fastai",
        "cv2 mpi4py transformers",
    ),
    "pytorch:2.13-cpu-amzn2023-sagemaker": ("cv2 mpi4py deepspeed", "flash_attn transformer_engine"),
    "pytorch-training:2.9.0-gpu-py312": (
        "cv2 mpi4py accelerate spacy torchdata torchtnt flash_attn h5py",
        "fastai deepspeed",
    ),
    "pytorch-training:2.8.0-gpu-py312": (
        "cv2 fastai accelerate numba shap seaborn sklearn IPython",
        "transformers wandb deepspeed",
    ),
    "pytorch-training:2.8.0-cpu-py312": ("cv2 fastai accelerate", "flash_attn transformer_engine"),
    "pytorch-training:2.8-gpu-py312-cu129-ubuntu22.04-sagemaker-v1": (
        "smclarify sagemaker_training boto3 awscli",
        "mlflow",
    ),
    "pytorch-training:2.6.0-gpu-py312": ("torchtext accelerate", "fastai smdistributed"),
    "pytorch-training:2.5.1-gpu-py311": ("torchtext fastai smdistributed", "torchdata transformers"),
    f"{HUB}:2.5.1-transformers4.49.0-gpu-py311-cu124-ubuntu22.04": (
        "trl peft datasets evaluate diffusers",
        "transformer_engine",
    ),
    f"{HUB}:2.7.1-transformers4.55.0-gpu-py312-cu128-ubuntu22.04": (
        "kernels bitsandbytes kenlm librosa s3torchconnector",
        "deepspeed wandb",
    ),
    f"{HUB}:2.8.0-transformers4.56.2-gpu-py312-cu129-ubuntu22.04": ("optuna codecarbon cv2 fastai timm", "ray vllm"),
    f"{HUB}:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04": (
        "trackio flash_attn transformer_engine",
        "ray sigopt pyctcdecode",
    ),
    f"{HUB}:2.11.0-transformers5.13.1-gpu-py312-cu130-amzn2023": (
        "vllm liger_kernel math_verify deepspeed",
        "optuna wandb",
    ),
}


@pytest.mark.parametrize("base", MODULES)
def test_a_container_has_what_its_dockerfile_or_its_list_names(base: str) -> None:
    known, (has, lacks) = modules_of(base), MODULES[base]
    assert known is not None
    assert ({*has.split()} - known, {*lacks.split()} & known) == (set(), set())


READS_SHARES = """import os
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
images = Images(os.environ["SM_CHANNEL_TRAIN"])
loader = DataLoader(images, sampler=DistributedSampler(images))
"""


@pytest.mark.parametrize(
    ("instance_type", "hosts", "distribution", "mend"),
    [
        (
            "ml.p4d.24xlarge",
            2,
            "ShardedByS3Key",
            "1/2 of its samples: distribution='FullyReplicated', or by LOCAL_WORLD_SIZE and LOCAL_RANK",
        ),
        ("ml.g5.xlarge", 4, "ShardedByS3Key", "1/4 of its samples: distribution='FullyReplicated', or without it"),
        ("ml.g5.xlarge", 1, "ShardedByS3Key", None),
        ("ml.g5.xlarge", 4, "FullyReplicated", None),
    ],
)
def test_a_share_of_each_host_that_is_dealt_out_again_is_a_warning(
    tmp_path: Path, instance_type: str, hosts: int, distribution: Any, mend: str | None
) -> None:
    (tmp_path / "train.py").write_text(READS_SHARES)
    stack = UserStack()
    channels = {
        "train": S3Channel(stack.bucket, "train/", distribution=distribution),
        "test": S3Channel(stack.bucket, "test/"),
    }
    job = DataParallelJob(InstanceGroup(instance_type, hosts), launcher=Torchrun())
    stack.workflow(job=job, channels=channels, code=TrainingCode(str(tmp_path)))
    texts = [
        text
        for text in stack.warnings("script-shares")
        if f"{tmp_path}/train.py:6: each host has a share of the" in text
    ]
    assert [mend in text for text in texts if mend] == [True] * (mend is not None)
    assert len(texts) == (mend is not None)


def test_what_a_container_for_gpus_lacks_and_that_for_cpus_has_is_named_as_pip_knows_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import cv2, flash_attn\n")
    for tag, job, told in [
        (
            "2.13.0-cu133-amzn2023-sagemaker",
            ON_ONE_GPU,
            "no cv2 is in the job's container: name opencv-python-headless in a",
        ),
        (NEWEST, ON_A_CPU, "no flash_attn is in the job's container: name flash-attn in a"),
    ]:
        stack = UserStack()
        image = TrainingImage.from_dlc(stack, "Container", "pytorch", tag)
        stack.workflow(image=image, code=TrainingCode(str(tmp_path)), job=job)
        [text] = stack.warnings("script-import")
        assert (told in text, text.count("is in the job's container")) == (True, 1)


# What the containers name beside what these need in turn: pyproject.toml of PyTorch 2.13 and of TensorFlow 2.21, dependencies and
# the extra "sagemaker", in aws/deep-learning-containers, e0ecede. Those that tests of this project have too, by which it is held.
NAMED = {
    "pytorch:2.13-cpu-amzn2023-sagemaker": "torch boto3 botocore pyyaml requests packaging urllib3 mako scipy scikit-learn click "
    "pillow sagemaker-training pandas",
    "tensorflow-training:2.21-cpu-amzn2023-sagemaker": "boto3 botocore requests packaging scipy pillow python-dateutil werkzeug "
    "urllib3 protobuf psutil sagemaker-training numpy",
}


@pytest.mark.parametrize("base", NAMED)
def test_the_modules_of_a_container_are_those_of_what_it_installs(base: str) -> None:
    modules_by_name: dict[str, set[str]] = {}
    for module, names in metadata.packages_distributions().items():
        for name in names:
            modules_by_name.setdefault(re.sub(r"[-_.]+", "-", name).lower(), set()).add(module)
    known = modules_of(base)
    assert known is not None
    held = [name for name in NAMED[base].split() if name in modules_by_name]
    assert len(held) >= 8
    for name in held:
        own = {module for module in modules_by_name[name] if module.isidentifier() and not module.startswith("_")}
        assert own - {"pylab", "isympy"} <= known | {"tests", "caffe2"}, name
    assert not known & {"transformers", "datasets", "accelerate", "lightning", "timm", "wandb", "xgboost"}


def test_a_group_that_the_job_does_not_have_is_a_warning(source: Path) -> None:
    channels = {"images": S3Channel(UserStack().bucket, "images/", groups=["data_group"])}
    assert warned_of(source, job=ON_GROUPS, channels=channels) == ["script-group"]


def test_a_spot_job_without_a_checkpoint_is_a_warning(source: Path) -> None:
    assert "script-checkpoint" in warned_of(source, spot=Spot(max_wait=Duration.hours(30)))


def test_the_warning_has_file_line_reason_and_how_to_switch_it_off(source: Path) -> None:
    stack = UserStack()
    stack.task(code=TrainingCode(str(source)), job=COMPILED)
    [text] = stack.warnings("script-item")
    assert text.startswith(f"{source}/train.py:7: loss.item() in each step makes the host wait for the device")
    assert "a comment `# training-jobs: allow item` switches this off" in text


def test_scripts_that_a_dockerfile_copies_are_read_and_others_are_not(source: Path) -> None:
    (source / "tools.py").write_text("leader = 'algo-1'")
    (source / "Dockerfile").write_text("FROM python:3.11\nRUN pip install sagemaker-training\nCOPY train.py /opt/\n")
    stack = UserStack()
    stack.task(job=COMPILED, image=TrainingImage.from_asset(stack, "Image", str(source)))
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


OF_TRAINER = """
from transformers import HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
[args] = parser.parse_args_into_dataclasses()
Trainer(args=args, tokenizer=None)
"""
TRANSFORMERS_5 = "2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04"
TRANSFORMERS_4 = "2.1.0-transformers4.36.0-gpu-py310-cu121-ubuntu20.04"


def with_trainer(
    folder: Path, tag: str = TRANSFORMERS_5, requirements: str = "", job: Any = ON_ONE_GPU, **hyperparameters: Any
) -> UserStack:
    (folder / "train.py").write_text(OF_TRAINER)
    (folder / "requirements.txt").write_text(requirements)
    stack = UserStack()
    image = TrainingImage.from_dlc(stack, "Container", "huggingface-pytorch-training", tag)
    given = {"output_dir": "/opt/ml/model", **hyperparameters}
    make = stack.workflow if isinstance(job, HeterogeneousJob) else stack.task
    make(job=job, image=image, code=TrainingCode(str(folder)), hyperparameters=given)
    return stack


def test_a_value_at_which_the_containers_training_arguments_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"hyperparameters\['optim'\] must be one of 'adamw_torch', .* and others.* transformers 4\.16 to 4\.49 take",
    ):
        with_trainer(tmp_path, optim="adamw_hf")
    with_trainer(tmp_path, TRANSFORMERS_4, optim="adamw_hf")
    with pytest.raises(ValueError, match=r"hyperparameters\['fp16'\] must be left out beside bf16"):
        with_trainer(tmp_path, fp16=True, bf16=True)


@pytest.mark.parametrize(
    ("instance_type", "given", "refused"),
    [
        ("ml.m5.xlarge", {"bf16": True}, "bf16"),
        ("ml.m5.xlarge", {"bf16": True, "use_cpu": True}, ""),
        ("ml.m5.xlarge", {"tf32": True}, "tf32"),
        ("ml.g4dn.xlarge", {"tf32": True}, "tf32"),
        ("ml.g4dn.xlarge", {"bf16": True}, ""),
        ("ml.g5.xlarge", {"bf16": True, "tf32": True}, ""),
    ],
)
def test_a_precision_that_the_machines_do_not_have_is_refused(
    tmp_path: Path, instance_type: str, given: dict[str, bool], refused: str
) -> None:
    job = DataParallelJob(InstanceGroup(instance_type))
    if refused:
        with pytest.raises(ValueError, match=rf"hyperparameters\['{refused}'\] must be"):
            with_trainer(tmp_path, job=job, **given)
    else:
        warned = with_trainer(tmp_path, job=job, **given).warned()
        assert ("bf16-emulated" in warned) is (instance_type == "ml.g4dn.xlarge")


def test_a_precision_that_a_group_of_the_machines_has_is_not_refused(tmp_path: Path) -> None:
    assert "bf16-emulated" not in with_trainer(tmp_path, job=ON_GROUPS, bf16=True, tf32=True).warned()


def with_requirements(folder: Path, *lines: str, tag: str = "2.6.0-gpu-py312", **props: Any) -> UserStack:
    (folder / "train.py").write_text("print('trained')\n")
    (folder / "requirements.txt").write_text("\n".join(lines) + "\n")
    stack = UserStack()
    image = TrainingImage.from_dlc(stack, "Container", "pytorch-training", tag)
    stack.workflow(image=image, code=TrainingCode(str(folder)), **props)
    return stack


def test_requirements_that_pip_cannot_install_in_the_container_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"requirements\.txt:2, of code, must be of a version for the container's Python, 3\.12, like 'torch==2\.2\.0', got "
        r"'torch==1\.13\.1', .*; a comment `# training-jobs: allow requirements` in it switches this off",
    ):
        with_requirements(tmp_path, "datasets", "torch==1.13.1")
    with pytest.raises(ValueError, match=r"transformers 4\.53\.0 needs huggingface-hub"):
        with_requirements(tmp_path, "transformers==4.53.0", "huggingface_hub==0.23.4")
    with_requirements(tmp_path, "torch==1.13.1", environment={"PIP_INDEX_URL": "https://pypi.example.com/simple"})
    with_requirements(tmp_path, "torch==1.13.1", container_entrypoint=["python", "/opt/ml/code/train.py"])
    with_requirements(tmp_path, "torch==1.13.1", "# training-jobs: allow requirements")


@pytest.mark.parametrize("instance_type", ["ml.m5.xlarge", "ml.g4dn.xlarge", "ml.g5.xlarge"])
def test_a_scripts_own_precision_is_held_against_the_machines(tmp_path: Path, instance_type: str) -> None:
    script = "from transformers import TrainingArguments\nTrainingArguments('/opt/ml/model', tf32=True)\n"
    (tmp_path / "train.py").write_text(script)
    stack = UserStack()
    image = TrainingImage.from_dlc(stack, "Container", "huggingface-pytorch-training", TRANSFORMERS_5)
    stack.task(job=DataParallelJob(InstanceGroup(instance_type)), image=image, code=TrainingCode(str(tmp_path)))
    assert len(stack.warnings("script-training-arguments")) == (instance_type != "ml.g5.xlarge")


def test_hyperparameters_are_held_against_training_arguments_of_the_containers_version(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"hyperparameters\['evaluation_strategy'\] must be an option of the script.*5\.3\.0, which"
    ):
        with_trainer(tmp_path, evaluation_strategy="epoch")
    with pytest.raises(ValueError, match=r"transformers 4\.36\.0, which versions 4\.41 to"):
        with_trainer(tmp_path, TRANSFORMERS_4, eval_strategy="epoch")
    with_trainer(tmp_path, TRANSFORMERS_4, evaluation_strategy="epoch")
    with_trainer(tmp_path, eval_strategy="epoch")


@pytest.mark.parametrize(
    ("requirements", "refuses"),
    [
        ("datasets\nevaluate==0.4\n# transformers>=5\n", True),
        ("transformers==5.3.0\n", True),
        ("transformers[torch]==5.3.0\n", True),
        ("transformers == 5.2 ; python_version > '3.8'\n", True),
        ("transformers==4.40.0\n", False),
        ("transformers\n", False),
        ("transformers>=4\n", False),
        ("transformers==5.*\n", False),
        ("transformers[torch]==4.40.0\n", False),
        ("trl==0.9.6\n", False),
        ("peft\n", False),
        ("-r more.txt\n", False),
        ("git+https://github.com/huggingface/transformers\n", False),
        ("./transformers-4.40.0-py3-none-any.whl\n", False),
    ],
)
def test_a_requirement_that_may_bring_another_version_of_transformers_leaves_it_unknown(
    tmp_path: Path, requirements: str, refuses: bool
) -> None:
    for name in ("more.txt", "transformers-4.40.0-py3-none-any.whl"):
        (tmp_path / name).touch()
    if refuses:
        with pytest.raises(ValueError, match="evaluation_strategy"):
            with_trainer(tmp_path, requirements=requirements, evaluation_strategy="epoch")
    else:
        stack = with_trainer(tmp_path, requirements=requirements, evaluation_strategy="epoch")
        assert stack.warnings("script-training-arguments") == []


def test_arguments_that_the_containers_transformers_does_not_take_are_a_warning(tmp_path: Path) -> None:
    [text] = with_trainer(tmp_path).warnings("script-training-arguments")
    assert "train.py:6: Trainer of transformers 5.3.0 takes no tokenizer, which versions 4.4 to 4.57 take" in text
    assert with_trainer(tmp_path, TRANSFORMERS_4).warnings("script-training-arguments") == []


def test_gradients_that_the_containers_transformers_accumulates_wrongly_are_a_warning(tmp_path: Path) -> None:
    assert with_trainer(tmp_path).warnings("script-accumulated-loss") == []
    [text] = with_trl(tmp_path, TRANSFORMERS_5, "max_length: 128\ngradient_accumulation_steps: 4\n").warnings(
        "script-accumulated-loss"
    )
    assert (
        "train.py:5: gradient_accumulation_steps=4 makes a gradient 4 times too short with transformers 5.3.0" in text
    )
    assert with_trl(tmp_path, TRANSFORMERS_5, "max_length: 128\n").warnings("script-accumulated-loss") == []
    given = {"config": "sft.yaml", "gradient_accumulation_steps": 8}
    [text] = with_trl(tmp_path, TRANSFORMERS_5, "max_length: 128\n", hyperparameters=given).warnings(
        "script-accumulated-loss"
    )
    assert "8 times too short" in text


OF_TRL = """
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser
parser = TrlParser((SFTConfig, ModelConfig))
args, model = parser.parse_args_and_config()
trainer = SFTTrainer(model, max_seq_length=128)
trainer.save_model("/opt/ml/model")
"""
TRL_0_15 = "2.5.1-transformers4.49.0-gpu-py311-cu124-ubuntu22.04"


def with_trl(folder: Path, tag: str, keys: str, *, more: dict[str, str] | None = None, **props: Any) -> UserStack:
    files = {"train.py": OF_TRL, "sft.yaml": f"output_dir: /opt/ml/checkpoints\n{keys}", **(more or {})}
    for name, text in files.items():
        (folder / name).write_text(text)
    stack = UserStack()
    image = TrainingImage.from_dlc(stack, "Container", "huggingface-pytorch-training", tag)
    given = {"code": TrainingCode(str(folder)), "hyperparameters": {"config": "sft.yaml"}, **props}
    stack.task(**{"job": ON_ONE_GPU, "image": image, **given})
    return stack


def test_keys_of_a_file_are_held_against_trl_of_the_containers_version(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"hyperparameters\['config'\] must name a file .*sft\.yaml:2.*SFTConfig of trl 0\.28"
    ):
        with_trl(tmp_path, TRANSFORMERS_5, "max_seq_length: 128\n")
    assert with_trl(tmp_path, TRANSFORMERS_5, "max_length: 128\n").warnings("script-ignores-key") == []


def test_values_of_a_file_are_held_against_trl_of_the_containers_version_and_the_machines(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"sft\.yaml:2 with False; a comment"):
        with_trl(tmp_path, TRANSFORMERS_5, "eval_strategy: no\n")
    on_cpu = DataParallelJob(InstanceGroup("ml.m5.xlarge"))
    with pytest.raises(ValueError, match=r"hyperparameters\['bf16'\] must be False, or with use_cpu=True.*got None"):
        with_trl(tmp_path, TRANSFORMERS_5, "eval_strategy: 'no'\n", job=on_cpu)
    with_trl(tmp_path, TRANSFORMERS_5, "bf16: false\n", job=on_cpu)
    with_trl(tmp_path, TRANSFORMERS_5, "eval_strategy: 'no'\n")


def test_keys_of_a_file_that_trl_ignores_are_a_warning(tmp_path: Path) -> None:
    [text] = with_trl(tmp_path, TRL_0_15, "max_length: 128\n").warnings("script-ignores-key")
    assert (
        "key 'max_length' of sft.yaml:2 is no option of train.py, nor of SFTConfig of trl 0.15.2, which versions"
        in text
    )
    assert "Name it like 'max_seq_length'." in text
    assert with_trl(tmp_path, TRL_0_15, "max_seq_length: 128\n").warnings("script-ignores-key") == []


@pytest.mark.parametrize(
    ("more", "props", "told"),
    [
        ({}, {}, True),
        ({"requirements.txt": "trl==0.24.0\n"}, {}, False),
        ({"requirements.txt": "trl==0.24.0\ntransformers==4.57.1\n"}, {}, True),
        ({"requirements.txt": "trl==0.11.4\ntransformers==4.46.1\n"}, {}, False),
        ({"requirements.txt": "trl\n"}, {}, False),
        ({"setup.py": ""}, {}, False),
    ],
)
def test_requirements_say_or_leave_open_which_trl_a_script_finds(
    tmp_path: Path, more: dict[str, str], props: dict[str, Any], told: bool
) -> None:
    if not told:
        with_trl(tmp_path, TRANSFORMERS_5, "max_seq_length: 128\n", more=more, **props)
        return
    with pytest.raises(ValueError, match="max_seq_length"):
        with_trl(tmp_path, TRANSFORMERS_5, "max_seq_length: 128\n", more=more, **props)


@pytest.mark.parametrize(
    ("requirements", "told"), [("", True), ("trl\n", False), ("unsloth\n", False), ("evaluate\n", True)]
)
def test_calls_of_trl_are_held_against_the_containers_unless_requirements_may_bring_another(
    tmp_path: Path, requirements: str, told: bool
) -> None:
    script = "from trl import SFTTrainer\nSFTTrainer('small', max_seq_length=128).save_model('/opt/ml/model')\n"
    more = {"train.py": script, "requirements.txt": requirements}
    stack = with_trl(tmp_path, TRANSFORMERS_5, "", more=more, hyperparameters={})
    assert len(stack.warnings("script-training-arguments")) == told


@pytest.mark.parametrize(
    ("more", "command", "told"),
    [
        ({}, "accelerate launch train.py --config sft.yaml", True),
        ({}, "pip install trl==0.11 && accelerate launch train.py", False),
        ({"run.sh": "uv pip install --system -r more.txt\n"}, "bash run.sh", False),
    ],
)
def test_calls_of_a_commands_script_are_held_against_the_containers_versions(
    tmp_path: Path, more: dict[str, str], command: str, told: bool
) -> None:
    for name, text in {"train.py": OF_TRL, **more}.items():
        (tmp_path / name).write_text(text)
    code = TrainingCode(str(tmp_path), command=command)
    stack = with_trl(tmp_path, TRANSFORMERS_5, "", more=more, code=code, hyperparameters={"anything": 1})
    warned = stack.warnings("script-training-arguments")
    assert ["SFTTrainer of trl 0.28.0 takes no max_seq_length" in text for text in warned] == [True] * told


def test_a_file_of_arguments_beside_the_script_leaves_them_unknown(tmp_path: Path) -> None:
    (tmp_path / "train.args").write_text("--output_dir /opt/ml/model")
    with_trainer(tmp_path, evaluation_strategy="epoch")


@pytest.mark.parametrize(
    ("tag", "told"), [(TRANSFORMERS_5, True), ("2.1.0-transformers4.36.0-gpu-py310-cu121-ubuntu20.04", False)]
)
def test_modules_that_the_containers_python_no_longer_has_are_a_warning(tmp_path: Path, tag: str, told: bool) -> None:
    script = "import imp\nfrom collections import OrderedDict\nopen('/opt/ml/model/x', 'w')\n"
    stack = with_trl(tmp_path, tag, "", more={"train.py": script}, hyperparameters={})
    warned = stack.warnings("script-removed")
    assert ["train.py:1: Python 3.12 has no imp, since 3.12: use importlib.util" in text for text in warned] == [
        True
    ] * told


@pytest.mark.parametrize(
    ("pythons", "known"),
    [(("py312",), "3.12"), (("py310", "py311"), "3.10 or newer"), (("py3", "py36"), "3.0 or newer"), ((), None)],
)
def test_of_a_container_that_may_have_several_pythons_the_oldest_counts(
    tmp_path: Path, pythons: tuple[str, ...], known: str | None
) -> None:
    (tmp_path / "train.py").write_text("")
    contents = Contents({"pytorch": "2.8.0"}, True, pythons)
    container = {"is_container": True, "dockerfile": None, "base": "pytorch-training:2.8.0"}
    image = SimpleNamespace(**container, contents=lambda: contents)
    assert installed_by(TrainingCode(str(tmp_path)), {"image": image}).versions.get("python") == known


REMOVED = "import tensorflow as tf\nmodel = tf.keras.Sequential()\nmodel.save('/opt/ml/model/1')\nimport torch._six\n"
MIRRORED = """
import tensorflow as tf

with tf.distribute.MirroredStrategy().scope():
    model = build()
model.fit(images, epochs=3)
"""
ON_GPUS, ON_A_GPU = DataParallelJob(InstanceGroup("ml.g5.12xlarge")), DataParallelJob(InstanceGroup("ml.g5.xlarge"))
ON_HOSTS = DataParallelJob(InstanceGroup("ml.g5.xlarge", 2), launcher=MultiWorkerMirrored())
TF_216, TF_221 = "2.16.2-gpu-py310", "2.21-gpu-py312-cu129-amzn2023-sagemaker"


@pytest.mark.parametrize(
    ("tag", "job", "others", "says"),
    [
        (TF_216, ON_GPUS, {}, "with Keras before 3.8, "),
        (TF_216, ON_A_GPU, {}, ""),
        (TF_216, ON_GPUS, {"requirements": "keras>=3.8\n"}, ""),
        (TF_216, ON_GPUS, {"requirements": "pandas\nkeras >= 3.8, < 4  # which adds nothing twice\n"}, ""),
        (TF_216, ON_GPUS, {"requirements": "keras==3.6.0\n"}, "with Keras 3.6.0, gradients of replicas are added"),
        (TF_216, ON_GPUS, {"requirements": "keras>=3.6\n"}, "with Keras 3.6 or newer, gradients of replicas are added"),
        (TF_216, ON_GPUS, {"requirements": "tf-keras\nkeras>=3.6\n"}, ""),
        (TF_216, ON_GPUS, {"requirements": "keras>=3.6\ntf-keras\n"}, ""),
        (TF_216, ON_GPUS, {"requirements": "keras-cv\n"}, ""),
        (TF_216, ON_GPUS, {"environment": {"TF_USE_LEGACY_KERAS": "1"}}, ""),
        (TF_216, ON_GPUS, {"requirements": "keras==3.6.0\n", "environment": {"TF_USE_LEGACY_KERAS": "1"}}, ""),
        ("2.14.1-gpu-py310", ON_GPUS, {}, ""),
        ("2.18.0-gpu-py310", ON_GPUS, {}, ""),
        ("2.19.0-gpu-py312", ON_GPUS, {}, ""),
        (TF_221, ON_GPUS, {}, ""),
        (TF_221, ON_GPUS, {"requirements": "keras==3.7.0\n"}, "with Keras 3.7.0, gradients of replicas are added"),
        (TF_221, ON_HOSTS, {}, "with Keras 3.15, fit ends with an error in MultiWorkerMirroredStrategy"),
        ("2.18.0-gpu-py310", ON_HOSTS, {}, "with Keras 3.8 or newer, fit ends with an error"),
        ("2.14.1-gpu-py310", ON_HOSTS, {}, ""),
    ],
)
def test_keras_of_the_container_or_of_the_requirements_trains_replicas_in_its_way(
    tmp_path: Path, tag: str, job: Any, others: dict[str, Any], says: str
) -> None:
    text = MIRRORED.replace(".Mirrored", ".MultiWorkerMirrored") if job is ON_HOSTS else MIRRORED
    (tmp_path / "train.py").write_text(text)
    props = dict(others)
    (tmp_path / "requirements.txt").write_text(props.pop("requirements", ""))
    stack = UserStack()
    image = TrainingImage.from_dlc(stack, "Container", "tensorflow-training", tag)
    stack.task(job=job, image=image, code=TrainingCode(str(tmp_path)), **props)
    texts = stack.warnings("script-strategy-fit")
    assert [says in one for one in texts] == [True] * bool(says)


def test_keras_of_a_dockerfile_is_that_of_its_container_unless_it_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MIRRORED)
    start = (
        f"FROM 763104351884.dkr.ecr.us-east-1.amazonaws.com/tensorflow-training:{TF_216}\nCOPY train.py /opt/ml/code/\n"
    )
    start += "ENV SAGEMAKER_PROGRAM=train.py\n"
    for more, times in (("", 1), ("ENV TF_USE_LEGACY_KERAS=1\n", 0)):
        (tmp_path / "Dockerfile").write_text(start + more)
        stack = UserStack()
        image = TrainingImage.from_asset(stack, "Image", str(tmp_path))
        stack.workflow(image=image, code=None, job=ON_GPUS)
        assert len(stack.warnings("script-strategy-fit")) == times


def test_the_keras_of_a_container_is_what_its_own_list_has_and_each_of_tensorflow_is_known() -> None:
    """What the account's table of containers has is of the same `uv.lock`; of 2.16 the Keras is not recorded."""
    listed = json.loads((files("sagemaker_local_account.images") / "container_packages.json").read_text())
    keras = {name: has["packages"]["keras"] for name, has in listed.items() if "keras" in has["packages"]}
    assert keras.keys() == {"tensorflow-training 2.21-cpu", "tensorflow-training 2.21-gpu"}
    assert {".".join(version.split(".")[:2]) for version in keras.values()} == {keras_of("2.21")}
    rows = json.loads((files("cdk_sagemaker_training.facts") / "images.json").read_text())["rows"]
    versions = {version for name, of_name, *_ in rows if name == "tensorflow-training" for version in of_name}
    assert {version for version in versions if keras_of(version) == "3"} == {"2.16.2"}
    assert (keras_of("2.15.1"), keras_of("2.9"), keras_of("3.1")) == ("2.15", "2.9", "3")


REMOVED_OF_NUMPY = "import numpy as np\nnp.zeros(3, dtype=np.float)\n"


@pytest.mark.parametrize(
    ("repository", "tag", "others", "lines"),
    [
        ("tensorflow-training", "2.19.0-cpu-py312-ubuntu22.04-sagemaker", {}, [3]),
        ("tensorflow-training", "2.16-cpu-py310", {}, [3]),
        ("tensorflow-training", "2.14.1-cpu-py310-ubuntu20.04-sagemaker", {}, []),
        ("tensorflow-training", "2.19.0-cpu-py312", {"requirements": "tf-keras\n"}, []),
        ("tensorflow-training", "2.19.0-cpu-py312", {"requirements": "tensorflow==2.17.1\n"}, []),
        ("tensorflow-training", "2.19.0-cpu-py312", {"requirements": "pandas\n"}, [3]),
        ("tensorflow-training", "2.19.0-cpu-py312", {"environment": {"TF_USE_LEGACY_KERAS": "1"}}, []),
        ("pytorch-training", "2.6.0-cpu-py312", {}, [4]),
        ("pytorch-training", "1.13.1-cpu-py39", {}, []),
        ("pytorch-training", "2.6.0-cpu-py312", {"setup": "import setuptools\n"}, []),
        ("pytorch-training", "2.6.0-cpu-py312", {"requirements": "torch==2.4.1\n"}, []),
        ("huggingface-pytorch-training", TRANSFORMERS_5, {}, [4]),
    ],
)
def test_what_the_containers_framework_no_longer_has_is_a_warning(
    tmp_path: Path, repository: str, tag: str, others: dict[str, Any], lines: list[int]
) -> None:
    (tmp_path / "train.py").write_text(REMOVED)
    props = dict(others)
    (tmp_path / "requirements.txt").write_text(props.pop("requirements", ""))
    if setup := props.pop("setup", ""):
        (tmp_path / "setup.py").write_text(setup)
    stack = UserStack()
    image = TrainingImage.from_dlc(stack, "Container", repository, tag)
    job = ON_ONE_GPU if "gpu" in tag else ON_A_CPU
    stack.task(job=job, image=image, code=TrainingCode(str(tmp_path)), **props)
    texts = stack.warnings("script-removed")
    assert [int(number) for text in texts for number in re.findall(r"train\.py:(\d+): ", text)] == lines


@pytest.mark.parametrize(
    ("tag", "requirements", "warns"),
    [
        ("2.6.0-cpu-py312", "", True),
        ("2.6.0-cpu-py312", "numpy==1.23.5\n", False),
        ("2.5.1-cpu-py311", "", False),
        ("1.13.1-cpu-py39", "", False),
        ("1.5.0-cpu-py3", "", False),
    ],
)
def test_names_of_numpy_are_held_where_the_containers_python_has_none_that_has_them(
    tmp_path: Path, tag: str, requirements: str, warns: bool
) -> None:
    """NumPy 1.26 is the first with wheels for Python 3.12, and 1.24 removed the names."""
    (tmp_path / "train.py").write_text(REMOVED_OF_NUMPY)
    (tmp_path / "requirements.txt").write_text(requirements)
    stack = UserStack()
    image = TrainingImage.from_dlc(stack, "Container", "pytorch-training", tag)
    stack.task(job=ON_A_CPU, image=image, code=TrainingCode(str(tmp_path)))
    assert ["numpy 1.26 or newer has no numpy.float" in text for text in stack.warnings("script-removed")] == [
        True
    ] * warns


def test_of_an_image_that_is_built_from_a_container_no_versions_are_known(tmp_path: Path) -> None:
    """Its Dockerfile may install others."""
    (tmp_path / "train.py").write_text(REMOVED + REMOVED_OF_NUMPY)
    stack = UserStack()
    image = stack.image_from("built", base="pytorch-training:2.6.0-cpu-py312")
    stack.task(job=ON_A_CPU, image=image, code=TrainingCode(str(tmp_path)))
    assert stack.warnings("script-removed") == []


KEEPS = "import torch\ntorch.save(model, 'last.pt')\n"


@pytest.mark.parametrize(
    ("files", "props", "warns"),
    [
        ({"train.py": KEEPS}, {}, True),
        ({"train.py": KEEPS.replace("last.pt", "/opt/ml/checkpoints/last.pt")}, {}, False),
        ({"train.py": KEEPS + "folder = Path('/opt/ml') / 'checkpoints'\n"}, {}, False),
        ({"train.py": KEEPS, "train.yaml": "output_dir: /opt/ml/checkpoints\n"}, {}, False),
        ({"train.py": KEEPS}, {"hyperparameters": {"output_dir": "/opt/ml/checkpoints"}}, False),
        ({"train.py": KEEPS}, {"hyperparameters": {"output_dir": "/opt/ml/model"}}, True),
        ({"train.py": KEEPS}, {"hyperparameters": {"output_dir": JsonPath.string_at("$.output")}}, False),
        ({"train.py": KEEPS}, {"hyperparameters": {"steps": JsonPath.string_at("$.steps")}}, True),
        ({"train.py": KEEPS}, {"environment": {"KEEP": "/opt/ml/checkpoints/"}}, False),
        (
            {"train.py": KEEPS.replace("last.pt", "/opt/ml/checkpoints/last.pt")},
            {"checkpoint_local_path": "/opt/state"},
            True,
        ),
        ({"train.py": KEEPS.replace("last.pt", "/opt/state/last.pt")}, {"checkpoint_local_path": "/opt/state/"}, False),
        ({"train.py": "print('evaluates')\n"}, {}, False),
    ],
)
def test_a_script_that_saves_where_no_checkpoint_is_kept_is_warned_of(
    tmp_path: Path, files: dict[str, str], props: dict[str, Any], warns: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    stack = UserStack()
    place = S3Prefix(stack.bucket, "checkpoints/")
    stack.workflow(code=TrainingCode(str(tmp_path)), checkpoints=place, missing_model="ignore", **props)
    assert ("script-checkpoints-elsewhere" in stack.warned()) is warns
    assert "script-checkpoints-elsewhere" not in warned_of(tmp_path)


SERVES = """
import torch


def model_fn(folder):
    return torch.load(f"{folder}/model.pt")


for batch in loader:
    optimizer.zero_grad()
    model(batch).backward()
    optimizer.step()
torch.save(model, "/opt/ml/checkpoints/last.pt")
"""


def test_what_loads_a_model_to_serve_it_loads_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SERVES)
    spot = Spot(S3Prefix(UserStack().bucket, "checkpoints/"), max_wait=Duration.hours(30))
    assert warned_of(tmp_path, spot=spot, missing_model="ignore") == ["script-checkpoint"]
    (tmp_path / "train.py").write_text(SERVES.replace("def model_fn", "def resume"))
    assert warned_of(tmp_path, spot=spot, missing_model="ignore") == ["script-saved-at-end"]


TRAINS_ALONE = """
import os
import torch

rank = int(os.environ["RANK"])
for batch in loader:
    optimizer.zero_grad()
    model(batch).backward()
    optimizer.step()
"""
JOINS = TRAINS_ALONE.replace("rank = int", "torch.distributed.init_process_group()\nrank = int")
FITS = "import tensorflow as tf\n\nwith tf.distribute.MirroredStrategy().scope():\n    model = build()\nmodel.fit(images)\n"
TWO_GPUS = InstanceGroup("ml.g5.12xlarge", 2)
TWO_CPUS = InstanceGroup("ml.m5.xlarge", 2)
BY_LIBRARY = "import accelerate\n\naccelerator = accelerate.Accelerator()\n"


@pytest.mark.parametrize(
    ("text", "props", "rules"),
    [
        (TRAINS_ALONE, {}, ["script-launcher"]),
        (TRAINS_ALONE.replace('["RANK"]', '.get("RANK", 0)'), {}, []),
        (
            TRAINS_ALONE,
            {"job": DataParallelJob(InstanceGroup("ml.m5.xlarge", 2))},
            ["script-launcher", "script-process-group"],
        ),
        (TRAINS_ALONE, {"job": DataParallelJob(TWO_GPUS, launcher=Torchrun())}, ["script-process-group"]),
        (JOINS, {"job": DataParallelJob(TWO_GPUS, launcher=Torchrun())}, ["script-gradients"]),
        (TRAINS_ALONE, {"job": DataParallelJob(TWO_GPUS, launcher=Mpi())}, ["script-process-group"]),
        (FITS, {"job": DataParallelJob(TWO_GPUS, launcher=MultiWorkerMirrored())}, ["script-strategy"]),
        (FITS, {"job": DataParallelJob(InstanceGroup("ml.g5.12xlarge"), launcher=MultiWorkerMirrored())}, []),
        (FITS, {}, []),
        (BY_LIBRARY, {"job": DataParallelJob(TWO_GPUS, launcher=Torchrun())}, []),
        (BY_LIBRARY, {"job": DataParallelJob(TWO_CPUS)}, ["script-apart"]),
        (BY_LIBRARY, {"job": DataParallelJob(TWO_CPUS, launcher=Torchrun())}, ["script-use-cpu"]),
        (
            BY_LIBRARY,
            {"job": DataParallelJob(TWO_CPUS, launcher=Torchrun()), "environment": {"ACCELERATE_USE_CPU": "true"}},
            [],
        ),
        (TRAINS_ALONE, {"job": ON_GROUPS}, []),
        (TRAINS_ALONE, {"environment": {"RANK": "0"}}, []),
        (TRAINS_ALONE, {"container_entrypoint": ["python", "/opt/train.py"]}, []),
    ],
)
def test_how_many_processes_of_a_script_run_is_of_the_machines_and_of_the_launcher(
    tmp_path: Path, text: str, props: dict[str, Any], rules: list[str]
) -> None:
    (tmp_path / "train.py").write_text(text)
    assert warned_of(tmp_path, **props) == rules


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        ("python train.py", ["script-launcher"]),
        ("torchrun --nproc-per-node 4 train.py", ["script-process-group"]),
        ("RANK=0 python train.py", []),
        ("for i in 0 1; do python train.py & done; wait", []),
    ],
)
def test_how_many_processes_a_command_starts_is_of_what_it_starts(
    tmp_path: Path, command: str, rules: list[str]
) -> None:
    (tmp_path / "train.py").write_text(TRAINS_ALONE)
    stack = UserStack()
    stack.workflow(
        code=TrainingCode(str(tmp_path), command=command), job=DataParallelJob(InstanceGroup("ml.g5.12xlarge"))
    )
    assert [name for name in stack.warned() if name.startswith("script-")] == rules
