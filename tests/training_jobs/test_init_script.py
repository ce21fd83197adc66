"""`training-jobs init script` and `init --from-script`: what a script's source says, and apps that synthesize."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from training_jobs.adopt.from_script import app_of, read_script
from training_jobs.cli.main import app as main_app
from training_jobs.client.workflows import Workflow
from training_jobs.prove.templates import read

ARGPARSE = """
import argparse
import os

import torch
import yaml
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader
import helpers

def main():
    import tqdm
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?")
    parser.add_argument("--epochs", "-e", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--no-cuda", action="store_false")
    parser.add_argument("--output-dir", default="out")
    parser.add_argument("--checkpoint_dir", required=True)
    parser.add_argument("--from-env", default=os.environ.get("A"))
    parser.add_argument("--empty", default="")
    parser.parse_args()

def later():
    import transformers

if os.environ.get("LOG"):
    import wandb

if __name__ == "__main__":
    main()
"""


# As multigpu_torchrun.py of pytorch/examples, `distributed/ddp-tutorial-series`.
POSITIONAL = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("total_epochs", type=int)
parser.add_argument("save_every", type=int)
parser.add_argument("--batch_size", default=32, type=int)
args = parser.parse_args()
"""
# As the scripts of its `super_resolution` and `dcgan`.
REQUIRED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--upscale_factor", type=int, required=True)
parser.add_argument("--rate", type=float, required=True)
parser.add_argument("--dataset", required=True, choices=["cifar10", "lsun"])
parser.add_argument("--dataroot", required=True, default="unused")
parser.add_argument("--seed", type=int, default=123)
args = parser.parse_args()
"""
# As the scripts of AWS's notebooks, of which a fifth end without a channel.
CHANNELS = """
import argparse
import os
parser = argparse.ArgumentParser()
parser.add_argument("--train", default=os.environ["SM_CHANNEL_TRAIN"])
parser.add_argument("--test", default=os.environ.get("SM_CHANNEL_TEST_DATA"))
parser.add_argument("--more", default=os.environ.get("SM_CHANNEL_MORE", "more"))
parser.add_argument("--finetune", type=bool, default=False)
parser.add_argument("--amp", type=bool, default=True)
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()
if "SM_CHANNEL_EXTRA" in os.environ:
    print(os.environ["SM_CHANNEL_EXTRA"])
"""


def script(folder: Path, text: str, **beside: str) -> Path:
    for name, content in beside.items():
        (folder / f"{name}.py").write_text(content)
    (folder / "train.py").write_text(text)
    return folder / "train.py"


def synthesized(folder: Path) -> dict[str, Any]:
    """The template of the app in a folder, in this process, whose kernel of the CDK has begun."""
    app = runpy.run_path(str(folder / "app.py"), run_name="__main__")["app"]
    return dict(app.synth().get_stack_by_name("MyTraining").template)


def init(*arguments: str) -> str:
    done = CliRunner().invoke(main_app, ["init", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def refused(*arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(main_app, ["init", *arguments])
    assert done.exit_code == 2
    return " ".join(done.output.replace("│", " ").split())


def test_options_of_argparse_have_their_defaults_and_those_that_name_folders_lead_to_sagemakers(tmp_path: Path) -> None:
    found = read_script(script(tmp_path, ARGPARSE, helpers="import psutil\nfrom . import other\n"))
    assert {one.name: one.default for one in found.options} == {
        "epochs": 3,
        "learning-rate": 1.0,
        "momentum": 0.9,
        "optimizer": "adam",
        "amp": False,
    }
    assert [one.name for one in found.options if one.is_flag] == ["amp"]
    assert found.folders == {"output-dir": "/opt/ml/model", "checkpoint_dir": "/opt/ml/checkpoints"}
    assert (found.form, found.framework, found.keeps_model) == ("--key value", "pytorch", True)


def test_each_execution_gives_the_options_that_the_script_requires(tmp_path: Path) -> None:
    app = tmp_path / "app"
    init("--from-script", str(script(tmp_path, REQUIRED)), str(app))
    fields = (app / "app.py").read_text().partition("OPTIONS = {")[2].partition("}")[0]
    assert [line.strip() for line in fields.strip().splitlines()] == [
        '"upscale_factor": NumberField(whole=True),',
        '"rate": NumberField(),',
        '"dataset": ChoiceField(["cifar10", "lsun"]),',
        '"dataroot": TextField(),',
        '"seed": NumberField(default=123, whole=True),',
    ]
    example = " ".join(f"--set {name}=..." for name in ("upscale_factor", "rate", "dataset", "dataroot"))
    assert f"training-jobs start --follow {example}" in (app / "README.md").read_text()


def test_what_always_is_imported_and_not_in_awss_container_is_required(tmp_path: Path) -> None:
    found = read_script(script(tmp_path, ARGPARSE, helpers="import psutil\n"))
    assert found.requirements == ("pillow", "psutil", "pyyaml", "scikit-learn", "tqdm")


@pytest.mark.soak
def test_a_requirements_txt_that_is_there_is_kept(tmp_path: Path) -> None:
    path = script(tmp_path, "import lightning\n")
    (tmp_path / "requirements.txt").write_text("lightning==2.5\n")
    init("--from-script", str(path), str(tmp_path / "app"))
    assert (tmp_path / "requirements.txt").read_text() == "lightning==2.5\n"


@pytest.mark.parametrize(
    ("text", "form", "options"),
    [
        (
            "rate = 1e-3\ncompile = True\nexec(open('configurator.py').read())\nlater = 1",
            "--key=value",
            ["rate", "compile"],
        ),
        ("import hydra\n@hydra.main()\ndef main(cfg): ...", "key=value", []),
        (
            "import click\n@click.command()\n@click.option('--lr', default=0.1)\ndef main(lr): ...",
            "--key value",
            ["lr"],
        ),
        ("from transformers import HfArgumentParser", "--key value", ["num_train_epochs"]),
        ("from trl import TrlParser", "--key value", ["num_train_epochs", "bf16"]),
        ("print('nothing')", "--key value", []),
    ],
    ids=["nanoGPT's configurator", "Hydra", "click", "HfArgumentParser", "TrlParser", "none"],
)
def test_the_form_of_arguments_is_that_of_the_scripts_parser(
    tmp_path: Path, text: str, form: str, options: list[str]
) -> None:
    found = read_script(script(tmp_path, text))
    assert (found.form, [one.name for one in found.options]) == (form, options)


DATACLASSES = """
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Optional
from transformers import HfArgumentParser, TrainingArguments

@dataclass
class Data:
    path: str
    strict: bool
    rate: float = 1
    shuffle: bool = True
    stream: bool = False
    mode: Literal["fast", "slow"] = "fast"
    kind: Literal["new", "old"] = field(metadata={"help": "which"})
    length: Optional[int] = None
    names: list[str] = field(default_factory=list)
    seen: ClassVar[int] = 0
    checkpoint_dir: str = "checkpoints"

parser = HfArgumentParser(CLASSES)
"""


def test_the_fields_of_dataclasses_are_options(tmp_path: Path) -> None:
    found = read_script(script(tmp_path, DATACLASSES.replace("CLASSES", "(Data, TrainingArguments)")))
    assert [(one.name, one.default, one.choices, one.required) for one in found.options] == [
        ("num_train_epochs", 1.0, (), False),
        ("path", None, (), True),
        ("strict", False, (), False),
        ("rate", 1.0, (), False),
        ("shuffle", True, (), False),
        ("stream", False, (), False),
        ("mode", "fast", ("fast", "slow"), False),
        ("kind", None, ("new", "old"), True),
    ]
    assert found.folders == {"checkpoint_dir": "/opt/ml/checkpoints", "output_dir": "/opt/ml/model"}


@pytest.mark.parametrize(
    ("classes", "takes"), [("Data", False), ("[Data]", False), ("(Data, Others)", True), ("CLASSES_OF_ALL", True)]
)
def test_training_arguments_are_given_to_a_parser_that_may_take_them(tmp_path: Path, classes: str, takes: bool) -> None:
    found = read_script(script(tmp_path, DATACLASSES.replace("CLASSES", classes)))
    assert ("output_dir" in found.folders) is takes
    assert ("num_train_epochs" in [one.name for one in found.options]) is takes


def test_a_default_may_be_a_product_of_numbers(tmp_path: Path) -> None:
    text = "steps = 5 * 8\nrate = 6e-4 - 1e-4\nname = 'a' * 3\nsize = steps * 2\nexec(open('configurator.py').read())"
    found = {one.name: one.default for one in read_script(script(tmp_path, text)).options}
    assert found == {"steps": 40, "rate": pytest.approx(5e-4)}


def test_a_script_with_keras_runs_in_tensorflows_container_and_with_torch_in_pytorchs(tmp_path: Path) -> None:
    assert read_script(script(tmp_path, "import keras\n")).framework == "tensorflow"
    assert read_script(script(tmp_path, "import keras, torch\n")).framework == "pytorch"


def test_the_app_of_a_script_synthesizes_with_its_options_as_input(tmp_path: Path) -> None:
    path = script(tmp_path, ARGPARSE, helpers="")
    init("--from-script", str(path), str(tmp_path / "app"))
    template = synthesized(tmp_path / "app")
    text = json.dumps(template)
    for expected in ("script_arguments.py", "$.learning_rate", "/opt/ml/checkpoints", "output-dir"):
        assert expected in text, expected


@pytest.fixture(scope="module")
def workflow(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """The workflow of an app of a script, as the client sees it: its definition alone."""
    folder = tmp_path_factory.mktemp("script")
    init("--from-script", str(script(folder, ARGPARSE, helpers="")), str(folder / "app"))
    account: Any = None  # of which nothing is asked
    found = Workflow(account, "arn:aws:states:us-east-1:123456789012:stateMachine:none", path="MyTraining/Training")
    machines = read(synthesized(folder / "app")).machines
    [found._definition] = [one for name, one in machines.items() if name.startswith("TrainingStateMachine")]
    return found


@pytest.mark.soak
def test_an_execution_starts_without_what_has_a_default(workflow: Workflow) -> None:
    assert workflow.prepare({})[1] == {}
    [request] = workflow.planned_requests({"epochs": 9})
    assert {name: request["HyperParameters"][name] for name in ("epochs", "momentum", "optimizer")} == {
        "epochs": "9",
        "momentum": "0.9",
        "optimizer": "adam",
    }


def test_what_is_declared_as_text_is_sent_as_text_and_a_number_as_a_number(workflow: Workflow) -> None:
    given = {"learning_rate": 2.0, "amp": True, "epochs": 2, "momentum": 0.5}
    assert workflow.prepare(given)[1] == {"learning_rate": "2.0", "amp": "true", "epochs": 2, "momentum": 0.5}


def test_a_number_without_a_fraction_stays_one_with_a_point(tmp_path: Path) -> None:
    text = app_of(read_script(script(tmp_path, ARGPARSE, helpers="")), tmp_path)
    assert '"learning-rate": TextField(default="1.0")' in text
    assert '"epochs": NumberField(default=3, whole=True)' in text


def test_a_script_that_writes_no_model_is_not_failed_for_that(tmp_path: Path) -> None:
    assert 'missing_model="ignore"' in app_of(read_script(script(tmp_path, "print(1)\n")), tmp_path)
    kept = script(tmp_path, "import os\nprint(os.environ['SM_MODEL_DIR'])\n")
    assert "missing_model" not in app_of(read_script(kept), tmp_path)


def test_an_app_has_the_channels_without_which_its_script_ends_and_says_where_their_data_go(tmp_path: Path) -> None:
    init("--from-script", str(script(tmp_path, CHANNELS)), str(tmp_path / "app"))
    text = json.dumps(synthesized(tmp_path / "app"))
    assert [name for name in ("train", "test_data", "more", "extra") if f"data/{name}/" in text] == [
        "train",
        "test_data",
    ]
    readme = (tmp_path / "app" / "README.md").read_text()
    assert "aws s3 cp --recursive DATA s3://BUCKET/data/test_data/" in readme
    assert readme.index("local up") < readme.index("s3://BUCKET/data/train/") < readme.index("training-jobs start")


def test_an_option_that_takes_each_text_for_true_is_no_input_of_an_execution(tmp_path: Path) -> None:
    """Python's argparse, "type": "The bool() function is not recommended as a type converter"."""
    text = app_of(read_script(script(tmp_path, CHANNELS)), tmp_path)
    assert "# Without finetune, amp: type=bool takes each text, and False too, for True." in text
    assert '"epochs": NumberField(default=1, whole=True)' in text
    assert '"finetune"' not in text
    required = app_of(read_script(script(tmp_path, CHANNELS.replace("default=True", "required=True"))), tmp_path)
    assert '"amp": ChoiceField(["True"])' in required
    assert "# Without finetune: type=bool" in required


def test_the_first_script_and_its_app_synthesize(tmp_path: Path) -> None:
    output = init("script", str(tmp_path / "my"))
    assert [Path(line).name for line in output.splitlines() if line.startswith(str(tmp_path))] == [
        ".gitignore",
        "README.md",
        "app.py",
        "cdk.json",
        "spirals.csv",
        "train.py",
    ]
    text = json.dumps(synthesized(tmp_path / "my"))
    assert "$.epochs" in text
    assert "training-jobs start --follow --set epochs=200" in (tmp_path / "my" / "README.md").read_text()


def test_the_first_script_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    init("script", str(tmp_path / "my"))
    monkeypatch.setenv("SM_MODEL_DIR", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["train.py", "--epochs", "100"])
    runpy.run_path(str(tmp_path / "my" / "src" / "train.py"), run_name="__main__")
    last = capsys.readouterr().out.splitlines()[-1]
    assert float(last.rpartition(" ")[2]) > 0.9, last
    assert (tmp_path / "model.pt").is_file()


def test_a_folder_with_an_app_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("mine")
    path = script(tmp_path, "import lightning\n")
    for arguments in (["script", str(tmp_path)], ["--from-script", str(path), str(tmp_path)]):
        assert "directory must have no app.py" in refused(*arguments)
    assert sorted(os.listdir(tmp_path)) == ["app.py", "train.py"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("train.txt", "", "the script must be a file of Python, like 'nanoGPT/train.py'"),
        ("nothing.py", None, "the script must be a file of Python"),
        ("torn.py", "def (", "the script must be Python"),
        (
            "train.py",
            POSITIONAL,
            "the script must take options alone, since hyperparameters are passed as options, like "
            "parser.add_argument('--total_epochs'), got the positional 'total_epochs' and 'save_every'",
        ),
    ],
)
def test_what_is_no_script_is_refused(tmp_path: Path, name: str, text: str | None, reason: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    assert reason in refused("--from-script", str(tmp_path / name), str(tmp_path / "app"))
    assert not (tmp_path / "app").exists()


def test_two_sources_are_refused(tmp_path: Path) -> None:
    assert "take a DIRECTORY only" in refused("--from-script", "a.py", "--from-job", "b", str(tmp_path))
