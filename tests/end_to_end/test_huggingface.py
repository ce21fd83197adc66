"""Models of Hugging Face's transformers through a deployed state machine: by our train.py over two hosts, and by its Trainer."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.parse import urlparse

import aws_cdk as cdk
import numpy as np
import pytest
from aws_cdk import aws_s3 as s3
from deployed import Deployed

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    ModelParallelJob,
    NativeParallelism,
    S3Channel,
    S3Prefix,
    Torchrun,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)
from training_jobs.cli.apps import write_app

pytestmark = pytest.mark.soak  # PyTorch and transformers start in six processes
TWO_DEVICES = "ml.g7e.12xlarge"
SCRIPT = Path(training_code_path()) / "model_parallel" / "huggingface" / "train.py"
STEPS = {"steps": 4, "context": 16, "batch-size": 8, "log-every": 1, "warm-up": 1, "learning-rate": 0.01}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128, "hidden_size": 32}
LLAMA |= {"intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}


class HuggingFace(cdk.Stack):
    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "HuggingFace")
        self.bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        cdk.CfnOutput(self, "BucketName", value=self.bucket.bucket_name)
        ours = TrainingImage.from_asset(
            self, "Ours", directory=training_code_path(), file="model_parallel/huggingface/Dockerfile"
        )
        theirs = TrainingImage.from_asset(self, "Theirs", directory=str(Path(__file__).parent / "a_trainer_job"))
        for name, props in {
            "Llama": {
                "job": ModelParallelJob(InstanceGroup(TWO_DEVICES, 2), NativeParallelism(data_shard=2, tensor=2)),
                "image": ours,
                "channels": {name: S3Channel(self.bucket, f"{name}/") for name in ("model", "tokens")},
                "hyperparameters": STEPS,
            },
            "Trainer": {"job": DataParallelJob(InstanceGroup(TWO_DEVICES), launcher=Torchrun()), "image": theirs},
        }.items():
            workflow = TrainingWorkflow(self, name, output=S3Prefix(self.bucket, "models/"), **props)
            cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("channels")
    for name in ("model", "tokens"):
        (folder / name).mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(LLAMA))
    walk = np.cumsum(np.random.default_rng(0).integers(0, 3, 5000)) % 128
    np.save(folder / "tokens" / "tokens-00000.npy", walk.astype(np.uint16))
    return folder


@pytest.fixture(scope="module")
def machines(deployed: Deployed, channels: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    outputs = deployed.deploy(HuggingFace(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))
    for file in (file for file in channels.rglob("*") if file.is_file()):
        key = str(file.relative_to(channels))
        deployed.client("s3").upload_file(str(file), outputs["BucketName"], key)
    return outputs


def completed(deployed: Deployed, execution: str) -> tuple[list[str], str]:
    """What the hosts of an execution's job said, and where its model is."""
    ended = deployed.ended(execution)
    job = deployed.the_job_of(execution)
    said = deployed.said(job["TrainingJobName"])
    assert ended["status"] == "SUCCEEDED", "\n".join(said)
    return said, job["ModelArtifacts"]["S3ModelArtifacts"]


def losses(lines: list[str]) -> dict[int, float]:
    found = [re.match(r"step (\d+) loss ([\d.]+)", line) for line in lines]
    return {int(match[1]): float(match[2]) for match in found if match}


def alone(folder: Path, channels: Path) -> list[str]:
    """What one process without a job prints; its model is in ``folder/output/model``."""
    paths = (SCRIPT.parent, SCRIPT.parents[1], SCRIPT.parents[2])
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, paths)), "HF_HUB_OFFLINE": "1"}
    variables |= {f"SM_CHANNEL_{name.upper()}": str(channels / name) for name in ("model", "tokens")}
    variables["SM_CHANNELS"] = '["model", "tokens"]'
    arguments = [part for name, value in STEPS.items() for part in (f"--{name}", str(value))]
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments], cwd=folder, env=variables, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_llama_on_two_hosts_of_two_ranks_is_exported_with_the_logits_of_one_process(
    deployed: Deployed, machines: dict[str, str], channels: Path, tmp_path: Path
) -> None:
    said, model = completed(deployed, deployed.start(machines["LlamaArn"]))
    assert losses(said) == pytest.approx(losses(alone(tmp_path, channels)), abs=1e-4)
    assert len(losses(said)) == STEPS["steps"]
    where = urlparse(model)
    deployed.client("s3").download_file(where.netloc, where.path.lstrip("/"), str(tmp_path / "model.tar.gz"))
    with tarfile.open(tmp_path / "model.tar.gz") as archive:
        archive.extractall(tmp_path / "exported", filter="data")

    import torch
    from transformers import AutoModelForCausalLM

    folders = (tmp_path / "exported", tmp_path / "output" / "model")
    exported, expected = (AutoModelForCausalLM.from_pretrained(folder) for folder in folders)
    tokens = torch.arange(16)[None]
    with torch.no_grad():
        assert (exported(tokens).logits - expected(tokens).logits).abs().max().item() < 1e-3


def test_the_app_that_init_writes_trains_from_the_files_that_it_brings(deployed: Deployed, tmp_path: Path) -> None:
    write_app("huggingface", tmp_path)
    app = (tmp_path / "app.py").read_text().replace('"steps": 60', '"steps": 20')
    for name in ("data/", "training_code"):  # the process of jsii keeps the folder that it was started in
        app = app.replace(f'"{name}', f'"{tmp_path}/{name}')
    (tmp_path / "app.py").write_text(app.replace("app.synth()\n", ""))
    stack = runpy.run_path(str(tmp_path / "app.py"))["stack"]
    machine = stack.node.find_child("Training").state_machine.state_machine_arn
    outputs = deployed.deploy(cdk.CfnOutput(stack, "MachineArn", value=machine).stack)
    states = deployed.client("stepfunctions")
    # As `training-jobs start` does for a workflow with resume_from.
    started = states.start_execution(
        stateMachineArn=outputs["MachineArn"], name="first", input='{"resume_from": "first"}'
    )
    said, model = completed(deployed, started["executionArn"])
    [first, last] = losses(said).values()  # steps 10 and 20
    assert last < first < 6  # log 256 is 5.5
    where = urlparse(model)
    deployed.client("s3").download_file(where.netloc, where.path.lstrip("/"), str(tmp_path / "model.tar.gz"))
    with tarfile.open(tmp_path / "model.tar.gz") as archive:
        assert {"config.json", "model.safetensors"} <= {name.removeprefix("./") for name in archive.getnames()}


def test_a_trainers_ranks_on_emulated_gpus_train_one_model(deployed: Deployed, machines: dict[str, str]) -> None:
    """Without ACCELERATE_USE_CPU each rank would train a model of its own, and say so: ``rank 1 of 1``."""
    said, _ = completed(deployed, deployed.start(machines["TrainerArn"]))
    ranks = dict(re.match(r"rank (\d of \d): weights ([\d.]+)", line).groups() for line in said if "weights" in line)  # type: ignore[union-attr]
    assert set(ranks) == {"0 of 2", "1 of 2"}, said
    assert len({*ranks.values()}) == 1
