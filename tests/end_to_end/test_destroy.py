"""What `cdk destroy` leaves of what `cdk deploy` made, for every example stack."""

from __future__ import annotations

from typing import Any

from deployed import ROOT, Deployed


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
