"""The apps of ``examples/``: each synthesizes, and deploys and runs in the local account.

EXAMPLE_PICTURES=1 pytest -m soak tests/examples/test_example_apps.py writes each example's ``output.svg``.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template
from rendered import create_requests

from sagemaker_local_account.pytest_plugin import AccountUnderTest, Execution

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())
# The machines of the job of each example, by group; "" where there are no groups.
MACHINES = {
    "compiled": {"": "ml.g5.xlarge"},
    "digits": {"data_group": "ml.c5.xlarge", "dnn_group": "ml.g5.xlarge"},
    "huggingface-trainer": {"": "ml.g5.xlarge"},
    "images": {"data_group": "ml.c5.xlarge", "dnn_group": "ml.g5.xlarge"},
    "llama": {"": "ml.g7e.12xlarge"},
    "own-script": {"": "ml.m5.xlarge"},
    "own-state-machine": {"": "ml.m5.xlarge"},
    "pipeline": {"": "ml.m5.xlarge"},
    "resnet-tensorflow": {"data_group": "ml.c5.18xlarge", "dnn_group": "ml.p4d.24xlarge"},
    "sweep": {"": "ml.m5.xlarge"},
    "tensorflow": {"": "ml.m5.xlarge"},
}


def synthesized(name: str) -> cdk.Stack:
    """The example's stack."""
    stack: cdk.Stack = runpy.run_path(str(EXAMPLES / name / "app.py"))["stack"]
    return stack


@pytest.mark.parametrize("name", [name for name in NAMES if name != "accounts"])
def test_an_example_creates_a_job_in_the_bucket_of_its_stack(name: str) -> None:
    [request] = create_requests(Template.from_stack(synthesized(name)).to_json()).values()
    machines = request["ResourceConfig"]
    groups = machines.get("InstanceGroups") or [machines]
    assert {group.get("InstanceGroupName", ""): group["InstanceType"] for group in groups} == MACHINES[name]
    assert "/models/" in request["OutputDataConfig"]["S3OutputPath"]


def test_the_accounts_example_deploys_each_stage_to_its_own_account_and_region() -> None:
    delivery = synthesized("accounts")
    stages = [one for one in delivery.node.root.node.children if isinstance(one, cdk.Stage)]
    assert {(one.node.id, one.account, one.region) for one in stages} == {
        ("Development", "222222222222", "us-east-1"),
        ("Production", "333333333333", "eu-west-1"),
    }
    [pipeline] = Template.from_stack(delivery).find_resources("AWS::CodePipeline::Pipeline").values()
    assert [one["Name"] for one in pipeline["Properties"]["Stages"]][-2:] == ["Development", "Production"]
    assert "Approve" in [one["Name"] for one in pipeline["Properties"]["Stages"][-1]["Actions"]]


def test_each_example_has_the_files_of_an_app_and_a_line_in_the_list() -> None:
    for name in NAMES:
        files = {str(file.relative_to(EXAMPLES / name)) for file in (EXAMPLES / name).rglob("*") if file.is_file()}
        assert {"README.md", "app.py", "cdk.json"} <= files
        # A script of its own, or the library's.
        assert ("src/train.py" in files) != ("training_code_path()" in (EXAMPLES / name / "app.py").read_text())
        # What it prints; CDK Pipelines needs AWS.
        pictured = name != "accounts"
        assert ("![" in (EXAMPLES / name / "README.md").read_text()) == ("output.svg" in files) == pictured
        assert f"[{name}]({name})" in (EXAMPLES / "README.md").read_text()


def test_the_picture_of_a_workflows_states_is_that_of_the_digits_example(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = EXAMPLES.parent / "docs"
    monkeypatch.syspath_prepend(docs)
    drawing = runpy.run_path(str(docs / "draw_concepts.py"))["states"]()
    assert drawing == (docs / "concepts-states.svg").read_text(), "run `make docs`"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccountUnderTest]:
    from sagemaker_local_account.account import LocalAccount

    with LocalAccount(state=tmp_path_factory.mktemp("account")) as running:
        under_test = AccountUnderTest(running)
        under_test.cdk("bootstrap", "aws://123456789012/us-east-1")
        yield under_test


def deployed(account: AccountUnderTest, name: str, stack: str, tmp_path: Path, *options: str) -> dict[str, str]:
    """The outputs of an example's stack, which is deployed as its user does."""
    command = f"{sys.executable} {EXAMPLES / name / 'app.py'}"
    output = ("--output", str(tmp_path / "cdk.out"), "--require-approval", "never")
    account.cdk("deploy", "--app", command, *output, *options)
    [described] = account.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    return {one["OutputKey"]: one["OutputValue"] for one in described["Outputs"]}


def drawn(account: AccountUnderTest, name: str, target: str) -> None:
    """Write the last picture of `training-jobs watch`, where that is wanted, as the example's ``output.svg``."""
    if os.environ.get("EXAMPLE_PICTURES"):
        picture = EXAMPLES / name / "output.svg"
        command = ["training-jobs", "watch", target, "--svg", str(picture)]
        subprocess.run(command, env=account.account.environment(), check=True)
        # Without the day, and the folder that the repository is in; SVG's text has a width, so that lengths stay.
        folder = str(EXAMPLES.parent)
        text = picture.read_text().replace(folder, ("/home/me" + "/project" * len(folder))[: len(folder)])
        picture.write_text(re.sub(r"\[W\d{4}", "[W0101", re.sub(r"\d{4}-\d\d-\d\d", "2026-01-01", text)))


def trained(account: AccountUnderTest, name: str, outputs: dict[str, str]) -> tuple[Execution, str]:
    """A successful execution of an example, and what its job printed."""
    execution = account.run(outputs["StateMachineArn"])
    drawn(account, name, execution.arn)
    [job] = execution.jobs
    return execution, "\n".join(account.log_lines(job["TrainingJobName"]))


def newest_job(account: AccountUnderTest) -> str:
    """The name of the last job, which may be of an execution that another started."""
    newest = account.client("sagemaker").list_training_jobs(SortBy="CreationTime", SortOrder="Descending", MaxResults=1)
    return str(newest["TrainingJobSummaries"][0]["TrainingJobName"])


def uploaded(account: AccountUnderTest, folder: Path, bucket: str, prefix: str) -> None:
    command = ["aws", "s3", "cp", "--quiet", "--recursive", str(folder), f"s3://{bucket}/{prefix}/"]
    subprocess.run(command, env=account.account.environment(), check=True)


def metric(name: str, printed: str) -> list[float]:
    return [float(value) for value in re.findall(rf"\b{name} ([\d.]+)", printed)]


def model_at(account: AccountUnderTest, uri: str) -> dict[str, Any]:
    """What a job's ``model.json`` says."""
    import io
    import tarfile

    bucket, _, key = uri.removeprefix("s3://").partition("/")
    body = account.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        file = archive.extractfile("model.json")
        assert file is not None
        return dict(json.load(file))


@pytest.mark.soak  # deploys, and runs a job
def test_a_script_of_the_sdk_trains_on_what_is_in_the_bucket(account: AccountUnderTest, tmp_path: Path) -> None:
    outputs = deployed(account, "own-script", "OwnScript", tmp_path)
    points = "".join(f"{x},{3 * x + 2}\n" for x in (-1, -0.5, 0, 0.5, 1))
    account.client("s3").put_object(Bucket=outputs["BucketName"], Key="data/points.csv", Body=points.encode())
    execution, _ = trained(account, "own-script", outputs)
    model = model_at(account, execution.output["ModelArtifacts"]["S3ModelArtifacts"])
    assert (round(model["slope"], 2), round(model["offset"], 2)) == (3, 2)


@pytest.mark.soak  # deploys, and runs three jobs
def test_the_sweep_names_the_best_learning_rate(account: AccountUnderTest, tmp_path: Path) -> None:
    outputs = deployed(account, "sweep", "Sweep", tmp_path)
    execution = account.run(outputs["StateMachineArn"])
    output = execution.output
    drawn(account, "sweep", newest_job(account))
    assert (output["Completed"], output["Failed"]) == (3, 0)
    assert float(output["Best"]["learning_rate"]) == 0.3


@pytest.mark.soak  # deploys, and runs a job
def test_the_pipeline_registers_the_model_that_passed_the_gate(account: AccountUnderTest, tmp_path: Path) -> None:
    account.run(deployed(account, "pipeline", "Pipeline", tmp_path)["StateMachineArn"])
    drawn(account, "pipeline", newest_job(account))
    packages = account.client("sagemaker").list_model_packages(ModelPackageGroupName="lines")["ModelPackageSummaryList"]
    assert [one["ModelPackageVersion"] for one in packages] == [1]


@pytest.mark.soak  # deploys, and runs a job
def test_a_state_machine_of_ones_own_passes_the_model_on(account: AccountUnderTest, tmp_path: Path) -> None:
    execution = account.run(deployed(account, "own-state-machine", "OwnStateMachine", tmp_path)["StateMachineArn"])
    drawn(account, "own-state-machine", newest_job(account))
    assert execution.output["Name"] == execution.arn.rpartition(":")[2]
    assert round(model_at(account, execution.output["Model"])["slope"], 1) == 2


@pytest.mark.soak  # deploys, and runs a job of three hosts
def test_the_digits_are_told_apart(account: AccountUnderTest, tmp_path: Path) -> None:
    _, printed = trained(account, "digits", deployed(account, "digits", "Digits", tmp_path))
    assert metric("accuracy", printed)[-1] > 0.9


@pytest.mark.soak  # deploys, and runs a job of two hosts
def test_the_images_of_three_tints_are_told_apart(account: AccountUnderTest, tmp_path: Path) -> None:
    outputs = deployed(account, "images", "Images", tmp_path)
    subprocess.run([sys.executable, str(EXAMPLES / "images" / "make_data.py"), str(tmp_path / "data")], check=True)
    uploaded(account, tmp_path / "data", outputs["BucketName"], "images")
    _, printed = trained(account, "images", outputs)
    assert metric("accuracy", printed)[-1] > 0.6  # chance: 0.33


@pytest.mark.soak  # deploys, and runs a job of two ranks
def test_the_llamas_loss_falls(account: AccountUnderTest, tmp_path: Path) -> None:
    outputs = deployed(account, "llama", "Llama", tmp_path)
    subprocess.run([sys.executable, str(EXAMPLES / "llama" / "make_tokens.py")], cwd=tmp_path, check=True)
    uploaded(account, tmp_path / "tokens", outputs["BucketName"], "tokens")
    uploaded(account, EXAMPLES / "llama" / "model", outputs["BucketName"], "model")
    _, printed = trained(account, "llama", outputs)
    losses = metric("loss", printed)
    assert losses[-1] < losses[0] < 6  # log 256 is 5.5


@pytest.mark.soak  # deploys, and runs a job that compiles
@pytest.mark.timeout(900)
def test_the_compiled_step_trains(account: AccountUnderTest, tmp_path: Path) -> None:
    _, printed = trained(account, "compiled", deployed(account, "compiled", "Compiled", tmp_path))
    losses = metric("loss", printed)
    assert losses[-1] < losses[0]
    assert metric("compile time", printed)[0] > 0


@pytest.mark.soak  # deploys, installs another PyTorch, and runs a job that compiles
@pytest.mark.timeout(1800)
def test_hugging_faces_trainer_compiles_once(account: AccountUnderTest, tmp_path: Path) -> None:
    outputs = deployed(account, "huggingface-trainer", "HuggingFaceTrainer", tmp_path)
    _, printed = trained(account, "huggingface-trainer", outputs)
    losses = metric("loss", printed)
    assert losses[-1] < losses[0]
    assert metric("compile time", printed)[0] > 0


@pytest.mark.soak  # deploys, and runs a job of three hosts that import TensorFlow
@pytest.mark.timeout(1800)
def test_resnet_trains_on_what_tf_data_service_prepares(account: AccountUnderTest, tmp_path: Path) -> None:
    """In one process: there is neither Horovod nor mpirun here."""
    outputs = deployed(account, "resnet-tensorflow", "ResnetTensorFlow", tmp_path, "--context", "horovod=false")
    _, printed = trained(account, "resnet-tensorflow", outputs)
    assert printed.count("of data_group runs tf.data service") == 2
    assert "rank 0 of 1 on" in printed
    assert len(metric("step_ms", printed)) == 2
    assert metric("loss", printed)[-1] < 10  # log 10 is 2.3


@pytest.mark.soak  # deploys, and runs a job of two hosts that import TensorFlow
@pytest.mark.timeout(900)
def test_tensorflow_trains_one_model_on_two_machines(account: AccountUnderTest, tmp_path: Path) -> None:
    _, printed = trained(account, "tensorflow", deployed(account, "tensorflow", "TensorFlow", tmp_path))
    losses = metric("loss", printed)
    assert len(losses) == 20
    assert losses[-1] < losses[0]
