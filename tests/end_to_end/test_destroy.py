"""What `cdk destroy` leaves of what `cdk deploy` made, for every example stack and for workflows whose jobs run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from deployed import ROOT, Deployed, a_users_job

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Prefix,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
)


class Running(cdk.Stack):
    """Workflows of these names, and whether they retain their jobs, which run until they are stopped."""

    def __init__(self, folder: Path, workflows: dict[str, bool]) -> None:
        app = cdk.App(outdir=str(folder))
        super().__init__(app, "Running")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY, auto_delete_objects=True)
        with a_users_job() as context:
            image = TrainingImage(self, "Image", directory=context, builder="docker")
        network = TrainingNetwork(self, "Network", max_azs=1)
        for name, retain_jobs in workflows.items():
            workflow = TrainingWorkflow(
                self,
                name,
                job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
                image=image,
                output=S3Prefix(bucket, "models/"),
                checkpoints=S3Prefix(bucket, f"checkpoints/{name}/"),
                hyperparameters={"do": "wait"},
                network=network,
                retain_jobs=retain_jobs,
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

    Not the files and images of the bootstrap's own bucket and repository, which `cdk destroy` leaves on AWS too.
    """
    client = deployed.client
    ec2, iam, cloudwatch, efs, fsx = client("ec2"), client("iam"), client("cloudwatch"), client("efs"), client("fsx")
    on_efs = efs.describe_file_systems()["FileSystems"]
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
        "log groups": sorted(group["logGroupName"] for group in client("logs").describe_log_groups()["logGroups"]),
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


def test_after_cdk_destroy_of_every_example_the_account_holds_what_it_held_before(deployed: Deployed) -> None:
    before = held(deployed)
    app = ("--app", f"python3 {ROOT / 'app.py'}")
    deployed.cdk("deploy", "--all", "--require-approval", "never", *app)
    with_stacks = held(deployed)
    deployed.cdk("destroy", "--all", "--force", *app)
    assert held(deployed) == before
    # A kind of which nothing came would prove nothing of its deletion: these are what the examples are made of.
    assert {kind for kind, found in with_stacks.items() if found != before[kind]} >= {
        "buckets", "groups", "machines", "roles", "route tables", "rules", "stacks", "subnets", "vpcs"
    }  # fmt: skip


def test_jobs_are_stopped_and_over_before_what_they_need_goes_unless_they_are_retained(
    deployed: Deployed, tmp_path: Path
) -> None:
    before = held(deployed)
    made = deployed.deploy(Running(tmp_path / "first", {"Training": False, "Retained": True}))
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
    left = held(deployed)
    # The jobs' own log group is SageMaker's.
    left["log groups"].remove("/aws/sagemaker/TrainingJobs")
    assert left == before
