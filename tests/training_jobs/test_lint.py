"""`training-jobs lint`: planted mistakes are found on their lines, and what is no mistake is not."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from training_jobs.cli.main import app
from training_jobs.lint import Finding, Job, lint_folder
from training_jobs.lint.distributed import DISTRIBUTED
from training_jobs.lint.hosts import HOSTS
from training_jobs.lint.replicas import REPLICAS
from training_jobs.lint.resume import RESUME
from training_jobs.lint.rules import RULES
from training_jobs.lint.scales import SCALES
from training_jobs.lint.shares import SHARES
from training_jobs.lint.strategies import STRATEGIES
from training_jobs.lint.trainers import TRAINERS
from training_jobs.lint.wrapped import WRAPPED

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
COMPILED, XLA = Job(compiled=True), Job(compiled=True, xla=True)
CHANNELS = Job(channels=("training", "validation-set"))
SPOT, GROUPS = Job(spot=True), Job(groups=("data_group", "dnn_group"))

CONTAINER = Job(entry_point="train.py", modules=frozenset({"torch", "torch_xla"}))
# A loop of each of these jobs, without a mistake; a line is planted where it says so.
LOOP = """
import os
import torch
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, DistributedSampler
{before}
def train(model, optimizer, images, tokenizer, total=0.0, best=9.0):
    if os.path.exists("/opt/ml/checkpoints/last.pt"):
        model.load_state_dict(torch.load("/opt/ml/checkpoints/last.pt"))
    loader = DataLoader(images, batch_size=8, shuffle=True, drop_last=True)
    for epoch in range(3):
        for step, batch in enumerate(loader):
            optimizer.zero_grad()
            loss = model(batch)
            loss.backward()
            xm.optimizer_step(optimizer, barrier=True)
            {step}
            if step % 100 == 0:
                print(f"step {{step}} loss {{loss.item()}}")
        print(f"epoch {{epoch}} loss {{loss.item()}}")
        xm.save(model.state_dict(), "/opt/ml/checkpoints/last.pt")
"""
CPU_LOOP = (
    "import torch\nfor batch in loader:  # HERE\n    optimizer.zero_grad()\n    loss = model(batch)\n    loss.backward()\n"
    "    optimizer.step()\n"
)

# What is planted in a step, and before the function.
IN_STEP = [
    ("item", COMPILED, "total += loss.item()"),
    ("item", COMPILED, "best = min(best, float(loss))"),
    ("item", COMPILED, "history = loss.detach().cpu().numpy()"),
    ("print-tensor", COMPILED, "print('loss', loss)"),
    ("log-each-step", COMPILED, "print(f'loss {loss.item():.4f}')"),
    ("log-each-step", COMPILED, "wandb.log({'loss': loss})"),
    ("log-each-step", COMPILED, "progress.set_postfix(loss=loss.item())"),
    ("dynamic-shape", XLA, "hard = torch.nonzero(batch)"),
    ("compile-each-step", Job(), "model = torch.compile(model)"),
    ("save-each-step", Job(), "xm.save(model.state_dict(), 'last.pt')"),
    ("history", Job(), "total += loss"),
]
BEFORE = [
    ("padding", COMPILED, "encode = lambda tokenizer, text: tokenizer(text, padding='longest')"),
    ("padding", COMPILED, "encode = lambda tokenizer, text: tokenizer(text, padding=True)"),
    ("padding", COMPILED, "collate = DataCollatorWithPadding(tokenizer)"),
    ("drop-last", COMPILED, "loader = DataLoader(images, batch_size=8, shuffle=True)"),
    ("drop-last", COMPILED, "arguments = TrainingArguments(output_dir='/opt/ml/model')"),
    ("log-each-step", COMPILED, "arguments = TrainingArguments('out', dataloader_drop_last=True, logging_steps=1)"),
    ("cuda", XLA, "model = build().cuda()"),
    ("cuda", XLA, "device = torch.device('cuda:0')"),
    ("save", XLA, "torch.save(model.state_dict(), '/opt/ml/model/model.pt')"),
    ("scaler", XLA, "scaler = torch.cuda.amp.GradScaler()"),
    ("debugger", COMPILED, "hook = smd.Hook('/opt/ml/output/tensors', save_config=smd.SaveConfig(save_interval=1))"),
    ("set-epoch", Job(), "sampler = DistributedSampler(images)"),
    ("group", GROUPS, "is_data_host = os.environ['SM_CURRENT_INSTANCE_GROUP'] == 'data-group'"),
    ("group", GROUPS, "hosts = environment.instance_groups_dict['cpu_group']['hosts']"),
    ("channel", CHANNELS, "folder = os.environ['SM_CHANNEL_TRAIN']"),
    ("channel", Job(channels=()), "parser.add_argument('--data', default=os.environ['SM_CHANNEL_TRAINING'])"),
    ("host-name", Job(), "os.environ['MASTER_ADDR'] = 'algo-1'"),
    ("host-name", Job(), "leader = 'tcp://algo-2:2222'"),
    ("import", CONTAINER, "import transformers"),
    ("import", CONTAINER, "from datasets.arrow import load"),
    ("import", CONTAINER, "with open('names'): import timm"),
    ("import", CONTAINER, "from torch.utils.tensorboard import SummaryWriter"),
    ("download", Job(offline=True), "weights = AutoModel.from_pretrained('Qwen/Qwen3-0.6B')"),
]
WHOLE = [
    ("removed", Job(versions={"torch": "2.0.1"}), "from torch._six import inf  # HERE\n"),
    (
        "training-arguments",
        Job(versions={"transformers": "5.3.0"}),
        "from transformers import TrainingArguments\n\nTrainingArguments(output_dir='x', no_cuda=True)  # HERE\n",
    ),
    (
        "removed",
        Job(versions={"torch": "2.7.0"}),
        "import torch_xla.core.xla_model as xm\n\nprint(xm.get_ordinal())  # HERE\n",
    ),
    ("mark-step", XLA, CPU_LOOP),
    ("mark-step", XLA, CPU_LOOP.replace("optimizer.step()", "xm.optimizer_step(optimizer)")),
    ("checkpoint", SPOT, CPU_LOOP),
    ("checkpoint", SPOT, f"{CPU_LOOP}torch.save(model, '/opt/ml/checkpoints/last.pt')\n"),
    (
        "padding",
        COMPILED,
        "import tensorflow as tf\ndata = tf.data.Dataset.range(9).padded_batch(4, drop_remainder=True)  # HERE",
    ),
    ("drop-last", COMPILED, "import tensorflow as tf\ndata = tf.data.Dataset.range(9).batch(4)  # HERE"),
    (
        "item",
        COMPILED,
        "def step(batch):\n    optimizer.zero_grad()\n    loss = model(batch)\n    loss.backward()\n    optimizer.step()\n"
        "    return loss.item()  # HERE\n"
        "for epoch in range(3):\n    for batch in loader:\n        step(batch)\n    print(step)",
    ),
]
PLANTED = [
    *((rule, job, LOOP.format(before="", step=f"{line}  # HERE")) for rule, job, line in IN_STEP),
    *((rule, job, LOOP.format(before=f"{line}  # HERE", step="pass")) for rule, job, line in BEFORE),
    *WHOLE,
]


def found_in(folder: Path, text: str, job: Job) -> list[Finding]:
    (folder / "train.py").write_text(text)
    return lint_folder(folder, job)


@pytest.mark.parametrize(
    ("rule", "job", "text"), PLANTED, ids=[f"{rule}-{number}" for number, (rule, *_) in enumerate(PLANTED)]
)
def test_a_planted_mistake_is_found_on_its_line_and_is_the_only_one(
    rule: str, job: Job, text: str, tmp_path: Path
) -> None:
    [line] = [number for number, content in enumerate(text.splitlines(), start=1) if "# HERE" in content]
    assert [(one.rule, one.line) for one in found_in(tmp_path, text, job)] == [(rule, line)]


@pytest.mark.parametrize("job", [Job(), COMPILED, XLA, SPOT, GROUPS])
def test_the_loop_without_a_planted_line_has_no_mistake(job: Job, tmp_path: Path) -> None:
    assert found_in(tmp_path, LOOP.format(before="", step="pass"), job) == []


@pytest.mark.parametrize(
    ("job", "line"),
    [
        (COMPILED, "if step % 10 == 0: print(loss.item())"),
        (COMPILED, "if log_now: wandb.log({'loss': loss})"),
        (CHANNELS, "folder = os.environ['SM_CHANNEL_VALIDATION-SET'] + os.environ['SM_CHANNEL_TRAINING']"),
        (CHANNELS, "folder = os.environ.get('SM_CHANNEL_TRAIN', 'data')"),
        (CHANNELS, "os.environ['SM_CHANNEL_TRAIN'] = 'data'"),
        (CHANNELS, "folder = os.environ['SM_CHANNEL_TRAIN'] if 'SM_CHANNEL_TRAIN' in os.environ else 'data'"),
        (Job(), "folder = os.environ['SM_CHANNEL_TRAIN']"),
        (COMPILED, "total += loss.detach()"),
        (COMPILED, "print(f'step {step}')"),
        (Job(compiled=True, dynamic=True), "batch = tokenizer(batch, padding='longest')"),
        (COMPILED, "layer = torch.nn.Conv2d(3, 8, 3, padding=1)"),
        (COMPILED, "held_out = DataLoader(validation, shuffle=True)"),
        (Job(), "sampler = DistributedSampler(test_images)"),
        (Job(), "host = os.environ.get('SM_CURRENT_HOST', 'algo-1')"),
        (GROUPS, "prepares = os.environ['SM_CURRENT_INSTANCE_GROUP'] == 'data_group'"),
        (Job(), "raise ValueError('a host must be like algo-1')"),
        (CONTAINER, "import transformers"),  # in a function, which may not be called
    ],
)
def test_what_is_no_mistake_is_not_reported(job: Job, line: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, LOOP.format(before="", step=line), job) == []


@pytest.mark.parametrize("where", ["line", "above", "file"])
def test_a_comment_switches_a_rule_off(where: str, tmp_path: Path) -> None:
    allow = "# training-jobs: allow history, item"
    line = {"line": f"total += loss  {allow}", "above": f"{allow}\n            total += loss", "file": "total += loss"}[
        where
    ]
    text = LOOP.format(before="", step=line)
    assert found_in(tmp_path, f"{allow}\n{text}" if where == "file" else text, Job()) == []


def test_a_comment_for_another_rule_switches_nothing_off(tmp_path: Path) -> None:
    text = LOOP.format(before="", step="total += loss  # training-jobs: allow item")
    assert [one.rule for one in found_in(tmp_path, text, Job())] == ["history"]


@pytest.mark.parametrize(
    ("folder", "job"),
    [
        ("compiled/xla", XLA),
        *(
            (one, job)
            for one in ("", "compiled")
            for job in (COMPILED, Job(spot=True, groups=("data_group", "dnn_group")))
        ),
    ],
)
def test_the_packaged_scripts_have_no_mistake(folder: str, job: Job) -> None:
    assert lint_folder(TRAINING_CODE / folder, job) == []


def test_a_file_of_another_language_or_version_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("print 'algo-1'")
    (tmp_path / "run.sh").write_text("echo algo-1")
    found = found_in(tmp_path, "os.environ['MASTER_ADDR'] = 'algo-1'", Job())
    assert [(one.path, one.rule) for one in found] == [("train.py", "host-name")]


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (CONTAINER, "import json, torch.nn.functional as F"),
        (CONTAINER, "from . import transformers"),
        (CONTAINER, "from .models import transformers"),
        (CONTAINER, "try:\n    import transformers\nexcept ImportError:\n    transformers = None"),
        (CONTAINER, "if os.environ.get('LOG'):\n    import wandb"),
        (CONTAINER, "subprocess.run([sys.executable, '-m', 'pip', 'install', 'transformers'])\nimport transformers"),
        (CONTAINER, "sys.path.append('/opt/ml/input/data/packages')\nimport packages"),
        (Job(entry_point="train.py"), "import transformers"),
        (Job(entry_point="other.py", modules=frozenset()), "import transformers"),
    ],
)
def test_what_is_in_the_container_or_may_be_found_elsewhere_is_not_reported(
    job: Job, text: str, tmp_path: Path
) -> None:
    assert found_in(tmp_path, text, job) == []
    ast.parse(text)  # a file that is none of Python is left out


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("import transformers", "transformers[torch]"),
        ("import tensorflow, transformers", "transformers"),
        ("import cv2", "opencv-python-headless"),
        ("import own_of_nobody", "what has it"),
    ],
)
def test_what_pip_installs_is_named_for_a_module_that_is_not_there(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(text)
    [found] = lint_folder(tmp_path, replace(CONTAINER, modules=frozenset(["tensorflow"])))
    assert f"is in the job's container: name {named} in a requirements.txt" in found.reason


def test_a_file_that_the_script_imports_must_find_its_modules_too_and_no_other_must(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for name in ("helpers.py", "unused.py", "package/__init__.py", "package/unused.py"):
        (tmp_path / name).write_text("import transformers\n")
    found = found_in(tmp_path, "import package\nimport helpers\nimport torch\n", CONTAINER)
    assert [(one.path, one.rule) for one in found] == [("helpers.py", "import"), ("package/__init__.py", "import")]


def test_the_page_has_a_row_for_each_rule_and_each_is_planted() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|", (TRAINING_CODE.parent / "docs" / "lint.md").read_text(), re.M)
    assert (
        sorted(rows)
        == sorted(RULES)
        == sorted(
            {
                *(rule for rule, *_ in PLANTED),
                *DISTRIBUTED,
                *REPLICAS,
                *RESUME,
                *SHARES,
                *WRAPPED,
                *SCALES,
                *HOSTS,
                *TRAINERS,
                *STRATEGIES,
            }
        )
    )


def test_the_command_prints_each_with_file_and_line_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP.format(before="", step="total += loss.item()"))
    command = CliRunner().invoke(app, ["lint", str(tmp_path), "--compiler", "inductor"])
    assert command.exit_code == 1
    assert command.output.startswith("train.py:17: loss.item() in each step makes the host wait for the device")
    assert command.output.rstrip().endswith("[item]")
    [found] = json.loads(CliRunner().invoke(app, ["lint", str(tmp_path / "train.py"), "--json"]).output)
    assert (found["path"], found["line"], found["rule"]) == ("train.py", 17, "item")


def test_the_command_ends_with_0_where_nothing_is_found(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trains')")
    command = CliRunner().invoke(app, ["lint", str(tmp_path)])
    assert (command.exit_code, command.output) == (0, "")


def test_the_command_takes_the_version_of_transformers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import transformers\n\ntransformers.TrainingArguments('x', no_cuda=True)\n")
    command = CliRunner().invoke(app, ["lint", str(tmp_path), "--package", "transformers==5.3.0"])
    assert command.output == (
        "train.py:3: TrainingArguments of transformers 5.3.0 takes no no_cuda, which versions 4.4 to 4.57 take, and now it is "
        "use_cpu: a TypeError [training-arguments]\n"
    )
    assert CliRunner().invoke(app, ["lint", str(tmp_path)]).output == ""


DOWNLOADS = (
    "AutoModel.from_pretrained('bert-base-uncased')",
    "AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-0.6B', dtype='auto')",
    "load_dataset('glue', 'mrpc')",
    "datasets.load_dataset('org/name', split='train')",
    "snapshot_download(repo_id=args.model)",
    "hf_hub_download('org/name', 'config.json')",
    "torch.hub.load('pytorch/vision', 'resnet18')",
    "datasets.MNIST('/tmp', download=True)",
    "torchvision.models.resnet18(pretrained=True)",
    "models.resnet18(weights='DEFAULT')",
    "models.resnet18(weights=ResNet18_Weights.DEFAULT)",
    "nltk.download('punkt')",
    "urllib.request.urlretrieve('https://example.com/data.zip', 'data.zip')",
    "requests.get('https://example.com/data.zip')",
)
DOES_NOT = (
    "AutoModel.from_pretrained('/opt/ml/input/data/model')",
    "AutoModel.from_pretrained('./model')",
    "AutoModel.from_pretrained(args.model)",
    "AutoModel.from_pretrained('org/name', local_files_only=True)",
    "load_dataset('json', data_files='train.json')",
    "load_dataset('/opt/ml/input/data/train')",
    "snapshot_download('org/name', local_files_only=True)",
    "torch.hub.load('/opt/ml/code/model', 'resnet18', source='local')",
    "datasets.MNIST('/tmp', download=False)",
    "models.resnet18(weights=None)",
    "models.resnet18()",
    "settings.get('batch')",
)


@pytest.mark.parametrize("call", DOWNLOADS + DOES_NOT)
def test_what_a_script_downloads_is_found_where_its_hosts_are_offline(tmp_path: Path, call: str) -> None:
    text = f"import torchvision\nfrom torchvision import models\n\nif __name__ == '__main__':\n    one = {call}\n"
    (tmp_path / "train.py").write_text(text)
    found = lint_folder(tmp_path, Job(offline=True))
    assert [(one.line, one.rule) for one in found] == [(5, "download")] * (call in DOWNLOADS)
    assert lint_folder(tmp_path, Job()) == []
    (tmp_path / "train.py").write_text(text.replace("__name__ == '__main__'", "args.download"))
    assert lint_folder(tmp_path, Job(offline=True)) == []
