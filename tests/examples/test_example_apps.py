"""The apps of ``examples/``: each synthesizes, and deploys and runs in the local account."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template

from cdk_sagemaker_training.upgrades.assembly import Stack
from sagemaker_local_account.pytest_plugin import AccountUnderTest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())


def synthesized(name: str) -> cdk.Stack:
    """The example's stack."""
    stack: cdk.Stack = runpy.run_path(str(EXAMPLES / name / "app.py"))["stack"]
    return stack


@pytest.mark.parametrize("name", [name for name in NAMES if name != "accounts"])
def test_an_example_creates_a_job_in_the_bucket_of_its_stack(name: str) -> None:
    [jobs] = Stack(name, Template.from_stack(synthesized(name)).to_json()).requests().values()
    [request] = jobs.values()
    assert request["ResourceConfig.InstanceType"] == "ml.m5.xlarge"
    assert "/models/" in request["OutputDataConfig.S3OutputPath"]


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
        assert {"README.md", "app.py", "cdk.json", "src/train.py"} <= files
        assert f"[{name}]({name})" in (EXAMPLES / "README.md").read_text()


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccountUnderTest]:
    from sagemaker_local_account.account import LocalAccount

    with LocalAccount(state=tmp_path_factory.mktemp("account"), enforce_iam=True) as running:
        under_test = AccountUnderTest(running)
        under_test.cdk("bootstrap", "aws://123456789012/us-east-1")
        yield under_test


def deployed(account: AccountUnderTest, name: str, stack: str, tmp_path: Path) -> dict[str, str]:
    """The outputs of an example's stack, which is deployed as its user does."""
    command = f"{sys.executable} {EXAMPLES / name / 'app.py'}"
    account.cdk("deploy", "--app", command, "--output", str(tmp_path / "cdk.out"), "--require-approval", "never")
    [described] = account.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    return {one["OutputKey"]: one["OutputValue"] for one in described["Outputs"]}


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
    execution = account.run(outputs["StateMachineArn"])
    model = model_at(account, execution.output["ModelArtifacts"]["S3ModelArtifacts"])
    assert (round(model["slope"], 2), round(model["offset"], 2)) == (3, 2)


@pytest.mark.soak  # deploys, and runs three jobs
def test_the_sweep_names_the_best_learning_rate(account: AccountUnderTest, tmp_path: Path) -> None:
    outputs = deployed(account, "sweep", "Sweep", tmp_path)
    output = account.run(outputs["StateMachineArn"]).output
    assert (output["Completed"], output["Failed"]) == (3, 0)
    assert float(output["Best"]["learning_rate"]) == 0.3


@pytest.mark.soak  # deploys, and runs a job
def test_the_pipeline_registers_the_model_that_passed_the_gate(account: AccountUnderTest, tmp_path: Path) -> None:
    account.run(deployed(account, "pipeline", "Pipeline", tmp_path)["StateMachineArn"])
    packages = account.client("sagemaker").list_model_packages(ModelPackageGroupName="lines")["ModelPackageSummaryList"]
    assert [one["ModelPackageVersion"] for one in packages] == [1]


@pytest.mark.soak  # deploys, and runs a job
def test_a_state_machine_of_ones_own_passes_the_model_on(account: AccountUnderTest, tmp_path: Path) -> None:
    execution = account.run(deployed(account, "own-state-machine", "OwnStateMachine", tmp_path)["StateMachineArn"])
    assert execution.output["Name"] == execution.arn.rpartition(":")[2]
    assert round(model_at(account, execution.output["Model"])["slope"], 1) == 2
