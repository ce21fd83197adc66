"""The Python snippets of the README and of docs/: that they run as they stand, in a stack that synthesizes."""

import re
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from aws_cdk.assertions import Template
from stacks import ON_ONE_GPU, UserStack

import cdk_sagemaker_training

ROOT = Path(__file__).parents[2]
# By how they begin: who runs those that are no part of a stack, or why nothing can.
ELSEWHERE = {
    "@pytest.fixture": "tests/clients/test_pytest_plugin.py has such projects",
    "from training_jobs import": "tests/end_to_end/test_command_line.py has the client's calls",
    "for batch in loader:  # each batch padded": "the loop to be changed",
    "count = counted(targets)": "tests/training_code/test_loss.py has the function",
    "model = torch.compile(model, fullgraph=True)": "tests/training_code/test_compiled_guard.py has the guard around such a loop",
    "import torch\nfrom ": "tests/training_code/test_read_batches.py runs both",
    "saved = torch.load": "tests/training_code/test_model_parallel.py reads the model so",
    "ray.init()": "tests/end_to_end/test_training_code.py has a job of Ray Data",
    "TorchTrainer(": "tests/end_to_end/test_training_code.py has a job of Ray Data; Ray Train needs GPUs of its own",
}
PAGES = [
    page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if page.name != "from-cdk.md"
]  # which test_from_cdk.py runs


def snippets() -> list[Any]:
    found = []
    for page in PAGES:
        for snippet in re.finditer(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            line = page.read_text()[: snippet.start()].count("\n") + 2
            if not snippet[1].startswith(tuple(ELSEWHERE)):
                found.append(pytest.param(snippet[1], id=f"{page.relative_to(ROOT)}:{line}"))
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the snippets' folders are, and where they run."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "Dockerfile").write_text(
        "FROM 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-gpu-py312\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("snippet", snippets())
def test_a_snippet_runs_and_its_stack_synthesizes(snippet: str, folder: Path) -> None:
    stack = UserStack()
    least = {"job": ON_ONE_GPU, "image": stack.image, "output": stack.place("models/")}

    def least_props(dots: re.Match[str]) -> str:
        """The props that every workflow has, for which "..." stands, but for those before it."""
        starts = [snippet.rfind(name, 0, dots.start()) for name in ("TrainingWorkflow(", "TrainingTask.jsonata(")]
        call = snippet[max(starts) : dots.start()]
        missing = [name for name in least if f"\n    {name}=" not in call]
        return f"    **{{name: least[name] for name in {missing}}},"

    text = re.sub(r"^    \.\.\.$", least_props, snippet, flags=re.MULTILINE)
    public = {name: getattr(cdk_sagemaker_training, name) for name in cdk_sagemaker_training.__all__}
    names = {"stack": stack, "self": stack, "bucket": stack.bucket, "image": stack.image, "least": least}
    names |= {"for_neuron": stack.image_from("neuron"), "topic": sns.Topic(stack, "Topic")}
    names |= {"cdk": cdk, "Duration": cdk.Duration, "s3": s3, "ec2": ec2, "iam": iam, "sfn": sfn, "tasks": tasks}
    names |= {"events": events, "targets": targets}
    # The CDK's kernel, which all tests share, has not changed to the folder.
    exec(re.sub(r'directory="(\w+)"', rf'directory="{folder}/\1"', text), {**public, **names})
    assert Template.from_stack(stack).to_json() is not None


def test_every_reason_for_which_a_snippet_is_not_run_here_is_of_a_snippet() -> None:
    texts = [found for page in PAGES for found in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
    assert {start for start in ELSEWHERE if not any(text.startswith(start) for text in texts)} == set()
