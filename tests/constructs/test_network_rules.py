"""What a network lets through, in VPCs new and imported: EFA, encrypted traffic, endpoints, zones and addresses."""

from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Match, Template

from cdk_sagemaker_training import TrainingNetwork


def imported_vpc(stack: cdk.Stack, **attributes: Any) -> ec2.IVpc:
    return ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-1",
        **{
            "availability_zones": ["us-east-1a", "us-east-1b"],
            "private_subnet_ids": ["subnet-a", "subnet-b"],
            "private_subnet_route_table_ids": ["rtb-a", "rtb-b"],
            **attributes,
        },
    )


def given_group(stack: cdk.Stack, kind: str) -> ec2.ISecurityGroup | None:
    """A security group of each kind that there is."""
    vpc = imported_vpc(stack) if kind != "none" else None
    match kind:
        case "none":
            return None
        case "all outbound":
            return ec2.SecurityGroup(stack, "Given", vpc=vpc)  # type: ignore[arg-type]
        case "nothing outbound":
            return ec2.SecurityGroup(stack, "Given", vpc=vpc, allow_all_outbound=False)  # type: ignore[arg-type]
        case "imported":
            return ec2.SecurityGroup.from_security_group_id(stack, "Given", "sg-1")
    raise AssertionError(kind)


def rules(template: Template, direction: str) -> list[dict[str, Any]]:
    """The rules of a direction that name the security group they belong to."""
    other = {"Ingress": "SourceSecurityGroupId", "Egress": "DestinationSecurityGroupId"}[direction]
    found = template.find_resources(f"AWS::EC2::SecurityGroup{direction}").values()
    return [one["Properties"] for one in found if one["Properties"]["GroupId"] == one["Properties"].get(other)]


GROUPS = ["none", "all outbound", "nothing outbound", "imported"]


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("direction", ["Ingress", "Egress"])
def test_a_rule_that_efa_needs_is_there_whatever_the_security_group(group: str, direction: str) -> None:
    stack = cdk.Stack()
    given = given_group(stack, group)
    vpc = stack.node.try_find_child("Vpc")
    TrainingNetwork(stack, "Network", vpc=vpc, security_groups=given and [given])  # type: ignore[arg-type]
    assert [rule["IpProtocol"] for rule in rules(Template.from_stack(stack), direction)] == ["-1"]


@pytest.mark.parametrize("direction", ["Ingress", "Egress"])
def test_members_of_each_of_two_security_groups_reach_each_other(direction: str) -> None:
    stack = cdk.Stack()
    vpc = imported_vpc(stack)
    groups = [ec2.SecurityGroup.from_security_group_id(stack, id, id) for id in ("sg-1", "sg-2")]
    TrainingNetwork(stack, "Network", vpc=vpc, security_groups=groups).allow_encrypted_traffic()
    found = [(rule["GroupId"], rule["IpProtocol"]) for rule in rules(Template.from_stack(stack), direction)]
    assert sorted(found) == sorted((group, protocol) for group in ("sg-1", "sg-2") for protocol in ("-1", "udp", "50"))


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("direction", ["Ingress", "Egress"])
def test_encrypted_traffic_has_rules_for_its_keys_and_packets(group: str, direction: str) -> None:
    stack = cdk.Stack()
    given = given_group(stack, group)
    network = TrainingNetwork(stack, "Network", vpc=stack.node.try_find_child("Vpc"), security_groups=given and [given])  # type: ignore[arg-type]
    network.allow_encrypted_traffic()
    found = rules(Template.from_stack(stack), direction)
    assert [rule["IpProtocol"] for rule in found] == ["-1", "udp", "50"]
    assert (found[1]["FromPort"], found[1]["ToPort"]) == (500, 500)


def test_rules_for_encrypted_traffic_are_added_once() -> None:
    stack = cdk.Stack()
    network = TrainingNetwork(stack, "Network")
    network.allow_encrypted_traffic()
    network.allow_encrypted_traffic()
    Template.from_stack(stack).resource_count_is("AWS::EC2::SecurityGroupIngress", 3)


def test_what_has_connections_of_its_own_lets_the_hosts_of_jobs_in() -> None:
    stack = cdk.Stack()
    other = ec2.SecurityGroup(stack, "Other", vpc=imported_vpc(stack))
    other.connections.allow_from(TrainingNetwork(stack, "Network"), ec2.Port.tcp(5432))
    Template.from_stack(stack).has_resource_properties(
        "AWS::EC2::SecurityGroupIngress",
        {"SourceSecurityGroupId": {"Fn::GetAtt": [Match.string_like_regexp("NetworkSecurityGroup"), "GroupId"]}},
    )


def test_there_are_no_rules_for_encrypted_traffic_unless_asked() -> None:
    stack = cdk.Stack()
    TrainingNetwork(stack, "Network")
    assert len(rules(Template.from_stack(stack), "Ingress")) == 1


def test_a_security_group_that_was_imported_as_immutable_stays_as_it_is() -> None:
    stack = cdk.Stack()
    group = ec2.SecurityGroup.from_security_group_id(stack, "Given", "sg-1", mutable=False)
    network = TrainingNetwork(stack, "Network", vpc=imported_vpc(stack), security_groups=[group])
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::EC2::SecurityGroupIngress", 0)
    template.resource_count_is("AWS::EC2::SecurityGroupEgress", 0)
    assert network.vpc_config()["SecurityGroupIds"] == ["sg-1"]


def test_a_network_can_be_in_one_zone() -> None:
    stack = cdk.Stack()
    network = TrainingNetwork(stack, "Network", max_azs=1)
    assert len(network.vpc_config()["Subnets"]) == 1


def test_a_network_is_in_the_zones_that_are_named() -> None:
    stack = cdk.Stack(env=cdk.Environment(account="123456789012", region="us-east-1"))
    TrainingNetwork(stack, "Network", availability_zones=["us-east-1c"])
    [subnet] = Template.from_stack(stack).find_resources("AWS::EC2::Subnet").values()
    assert subnet["Properties"]["AvailabilityZone"] == "us-east-1c"


def test_of_a_vpc_that_there_is_the_subnets_in_the_named_zones_are_used() -> None:
    stack = cdk.Stack()
    network = TrainingNetwork(stack, "Network", vpc=imported_vpc(stack), availability_zones=["us-east-1b"])
    assert network.vpc_config()["Subnets"] == ["subnet-b"]


def test_the_vpcs_addresses_can_be_said() -> None:
    stack = cdk.Stack()
    TrainingNetwork(stack, "Network", cidr="172.31.0.0/20")
    Template.from_stack(stack).has_resource_properties("AWS::EC2::VPC", {"CidrBlock": "172.31.0.0/20"})


def test_a_vpc_of_the_account_is_looked_up() -> None:
    stack = cdk.Stack(env=cdk.Environment(account="123456789012", region="us-east-1"))
    network = TrainingNetwork.from_lookup(stack, "Network", vpc_name="shared")
    # What CDK knows before the CLI has asked the account: a VPC of its own invention.
    assert network.vpc.vpc_id == "vpc-12345"
    Template.from_stack(stack).resource_count_is("AWS::EC2::VPC", 0)


def test_a_security_group_of_the_users_goes_with_a_vpc_that_is_looked_up() -> None:
    stack = cdk.Stack(env=cdk.Environment(account="123456789012", region="us-east-1"))
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1")
    network = TrainingNetwork.from_lookup(stack, "Network", vpc_name="shared", security_groups=[group])
    assert network.vpc_config()["SecurityGroupIds"] == ["sg-1"]
    Template.from_stack(stack).resource_count_is("AWS::EC2::SecurityGroup", 0)


def test_a_new_vpcs_traffic_is_recorded_for_three_months_by_a_role_of_this_account_only() -> None:
    stack = cdk.Stack()
    TrainingNetwork(stack, "Network")
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::EC2::FlowLog", 1)
    template.has_resource_properties("AWS::Logs::LogGroup", {"RetentionInDays": 90})
    template.has_resource_properties(
        "AWS::IAM::Role",
        {
            "AssumeRolePolicyDocument": {
                "Statement": [
                    Match.object_like(
                        {
                            "Principal": {"Service": "vpc-flow-logs.amazonaws.com"},
                            "Condition": {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}},
                        }
                    )
                ]
            }
        },
    )


def test_the_record_of_traffic_can_be_left_out() -> None:
    stack = cdk.Stack()
    TrainingNetwork(stack, "Network", flow_logs=False)
    Template.from_stack(stack).resource_count_is("AWS::EC2::FlowLog", 0)


def test_a_network_has_no_interface_endpoint_unless_asked() -> None:
    stack = cdk.Stack()
    TrainingNetwork(stack, "Network")
    Template.from_stack(stack).resource_properties_count_is(
        "AWS::EC2::VPCEndpoint", {"VpcEndpointType": "Interface"}, 0
    )


@pytest.mark.parametrize("new", [True, False])
def test_an_endpoint_is_reached_by_https_from_hosts_of_jobs_only(new: bool) -> None:
    stack = cdk.Stack()
    TrainingNetwork(stack, "Network", vpc=None if new else imported_vpc(stack), endpoints=["sts"])
    template = Template.from_stack(stack)
    template.has_resource_properties(
        "AWS::EC2::VPCEndpoint",
        {
            "VpcEndpointType": "Interface",
            "ServiceName": {"Fn::Join": ["", ["com.amazonaws.", {"Ref": "AWS::Region"}, ".sts"]]},
            "SecurityGroupIds": [{"Fn::GetAtt": [Match.string_like_regexp("StsEndpointSecurityGroup"), "GroupId"]}],
        },
    )
    template.has_resource_properties(
        "AWS::EC2::SecurityGroupIngress",
        {
            "GroupId": {"Fn::GetAtt": [Match.string_like_regexp("StsEndpointSecurityGroup"), "GroupId"]},
            "SourceSecurityGroupId": {"Fn::GetAtt": [Match.string_like_regexp("NetworkSecurityGroup"), "GroupId"]},
            "FromPort": 443,
            "ToPort": 443,
        },
    )
    groups = template.find_resources("AWS::EC2::SecurityGroup").values()
    assert all("SecurityGroupIngress" not in group["Properties"] for group in groups)


def test_an_endpoint_is_in_one_subnet_of_each_of_the_first_two_zones() -> None:
    stack = cdk.Stack()
    subnets = [
        ec2.Subnet.from_subnet_attributes(stack, id, subnet_id=id, availability_zone=f"us-east-1{id[0]}")
        for id in ("a-1", "a-2", "b-1", "c-1")
    ]
    selection = ec2.SubnetSelection(subnets=subnets)
    TrainingNetwork(stack, "Network", vpc=imported_vpc(stack), vpc_subnets=selection, endpoints=["sts"])
    [endpoint] = Template.from_stack(stack).find_resources("AWS::EC2::VPCEndpoint").values()
    assert endpoint["Properties"]["SubnetIds"] == ["a-1", "b-1"]


def test_zones_of_another_region_than_the_stacks_are_refused_where_that_is_known() -> None:
    zones = ["us-east-1a", "us-west-2a"]
    TrainingNetwork(cdk.Stack(), "Network", availability_zones=zones)
    with pytest.raises(ValueError) as raised:
        TrainingNetwork(cdk.Stack(env=cdk.Environment(region="us-east-1")), "Network", availability_zones=zones)
    assert str(raised.value) == (
        "availability_zones must be zones of the stack's region, 'us-east-1', like ['us-east-1a'], got 'us-west-2a'"
    )


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"max_azs": 1, "availability_zones": ["us-east-1a"]},
            "max_azs must be left out with availability_zones, like max_azs=None, got 1 with ['us-east-1a']",
        ),
        ({"max_azs": 0}, "max_azs must be a whole number from 1 to 6, like 1, got 0"),
        (
            {"availability_zones": "us-east-1a"},
            "availability_zones must be a list, like ['us-east-1a'], got 'us-east-1a'",
        ),
        (
            {"availability_zones": ["use1-az1"]},
            "availability_zones must list names of zones, like ['us-east-1a'], got ['use1-az1']",
        ),
        ({"availability_zones": []}, "availability_zones must list names of zones, like ['us-east-1a'], got []"),
        *(
            (
                {"cidr": cidr},
                "cidr must be a block of IPv4 addresses with a netmask from /16 to /28, like '10.0.0.0/16', "
                f"got {cidr!r}",
            )
            for cidr in ("10.0.0.0/8", "10.0.0.0/29", "10.0.0.1/16", "10.0.0.0", "fd00::/64")
        ),
    ],
)
def test_props_of_a_new_network_that_make_no_sense_are_refused(props: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        TrainingNetwork(cdk.Stack(), "Network", **props)
    assert str(raised.value) == message


@pytest.mark.parametrize(("prop", "value"), [("max_azs", 1), ("cidr", "10.0.0.0/16"), ("flow_logs", True)])
def test_what_is_of_a_new_vpc_is_refused_with_one_that_there_is(prop: str, value: Any) -> None:
    stack = cdk.Stack()
    with pytest.raises(ValueError) as raised:
        TrainingNetwork(stack, "Network", vpc=imported_vpc(stack), **{prop: value})
    assert str(raised.value) == (f"{prop} must be left out with an existing vpc, like {prop}=None, got {value!r}")


def test_an_endpoint_of_a_service_that_has_no_use_here_is_refused_with_those_that_have() -> None:
    with pytest.raises(ValueError, match=r"^endpoints must be among 'ecr\.api', .*, like \['sts'\], .* got 'dynamo'$"):
        TrainingNetwork(cdk.Stack(), "Network", endpoints=["dynamo"])


def test_an_endpoint_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^endpoints must list each service once, like \['sts'\], got 'sts' twice$"):
        TrainingNetwork(cdk.Stack(), "Network", endpoints=["sts", "sts"])


def machines(instance_type: str, count: Any) -> dict[str, Any]:
    return {"InstanceType": instance_type, "InstanceCount": count}


def small(stack: cdk.Stack) -> TrainingNetwork:
    """A network whose subnets have 16 addresses each, of which AWS leaves 11."""
    return TrainingNetwork(stack, "Network", cidr="10.0.0.0/27")


def refusal_of(network: TrainingNetwork, resource_config: dict[str, Any]) -> str | None:
    """What is said to machines that a network has too few addresses for; None where they are taken."""
    try:
        network.check_addresses(resource_config)
    except ValueError as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize(("instance_type", "count"), [("ml.g5.xlarge", 5), ("ml.p4d.24xlarge", 2)])
def test_as_many_machines_as_a_subnet_has_addresses_for_are_taken(instance_type: str, count: int) -> None:
    assert refusal_of(small(cdk.Stack()), machines(instance_type, count)) is None


@pytest.mark.parametrize(("instance_type", "count", "needed"), [("ml.g5.xlarge", 6, 12), ("ml.p4d.24xlarge", 3, 15)])
def test_more_machines_than_a_subnet_has_addresses_for_are_refused(instance_type: str, count: int, needed: int) -> None:
    assert refusal_of(small(cdk.Stack()), machines(instance_type, count)) == (
        "network must have a subnet with addresses for all machines, 2 each, 5 with EFA, "
        f"like a /27 for {needed}, got 11 in 10.0.0.0/28 for {count} machines"
    )


def test_the_machines_of_all_groups_count_together() -> None:
    groups = {"InstanceGroups": [machines("ml.c5.xlarge", 3), machines("ml.g5.xlarge", 3)]}
    with pytest.raises(ValueError, match=r"got 11 in 10\.0\.0\.0/28 for 6 machines$"):
        small(cdk.Stack()).check_addresses(groups)


def test_addresses_of_an_imported_vpc_are_checked_where_they_are_known() -> None:
    stack = cdk.Stack()
    blocks = ["10.0.0.0/28", "10.0.1.0/28"]
    vpc = imported_vpc(stack, private_subnet_ipv4_cidr_blocks=blocks)
    with pytest.raises(ValueError, match=r"^network must have a subnet with addresses"):
        TrainingNetwork(stack, "Network", vpc=vpc).check_addresses(machines("ml.g5.xlarge", 6))


def test_the_largest_subnet_decides_in_which_a_job_finds_room() -> None:
    stack = cdk.Stack()
    vpc = imported_vpc(stack, private_subnet_ipv4_cidr_blocks=["10.0.0.0/28", "10.0.1.0/27"])
    network = TrainingNetwork(stack, "Network", vpc=vpc)
    assert refusal_of(network, machines("ml.g5.xlarge", 13)) is None
    assert str(refusal_of(network, machines("ml.g5.xlarge", 14))).endswith("got 27 in 10.0.1.0/27 for 14 machines")


def test_addresses_that_are_not_known_are_not_checked() -> None:
    stack = cdk.Stack()
    network = TrainingNetwork(stack, "Network", vpc=imported_vpc(stack))
    assert refusal_of(network, machines("ml.g5.xlarge", 9_000)) is None


def test_a_number_of_machines_that_is_not_known_is_not_checked() -> None:
    stack = cdk.Stack()
    count = cdk.CfnParameter(stack, "Count", type="Number").value_as_number
    network = small(stack)
    assert refusal_of(network, machines("ml.g5.xlarge", count)) is None
    assert refusal_of(network, machines("ml.g5.xlarge", 9_000)) is not None
