"""Every example stack, from `cdk deploy` over its training to `cdk destroy`, and what that leaves of workflows whose jobs run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from demo import KINDS
from deployed import ROOT, Deployed, a_users_job, wait_until

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Prefix,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
)

FEW_STEPS = Path(__file__).parent / "app_of_few_steps.py"
# The first test of a fixture waits for all of its jobs, which a busy machine makes long.
pytestmark = pytest.mark.timeout(1_800)


class Running(cdk.Stack):
    """Workflows of these names, and whether they retain their jobs, which run until they are stopped.

    ``job_name_prefix`` is the first one's, by default that which it has without.
    """

    def __init__(
        self,
        folder: Path,
        workflows: dict[str, bool],
        *,
        isolated: bool = True,
        job_name_prefix: str | None = None,
        breaking_updates: Any = "refuse",
        output: str = "models/",
    ) -> None:
        app = cdk.App(outdir=str(folder))
        super().__init__(app, "Running")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY, auto_delete_objects=True)
        with a_users_job() as context:
            image = TrainingImage.from_asset(self, "Image", directory=context)
        network = TrainingNetwork(self, "Network", max_azs=1) if isolated else None
        for name, retain_jobs in workflows.items():
            prefix = {"job_name_prefix": job_name_prefix} if job_name_prefix and name == next(iter(workflows)) else {}
            workflow = TrainingWorkflow(
                self,
                name,
                job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
                image=image,
                output=S3Prefix(bucket, output),
                checkpoints=S3Prefix(bucket, f"checkpoints/{name}/"),
                hyperparameters={"do": "wait"},
                network=network,
                retain_jobs=retain_jobs,
                breaking_updates=breaking_updates,
                **prefix,
            )
            cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)


def running_job(deployed: Deployed, machine: str) -> str:
    """The name of a job that trains, of an execution that was just started."""
    job = deployed.the_job_of(deployed.start(machine), until="Training")
    return str(job["TrainingJobName"])


def status(deployed: Deployed, job: str) -> str:
    return str(deployed.client("sagemaker").describe_training_job(TrainingJobName=job)["TrainingJobStatus"])


def held(deployed: Deployed) -> dict[str, Any]:
    """What the account has of each kind that a stack may make.

    Not the files and images of the bootstrap's own bucket and repository, which `cdk destroy` leaves on AWS too, nor the log
    group of training jobs, which SageMaker makes.
    """
    client = deployed.client
    ec2, iam, cloudwatch, efs, fsx = client("ec2"), client("iam"), client("cloudwatch"), client("efs"), client("fsx")
    on_efs = efs.describe_file_systems()["FileSystems"]
    groups = client("logs").describe_log_groups()["logGroups"]
    return {
        "access points": efs.describe_access_points()["AccessPoints"],
        "acls": sorted(acl["NetworkAclId"] for acl in ec2.describe_network_acls()["NetworkAcls"]),
        "addresses": ec2.describe_addresses()["Addresses"],
        "alarms": cloudwatch.describe_alarms()["MetricAlarms"],
        "buckets": sorted(bucket["Name"] for bucket in client("s3").list_buckets()["Buckets"]),
        "endpoints": ec2.describe_vpc_endpoints()["VpcEndpoints"],
        "file systems": sorted(found["FileSystemId"] for found in on_efs + fsx.describe_file_systems()["FileSystems"]),
        "functions": client("lambda").list_functions()["Functions"],
        "gateways": sorted(
            found["InternetGatewayId"] for found in ec2.describe_internet_gateways()["InternetGateways"]
        ),
        "groups": sorted(group["GroupId"] for group in ec2.describe_security_groups()["SecurityGroups"]),
        "interfaces": ec2.describe_network_interfaces()["NetworkInterfaces"],
        "keys": client("kms").list_keys()["Keys"],
        "links": fsx.describe_data_repository_associations()["Associations"],
        "log groups": sorted({group["logGroupName"] for group in groups} - {"/aws/sagemaker/TrainingJobs"}),
        "machines": client("stepfunctions").list_state_machines()["stateMachines"],
        "mount targets": [
            target
            for found in on_efs
            for target in efs.describe_mount_targets(FileSystemId=found["FileSystemId"])["MountTargets"]
        ],
        "parameters": sorted(found["Name"] for found in client("ssm").describe_parameters()["Parameters"]),
        "policies": sorted(policy["Arn"] for policy in iam.list_policies(Scope="Local")["Policies"]),
        "projects": client("codebuild").list_projects()["projects"],
        "queues": client("sqs").list_queues().get("QueueUrls", []),
        "repositories": sorted(
            found["repositoryName"] for found in client("ecr").describe_repositories()["repositories"]
        ),
        "roles": sorted(role["RoleName"] for role in iam.list_roles()["Roles"]),
        "route tables": sorted(table["RouteTableId"] for table in ec2.describe_route_tables()["RouteTables"]),
        "rules": client("events").list_rules()["Rules"],
        "stacks": sorted(stack["StackName"] for stack in client("cloudformation").describe_stacks()["Stacks"]),
        "subnets": sorted(subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"]),
        "topics": client("sns").list_topics()["Topics"],
        "vpcs": sorted(vpc["VpcId"] for vpc in ec2.describe_vpcs()["Vpcs"]),
    }


@dataclass(frozen=True)
class Trained:
    """An execution of an example that has ended, its job, and what the job's hosts said."""

    execution: dict[str, Any]
    job: dict[str, Any]
    said: list[str]


@dataclass(frozen=True)
class Examples:
    """Example stacks, deployed, trained and destroyed: what the account held at each point, what was trained, and all calls."""

    before: dict[str, Any]
    deployed: dict[str, Any]
    after: dict[str, Any]
    trained: dict[str, Trained]
    calls: list[str]


def deployed_and_destroyed(deployed: Deployed, stacks: str, kinds: Sequence[str]) -> Examples:
    """Stacks of app.py by one command, and the jobs of these kinds side by side, which take fewer steps."""
    before, log = held(deployed), deployed.account.state / "account.log"
    earlier = len(log.read_text().splitlines())
    app = ("--app", f"env PYTHONPATH={ROOT} python3 {FEW_STEPS}")
    file, assembly = deployed.account.state / "outputs.json", str(deployed.account.state / f"examples-{stacks}")
    output = ("--outputs-file", str(file), "--output", assembly)
    deployed.cdk("deploy", stacks, "--require-approval", "never", *output, *app)
    with_stacks = held(deployed)
    outputs = {name: json.loads(file.read_text())[KINDS[name].stack] for name in kinds}
    bucket = deployed.client("s3")
    for name in kinds:
        bucket.put_object(Bucket=outputs[name]["BucketName"], Key=KINDS[name].key, Body=KINDS[name].data())
    started = {name: deployed.start(outputs[name]["StateMachineArn"]) for name in kinds}
    trained = {}
    for name, execution in started.items():
        ended = deployed.ended(execution)
        [job] = deployed.jobs_of(execution)
        trained[name] = Trained(ended, job, deployed.said(job["TrainingJobName"]))
        for entry in bucket.list_objects_v2(Bucket=outputs[name]["BucketName"])["Contents"]:
            bucket.delete_object(Bucket=outputs[name]["BucketName"], Key=entry["Key"])
    deployed.cdk("destroy", stacks, "--force", "--app", assembly)
    calls = log.read_text().splitlines()[earlier:]
    return Examples(before, with_stacks, held(deployed), trained, calls)


@pytest.fixture(scope="module")
def examples(deployed: Deployed) -> Examples:
    return deployed_and_destroyed(deployed, "*", ())


def looks_for_late_jobs(examples: Examples) -> int:
    lines = [line for line in examples.calls if " ListExecutions " in line]
    return sum("SageMakerTrainingJobsHandler" in line for line in lines)


def assert_trained(trained: Trained) -> None:
    assert trained.execution["status"] == "SUCCEEDED", trained.execution.get("cause")
    defined = {metric["Name"] for metric in trained.job["AlgorithmSpecification"]["MetricDefinitions"]}
    assert {metric["MetricName"] for metric in trained.job["FinalMetricDataList"]} == defined
    assert trained.said


@pytest.mark.soak  # test_deploying.py has a job of several hosts, test_compiled_train.py compiles
@pytest.mark.parametrize("kind", KINDS)
def test_an_example_stack_trains_with_exactly_what_it_grants(deployed: Deployed, kind: str) -> None:
    example = deployed_and_destroyed(deployed, KINDS[kind].stack, [kind])
    assert_trained(example.trained[kind])
    assert example.after == example.before
    assert looks_for_late_jobs(example) == 1


@pytest.mark.soak  # all examples are deployed
def test_after_cdk_destroy_of_every_example_the_account_holds_what_it_held_before(examples: Examples) -> None:
    assert examples.after == examples.before
    # A kind of which nothing came would prove nothing of its deletion: these are what the examples are made of.
    assert {kind for kind, found in examples.deployed.items() if found != examples.before[kind]} >= {
        "buckets", "groups", "machines", "roles", "route tables", "rules", "stacks", "subnets", "vpcs"
    }  # fmt: skip


@pytest.mark.soak  # all examples are deployed
def test_the_deletion_of_a_workflow_without_an_execution_waits_for_no_late_job(examples: Examples) -> None:
    assert looks_for_late_jobs(examples) == len(KINDS)  # once for each stack


@pytest.mark.soak  # deploys, updates and destroys a stack while jobs run; test_stopping.py has jobs that are stopped
def test_jobs_are_stopped_and_over_before_what_they_need_goes_unless_they_are_retained(
    deployed: Deployed, tmp_path: Path
) -> None:
    before = held(deployed)
    workflows = {"Training": False, "Retained": True}
    made = deployed.deploy(Running(tmp_path / "first", workflows, breaking_updates="stop"))
    first, retained = running_job(deployed, made["TrainingArn"]), running_job(deployed, made["RetainedArn"])
    made = deployed.deploy(Running(tmp_path / "renamed", {"Renamed": False, "Retained": True}))
    assert (status(deployed, first), status(deployed, retained)) == ("Stopped", "InProgress")

    second = running_job(deployed, made["RenamedArn"])
    [stack] = deployed.client("cloudformation").describe_stacks(StackName="Running")["Stacks"]
    deployed.cdk("destroy", "--app", str(tmp_path / "renamed"), "--all", "--force")
    assert (status(deployed, second), status(deployed, retained)) == ("Stopped", "InProgress")
    deployed.client("sagemaker").stop_training_job(TrainingJobName=retained)

    events = deployed.client("cloudformation").describe_stack_events(StackName=stack["StackId"])["StackEvents"]
    in_order = sorted((event for event in events if "DELETE" in event["ResourceStatus"]), key=lambda e: e["Timestamp"])
    names = [(event["LogicalResourceId"].rstrip("0123456789ABCDEF"), event["ResourceStatus"]) for event in in_order]
    last_of_first = names.index(("RenamedDeletion", "DELETE_COMPLETE"))
    assert names.index(("RenamedRole", "DELETE_IN_PROGRESS")) > last_of_first
    assert names.index(("Bucket", "DELETE_IN_PROGRESS")) > last_of_first
    assert held(deployed) == before


@pytest.mark.soak  # deploys 466 resources
def test_a_stack_of_seventy_five_workflows_stops_a_job_and_leaves_nothing(deployed: Deployed, tmp_path: Path) -> None:
    before = held(deployed)
    many = Running(tmp_path, {f"Workflow{number}": False for number in range(75)}, isolated=False)
    made = deployed.deploy(many)
    execution = deployed.start(made["Workflow74Arn"])
    job = str(deployed.the_job_of(execution, until="Training")["TrainingJobName"])
    deployed.client("stepfunctions").stop_execution(executionArn=execution)
    wait_until(lambda: status(deployed, job) == "Stopped")
    deployed.cdk("destroy", "--app", str(tmp_path), "--all", "--force")
    assert held(deployed) == before


@pytest.mark.soak  # deploys three times
def test_a_job_is_stopped_with_its_execution_though_its_workflow_has_another_prefix_now(
    deployed: Deployed, tmp_path: Path
) -> None:
    made = deployed.deploy(Running(tmp_path / "first", {"Training": False}))
    execution = deployed.start(made["TrainingArn"])
    job = str(deployed.the_job_of(execution, until="Training")["TrainingJobName"])
    renamed = Running(
        tmp_path / "second",
        {"Training": False, "Added": False},
        job_name_prefix="another",
        breaking_updates="allow",
    )
    made = deployed.deploy(renamed)
    assert status(deployed, job) == "InProgress"
    deployed.client("stepfunctions").stop_execution(executionArn=execution)
    wait_until(lambda: status(deployed, job) == "Stopped")
    deployed.cdk("destroy", "--app", str(tmp_path / "second"), "--all", "--force")


@pytest.mark.soak  # deploys four times
def test_an_update_that_would_lose_the_model_of_a_running_job_is_refused_before_it_changes_a_role_or_stops_the_job(
    deployed: Deployed, tmp_path: Path
) -> None:
    made = deployed.deploy(Running(tmp_path / "first", {"Training": False}))
    execution = deployed.start(made["TrainingArn"])
    job = str(deployed.the_job_of(execution, until="Training")["TrainingJobName"])

    def policies() -> list[Any]:
        iam = deployed.client("iam")
        names = [
            one["RoleName"] for one in iam.list_roles()["Roles"] if one["RoleName"].startswith("Running-TrainingRole")
        ]
        return [
            iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            for role in names
            for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
        ]

    granted = policies()
    with pytest.raises(AssertionError) as refused:
        deployed.deploy(Running(tmp_path / "narrower", {"Training": False}, output="results/"))
    said = " ".join(str(refused.value).replace("\\n", " ").split())
    assert "breaking_updates must be 'stop' or 'allow', or these executions must have ended" in said
    assert f"/models/* is needed by {execution}" in said
    assert (status(deployed, job), policies()) == ("InProgress", granted)

    deployed.deploy(Running(tmp_path / "wider", {"Training": False, "Added": False}))
    assert status(deployed, job) == "InProgress"
    deployed.deploy(Running(tmp_path / "stops", {"Training": False}, output="results/", breaking_updates="stop"))
    assert status(deployed, job) == "Stopped"
    assert deployed.ended(execution)["status"] == "ABORTED"
    assert policies() != granted
    deployed.cdk("destroy", "--app", str(tmp_path / "stops"), "--all", "--force")


@pytest.mark.soak  # deploys twice
def test_a_job_goes_on_in_the_update_that_retains_it_and_after_its_workflow(deployed: Deployed, tmp_path: Path) -> None:
    made = deployed.deploy(Running(tmp_path / "first", {"Training": False}))
    job = running_job(deployed, made["TrainingArn"])
    deployed.deploy(Running(tmp_path / "second", {"Training": True}))
    assert status(deployed, job) == "InProgress"
    deployed.cdk("destroy", "--app", str(tmp_path / "second"), "--all", "--force")
    assert status(deployed, job) == "InProgress"
    deployed.client("sagemaker").stop_training_job(TrainingJobName=job)
    # Failed where it comes to upload its model, since its role went with the stack.
    wait_until(lambda: status(deployed, job) in ("Stopped", "Failed"))
