import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Match, Template

from cdk_sagemaker_training import TrainingNetwork


@pytest.fixture(scope="module")
def template() -> Template:
    stack = cdk.Stack()
    TrainingNetwork(stack, "Network")
    return Template.from_stack(stack)


def test_members_of_the_security_group_reach_each_other_in_and_out(template: Template) -> None:
    group = {"Fn::GetAtt": [Match.string_like_regexp("NetworkSecurityGroup"), "GroupId"]}
    for direction, other in (("Ingress", "SourceSecurityGroupId"), ("Egress", "DestinationSecurityGroupId")):
        template.has_resource_properties(
            f"AWS::EC2::SecurityGroup{direction}", {"GroupId": group, other: group, "IpProtocol": "-1"}
        )


def test_what_leaves_the_security_group_besides_is_https(template: Template) -> None:
    template.has_resource_properties(
        "AWS::EC2::SecurityGroup",
        {
            "SecurityGroupEgress": [
                {
                    "CidrIp": "0.0.0.0/0",
                    "IpProtocol": "tcp",
                    "FromPort": 443,
                    "ToPort": 443,
                    "Description": Match.any_value(),
                }
            ]
        },
    )


def test_the_subnets_have_no_way_to_the_internet(template: Template) -> None:
    template.resource_count_is("AWS::EC2::InternetGateway", 0)
    template.resource_count_is("AWS::EC2::NatGateway", 0)


def test_the_subnets_reach_s3_through_a_gateway_endpoint(template: Template) -> None:
    template.has_resource_properties(
        "AWS::EC2::VPCEndpoint", {"VpcEndpointType": "Gateway", "RouteTableIds": [Match.any_value(), Match.any_value()]}
    )


def test_a_network_makes_no_lambda_function(template: Template) -> None:
    template.resource_count_is("AWS::Lambda::Function", 0)


def test_a_network_in_a_vpc_that_there_is_makes_a_security_group_only() -> None:
    stack = cdk.Stack()
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-1",
        availability_zones=["us-east-1a"],
        private_subnet_ids=["subnet-1"],
        private_subnet_route_table_ids=["rtb-1"],
    )
    network = TrainingNetwork(stack, "Network", vpc=vpc)
    Template.from_stack(stack).resource_count_is("AWS::EC2::VPC", 0)
    assert stack.resolve(network.vpc_config()["Subnets"]) == ["subnet-1"]


def test_the_subnets_can_be_selected() -> None:
    stack = cdk.Stack()
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
    network = TrainingNetwork(
        stack, "Network", vpc=vpc, vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC, one_per_az=True)
    )
    assert network.subnets.subnet_ids == [subnet.subnet_id for subnet in vpc.public_subnets]


@pytest.mark.parametrize("own_vpc", [True, False])
def test_the_rules_that_efa_needs_stay_where_a_rule_lets_all_addresses_out(own_vpc: bool) -> None:
    stack = cdk.Stack()
    network = TrainingNetwork(stack, "Network", vpc=ec2.Vpc(stack, "Vpc", max_azs=1) if own_vpc else None)
    network.connections.allow_to_any_ipv4(ec2.Port.all_tcp())
    template = Template.from_stack(stack)
    group = {"Fn::GetAtt": [Match.string_like_regexp("NetworkSecurityGroup"), "GroupId"]}
    for direction, other in (("Ingress", "SourceSecurityGroupId"), ("Egress", "DestinationSecurityGroupId")):
        template.has_resource_properties(
            f"AWS::EC2::SecurityGroup{direction}", {"GroupId": group, other: group, "IpProtocol": "-1"}
        )
