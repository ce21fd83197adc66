"""Building an image in CodeBuild while its stack is deployed, by cdklabs' deploy-time-build, into a repository of its own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aws_cdk import CfnResource, IgnoreMode, RemovalPolicy, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_sagemaker_training.image_uri import IN_ECR, repository_arn
from cdk_sagemaker_training.review import Reasons, acknowledge, acknowledge_policies

if TYPE_CHECKING:
    from aws_cdk import aws_ecr_assets as ecr_assets
    from aws_cdk import aws_kms as kms
    from deploy_time_build import ContainerImageBuild

_MOST_IMAGES = 1_000  # of a repository's lifecycle rule, "Lifecycle policy properties in Amazon ECR"

_REASONS_OF_PROJECT: Reasons = {
    "AwsSolutions-CB3": "building an image takes Docker, and Docker in CodeBuild takes the privileged mode",
    "AwsSolutions-CB4": "the project leaves no artifact behind but the image, which the repository encrypts",
    "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AmazonElasticContainerRegistryPublicReadOnly]": (
        "deploy-time-build reads base images of ECR's public gallery by AWS's own policy for that"
    ),
}
_REASONS_OF_FUNCTION: Reasons = {
    "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole]": (
        "the function of deploy-time-build that starts a build writes its log by AWS's own policy for that"
    ),
    "AwsSolutions-L1": "deploy-time-build names the runtime that its function was tried with",
}
_WHY_WILDCARDS = (
    "CDK's own grants of what deploy-time-build's project needs: logs, reports, the staged source, ECR's login"
)


def repository_of_images(
    scope: Construct, id: str, *, removal_policy: RemovalPolicy, encryption_key: kms.IKey | None, max_images: int
) -> ecr.Repository:
    """A repository as a review wants it: encrypted, scanned on push, its tags immutable, and the oldest images removed."""
    if isinstance(max_images, bool) or not isinstance(max_images, int) or not 1 <= max_images <= _MOST_IMAGES:
        raise ValueError(f"max_images must be a whole number from 1 to {_MOST_IMAGES}, like 10, got {max_images!r}")
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
    directory: str,
    file: str,
    build_args: Mapping[str, str],
    platform: ecr_assets.Platform,
    cache: bool,
    exclude: list[str] | None,
    repository: ecr.IRepository,
    parents: Sequence[str],
) -> ContainerImageBuild:
    """The image of a directory, built from its uploaded source in a project that all images of the stack share.

    ``parents`` are the images of its FROMs. Where these lie in an ECR, such as AWS's own containers, the build may pull them,
    and logs in to their registry first.
    """
    from deploy_time_build import ContainerImageBuild

    build = ContainerImageBuild(
        scope,
        id,
        directory=directory,
        # Each of these becomes a word of a command for a shell.
        file=shlex.quote(file),
        build_args={name: shlex.quote(value) for name, value in build_args.items()} or None,
        platform=platform,
        cache_disabled=not cache,
        repository=repository,
        ignore_mode=IgnoreMode.DOCKER,
        exclude=exclude,
    )
    places = [place for parent in parents if (place := IN_ECR.match(parent))]
    if places:
        _pull(build, places)
    if cache:
        _keep_layers(build)
    _answer_review(build)
    return build


def _pull(build: ContainerImageBuild, places: Sequence[re.Match[str]]) -> None:
    """Let the build pull base images from other registries than the stack's own, to which alone the project logs in."""
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
    """Let the next build find the layers of the last one, where it comes to the same machine.

    A cache in the repository would need a tag that changes its image, which immutable tags do not.
    """
    project: Any = _project(build).node.default_child
    project.add_property_override("Cache", {"Type": "LOCAL", "Modes": ["LOCAL_DOCKER_LAYER_CACHE"]})


def _answer_review(build: ContainerImageBuild) -> None:
    project = _project(build)
    acknowledge(project, _REASONS_OF_PROJECT)
    acknowledge_policies(project, _WHY_WILDCARDS)
    for child in Stack.of(build).node.children:
        if child.node.id.startswith("DeployTimeBuildCustomResourceHandler"):
            acknowledge(child, _REASONS_OF_FUNCTION)


def _project(build: ContainerImageBuild) -> Construct:
    """The project of all images of a stack, whose role is the build's grantee."""
    role: Any = build.grant_principal
    project = role.node.scope
    assert isinstance(project, Construct)
    return project
