"""The example stacks of app.py: what each synthesis has to hold."""

import filecmp
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rendered import OF_CDKS_WAY, create_requests, definitions, lint, linted

from sagemaker_local_account.aws.registry import RESOURCE_TYPES as TYPES

ROOT = Path(__file__).parents[2]
STACKS = ["HeterogeneousTraining", "CompiledTraining", "ModelParallelTraining"]
RECOMMENDED = json.loads((ROOT / "cdk.json").read_text())["context"]


def synthesize(
    out: Path,
    *,
    app: Path = ROOT / "app.py",
    cwd: Path = ROOT,
    context: dict[str, Any] | None = None,
    **environment: str,
) -> Path:
    """Run an app as the CDK CLI runs it, from any folder; returns the cloud assembly."""
    done = subprocess.run(
        [sys.executable, str(app)],
        cwd=cwd,
        env={
            **os.environ,
            "CDK_OUTDIR": str(out),
            "CDK_CONTEXT_JSON": json.dumps(RECOMMENDED if context is None else context),
            **environment,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesize(tmp_path_factory.mktemp("assembly"))


def template(assembly: Path, stack: str) -> dict[str, Any]:
    return dict(json.loads((assembly / f"{stack}.template.json").read_text()))


@pytest.mark.parametrize("stack", STACKS)
def test_the_state_machines_pass_the_check_of_amazon_states_language(assembly: Path, stack: str) -> None:
    machines = definitions(template(assembly, stack))
    assert machines
    assert lint(machines) == []


@pytest.mark.parametrize("state", [{"Type": "Passing", "End": True}, {"Type": "Pass", "Next": "B"}])
def test_the_check_of_amazon_states_language_finds_what_is_wrong(state: dict[str, Any]) -> None:
    assert lint({"Broken": {"StartAt": "A", "States": {"A": state}}})


@pytest.mark.parametrize("stack", STACKS)
def test_no_managed_policy_is_attached(assembly: Path, stack: str) -> None:
    resources = template(assembly, stack)["Resources"].items()
    managed = [name for name, one in resources if "ManagedPolicyArns" in one.get("Properties", {})]
    # That of CDK's own function, which empties the bucket of logs before it goes.
    assert [name for name in managed if not name.startswith("CustomS3AutoDeleteObjects")] == []


@pytest.mark.parametrize("stack", STACKS)
def test_what_may_be_done_to_every_resource_is_what_has_none_of_its_own(assembly: Path, stack: str) -> None:
    resources = template(assembly, stack)["Resources"].values()
    statements = [
        statement
        for policy in resources
        if policy["Type"] == "AWS::IAM::Policy"
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    everywhere = {
        action
        for statement in statements
        if statement["Resource"] == "*"
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert everywhere <= {
        "cloudwatch:PutMetricData",
        "ec2:DescribeDhcpOptions",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
        "ec2:DescribeVpcs",
        "ecr:GetAuthorizationToken",
        "logs:CreateLogDelivery",
        "logs:DeleteLogDelivery",
        "logs:DescribeLogGroups",
        "logs:DescribeResourcePolicies",
        "logs:GetLogDelivery",
        "logs:ListLogDeliveries",
        "logs:PutResourcePolicy",
        "logs:UpdateLogDelivery",
        "sagemaker:ListTrainingJobs",
    }


def findings(assembly: Path) -> list[dict[str, Any]]:
    """What CDK's template validator found. Without its feature flag that fails no synthesis, so the report is what counts."""
    report = json.loads((assembly / "validation-report.json").read_text())
    return [violation for plugin in report["pluginReports"] for violation in plugin["violations"]]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same app, synthesized from another folder."""
    return synthesize(tmp_path_factory.mktemp("assembly") / "out", cwd=tmp_path_factory.mktemp("elsewhere"))


@pytest.mark.soak  # the validator takes seconds; cfn-lint, below, has the schemas that it has
def test_cdks_own_validator_finds_nothing_in_the_app(tmp_path: Path) -> None:
    assert findings(synthesize(tmp_path, CDK_VALIDATION="true")) == []


@pytest.mark.soak  # the validator takes seconds
def test_cdks_own_validator_finds_a_type_that_there_is_not(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        "import aws_cdk as cdk\n"
        "app = cdk.App()\n"
        "cdk.CfnResource(cdk.Stack(app, 'Stack'), 'Job', type='AWS::SageMaker::TrainingJob')\n"
        "app.synth()\n"
    )
    synthesize(tmp_path / "out", app=program, context={}, CDK_VALIDATION="true")
    assert [finding["ruleName"] for finding in findings(tmp_path / "out")] == ["F3006"]


@pytest.mark.parametrize("stack", STACKS)
def test_cfn_lint_finds_nothing_but_what_is_cdks_way(assembly: Path, stack: str) -> None:
    assert linted((assembly / f"{stack}.template.json").read_text()) <= OF_CDKS_WAY.keys()


def test_cfn_lint_finds_a_property_that_there_is_not() -> None:
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"Encryption": "yes"}}
    assert "E3002" in linted(json.dumps({"Resources": {"Bucket": bucket}}))


def test_two_syntheses_in_different_folders_are_identical_byte_for_byte(assembly: Path, elsewhere: Path) -> None:
    assert files(elsewhere) == files(assembly)
    assert filecmp.cmpfiles(assembly, elsewhere, files(assembly), shallow=False)[1:] == ([], [])


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def without_flags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesize(tmp_path_factory.mktemp("without-flags"), context={})


@pytest.mark.soak  # synthesizes the app once more
@pytest.mark.parametrize("stack", STACKS)
def test_the_training_request_is_the_same_without_any_feature_flag(
    assembly: Path, without_flags: Path, stack: str
) -> None:
    requests = create_requests(template(assembly, stack))
    assert requests
    assert create_requests(template(without_flags, stack)) == requests


@pytest.mark.parametrize("stack", STACKS)
def test_the_local_account_vouches_for_every_resource_and_property_of_an_example(assembly: Path, stack: str) -> None:
    resources = template(assembly, stack)["Resources"].values()
    types = {resource["Type"] for resource in resources}
    # Whose function the account runs.
    assert types <= TYPES.keys() | {"Custom::SageMakerTrainingJobs", "Custom::SageMakerTrainingUpdates"}
    known = [it for it in resources if it["Type"] in TYPES]
    assert [name for it in known for name in TYPES[it["Type"]].unsupported(it.get("Properties", {}))] == []


def test_every_type_that_the_local_account_vouches_for_is_in_its_list() -> None:
    page = (ROOT / "docs" / "resource-types.md").read_text()
    assert [name for name in TYPES if f"| `{name}` |" not in page] == []


def test_the_app_has_no_stack_beside_these(assembly: Path) -> None:
    found = {file.name.removesuffix(".template.json") for file in assembly.glob("*.template.json")}
    assert found == set(STACKS)


@pytest.mark.soak  # the validator takes seconds
def test_cdks_own_validator_finds_nothing_in_a_network_with_encrypted_traffic_a_file_system_and_endpoints(
    tmp_path: Path,
) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        "import aws_cdk as cdk\n"
        "from aws_cdk import aws_s3 as s3\n"
        "from cdk_sagemaker_training import LustreFileSystem, S3Prefix, TrainingNetwork\n"
        "app = cdk.App()\n"
        "stack = cdk.Stack(app, 'Stack')\n"
        "network = TrainingNetwork(stack, 'Network', max_azs=1, endpoints=['sts'])\n"
        "network.allow_encrypted_traffic()\n"
        "data = S3Prefix(s3.Bucket.from_bucket_name(stack, 'Data', 'data'))\n"
        "LustreFileSystem(stack, 'Files', network=network, data=data)\n"
        "app.synth()\n"
    )
    assert findings(synthesize(tmp_path / "out", app=program, context={}, CDK_VALIDATION="true")) == []
