"""Builds an image in CodeBuild during deployment, with cdklabs' deploy-time-build, into an ECR repository."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from aws_cdk import CfnResource, IgnoreMode, RemovalPolicy, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.image_uri import IN_ECR, repository_arn
from cdk_sagemaker_training.core.nag import Reasons, acknowledge, acknowledge_policies, compliance_reasons
from cdk_sagemaker_training.resources.functions import function_reasons, place_in_vpc

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_lambda as lambda_
    from deploy_time_build import ContainerImageBuild

_MOST_IMAGES = 1_000  # of a repository's lifecycle rule, "Lifecycle policy properties in Amazon ECR"

_RUNTIME = "deploy-time-build sets the runtime that its function was tested with"
_PROJECT_REASONS: Reasons = {
    "AwsSolutions-CB3": "building an image needs Docker, and Docker in CodeBuild needs the privileged mode",
    "AwsSolutions-CB4": "the project has no artifact but the image, which the repository encrypts",
    "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AmazonElasticContainerRegistryPublicReadOnly]": (
        "deploy-time-build uses AWS's own policy to read base images of ECR's public gallery"
    ),
    **compliance_reasons(
        {"CodeBuildProjectSourceRepoUrl": "the source is an object in S3, without credentials in its URL"}
    ),
}
_FUNCTION_REASONS: Reasons = {
    "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole]": (
        "the function of deploy-time-build that starts a build uses AWS's own policy to write its log"
    ),
    "AwsSolutions-L1": _RUNTIME,
    "Serverless-LambdaLatestVersion": _RUNTIME,
    "Serverless-LambdaDefaultMemorySize": "the function starts a build, for which Lambda's default suffices",
}
_WHY_WILDCARDS = "CDK's own grants for deploy-time-build's project: logs, reports, the staged source, ECR's login"


def check_installed() -> None:
    """Check that deploy-time-build can be imported."""
    if find_spec("deploy_time_build") is None:
        rule = "have the package deploy-time-build"
        example = "pip install 'cdk-sagemaker-training[codebuild]', or be TrainingImage.from_asset"
        raise must("TrainingImage.from_codebuild", rule, example, "no such package")


def image_repository(
    scope: Construct, id: str, *, removal_policy: RemovalPolicy, encryption_key: kms.IKey | None, max_images: int
) -> ecr.Repository:
    """Create a repository that passes cdk-nag: encrypted, scanned on push, with immutable tags and a lifecycle rule.

    Args:
        scope: The parent construct.
        id: The construct id.
        removal_policy: DESTROY also deletes the images.
        encryption_key: The key; None for AES-256.
        max_images: Number of images to keep, from 1 to 1000; the oldest are removed.

    Raises:
        ValueError: ``max_images`` is out of range.
    """
    if isinstance(max_images, bool) or not isinstance(max_images, int) or not 1 <= max_images <= _MOST_IMAGES:
        raise must("max_images", f"be a whole number from 1 to {_MOST_IMAGES}", "10", repr(max_images))
    return ecr.Repository(
        scope,
        id,
        image_scan_on_push=True,
        image_tag_mutability=ecr.TagMutability.IMMUTABLE,
        encryption=ecr.RepositoryEncryption.KMS if encryption_key else ecr.RepositoryEncryption.AES_256,
        encryption_key=encryption_key,
        lifecycle_rules=[ecr.LifecycleRule(description="Keeps the newest images", max_image_count=max_images)],
        removal_policy=removal_policy,
        empty_on_delete=True if removal_policy == RemovalPolicy.DESTROY else None,
    )


def build_in_codebuild(
    scope: Construct,
    id: str,
    *,
    source: Mapping[str, Any],
    cache: bool,
    repository: ecr.IRepository,
    parents: Sequence[str],
    vpc: ec2.IVpc | None = None,
) -> ContainerImageBuild:
    """Build the image of a directory from its uploaded source, in a CodeBuild project that all images of the stack share.

    Args:
        scope: The parent construct.
        id: The construct id.
        source: The build context as ``directory``, and below it ``file``, with ``build_args``, the ``platform`` of the image, and
            as ``exclude`` the lines of a .dockerignore; None for none.
        cache: Whether layers of earlier builds are reused.
        repository: Where the image is pushed.
        parents: The base images. For those in ECR, such as AWS's own containers, the build gets pull permission and logs in to
            their registry.
        vpc: The VPC in whose private subnets the project, and the function that starts it, run; None for outside a VPC.
    """
    from deploy_time_build import ContainerImageBuild

    build = ContainerImageBuild(
        scope,
        id,
        **{
            **source,
            # Each of these becomes one argument of a shell command.
            "file": shlex.quote(source["file"]),
            "build_args": {name: shlex.quote(value) for name, value in source["build_args"].items()} or None,
        },
        cache_disabled=not cache,
        repository=repository,
        ignore_mode=IgnoreMode.DOCKER,
        vpc=vpc,
    )
    if vpc is not None:
        _place_starter(build, vpc)
    places = [place for parent in parents if (place := IN_ECR.match(parent))]
    if places:
        _pull(build, places)
    if cache:
        _keep_layers(build)
    _suppress_findings(build)
    return build


def _pull(build: ContainerImageBuild, places: Sequence[re.Match[str]]) -> None:
    """Allow the build to pull base images from other registries, and log in to them; the project logs in to the stack's only."""
    stack = Stack.of(build)
    build.grant_principal.add_to_principal_policy(
        iam.PolicyStatement(
            actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            resources=sorted({repository_arn(stack, place) for place in places}),
        )
    )
    logins = {
        f"aws ecr get-login-password --region {place['region']}"
        f" | docker login --username AWS --password-stdin {place['registry']}": None
        for place in places
    }
    resource = build.node.find_child("Resource").node.default_child
    assert isinstance(resource, CfnResource)
    command = resource._cfn_properties["buildCommand"]
    resource.add_property_override("buildCommand", " && ".join([*logins, command]))


def _keep_layers(build: ContainerImageBuild) -> None:
    """Keep the layers for the next build, if it runs on the same machine.

    A cache in the repository would need a mutable tag.
    """
    project: Any = _project(build).node.default_child
    project.add_property_override("Cache", {"Type": "LOCAL", "Modes": ["LOCAL_DOCKER_LAYER_CACHE"]})


def _starter(build: ContainerImageBuild) -> lambda_.Function:
    """The function of all images of a stack that starts their builds."""
    children: Sequence[Any] = Stack.of(build).node.children
    [function] = [child for child in children if child.node.id.startswith("DeployTimeBuildCustomResourceHandler")]
    return function  # type: ignore[no-any-return]


def _place_starter(build: ContainerImageBuild, vpc: ec2.IVpc) -> None:
    function = _starter(build)
    if function.node.try_find_child("InterfacesPolicy") is None:
        resource: Any = function.node.default_child
        assert function.role is not None
        place_in_vpc(function, resource, function.role, vpc)


def _suppress_findings(build: ContainerImageBuild) -> None:
    project = _project(build)
    acknowledge(project, _PROJECT_REASONS)
    acknowledge_policies(project, _WHY_WILDCARDS)
    starter = _starter(build)
    in_vpc = starter.node.try_find_child("InterfacesPolicy") is not None
    acknowledge(starter, {**_FUNCTION_REASONS, **function_reasons(in_vpc=in_vpc)})


def _project(build: ContainerImageBuild) -> Construct:
    """The project of all images of a stack, whose role is the build's grantee."""
    role: Any = build.grant_principal
    project = role.node.scope
    assert isinstance(project, Construct)
    return project
