"""CloudFormation's own resource types, and CDK's."""

from __future__ import annotations

from sagemaker_local_account.aws.cloudformation.nested_stacks import NestedStack
from sagemaker_local_account.aws.resource_types import ResourceType, ServiceResources, real

RESOURCES = ServiceResources(
    types={
        "AWS::CDK::Metadata": ResourceType("inert", "CDK's telemetry, which is not sent"),
        "AWS::CloudFormation::CustomResource": ResourceType(
            "emulated",
            "its function is invoked, and puts its response to a URL; also for `Custom::` types that are not in this table",
        ),
        "AWS::CloudFormation::Stack": real(
            "made, changed and deleted with the stack around it",
            "Parameters Tags TemplateURL TimeoutInMinutes",
            made_by=NestedStack,
            longest_name=128,
        ),
        "AWS::CloudFormation::WaitConditionHandle": ResourceType(
            "inert", "a URL for signals; a template with a wait condition is rejected"
        ),
    },
)
