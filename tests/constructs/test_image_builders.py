"""How an image is built, where CodeBuild puts it, and what it may pull."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Match, Template

from cdk_sagemaker_training import TrainingImage, TrainingRole, training_code_path
from cdk_sagemaker_training.core.image_uri import IN_ECR
from training_jobs.lint.dockerfile import Dockerfile

OF_AWS = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
PUBLIC = "public.ecr.aws/deep-learning-containers"
SMP = "658645717510.dkr.ecr.us-west-2.amazonaws.com/smdistributed-modelparallel:2.4.1-gpu-py311-cu121"


PACKAGED = sorted(
    str(path.relative_to(training_code_path())) for path in Path(training_code_path()).rglob("Dockerfile*")
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "notes.txt").write_text("notes")
    return written(tmp_path, f"{OF_AWS}/pytorch:2.13-cpu-amzn2023-sagemaker")


def written(directory: Path, base: str) -> Path:
    (directory / "Dockerfile").write_text(f"FROM {base}\nCOPY train.py /opt/ml/code/\n")
    return directory


class Image:
    """An image that CodeBuild builds in a stack of its own, and what of it is in the template."""

    def __init__(self, directory: Path, **props: Any) -> None:
        self.stack = cdk.Stack(cdk.App(), "Stack")
        self.image = TrainingImage.from_codebuild(self.stack, "Image", str(directory), **props)
        self.template = Template.from_stack(self.stack)

    @property
    def build(self) -> dict[str, Any]:
        [build] = self.template.find_resources("Custom::CDKContainerImageBuild").values()
        return dict(build["Properties"])

    @property
    def source(self) -> str:
        return str(self.build["sourceS3Url"])


def test_an_image_is_built_in_codebuild(directory: Path) -> None:
    image = Image(directory)
    image.template.resource_count_is("AWS::CodeBuild::Project", 1)
    assert image.image.asset is None


def test_a_base_image_of_the_public_gallery_needs_no_other_login(directory: Path) -> None:
    image = Image(written(directory, f"{PUBLIC}/pytorch:2.13-cpu-amzn2023-sagemaker"))
    assert image.image.base == "pytorch:2.13-cpu-amzn2023-sagemaker"
    assert image.build["buildCommand"].startswith("docker buildx build ")  # the project has logged in to the gallery


def test_an_image_is_built_by_docker_on_the_machine_that_deploys(directory: Path) -> None:
    stack = cdk.Stack()
    image = TrainingImage.from_asset(stack, "Image", str(directory))
    Template.from_stack(stack).resource_count_is("AWS::CodeBuild::Project", 0)
    assert image.asset is not None
    assert image.build is None


def test_the_base_image_of_each_stage_may_be_pulled(directory: Path) -> None:
    (directory / "Dockerfile").write_text(f"FROM {OF_AWS}/pytorch:2.13 AS first\nFROM {SMP}\nCOPY train.py /\n")
    command = Image(directory).build["buildCommand"]
    assert all(registry in command for registry in (OF_AWS, SMP.partition("/")[0]))


def test_the_value_of_a_build_argument_is_the_base_image(directory: Path) -> None:
    (directory / "Dockerfile").write_text("ARG BASE=python:3.11\nFROM $BASE\nCOPY train.py /\n")
    assert Image(directory).image.base == "python:3.11"
    assert Image(directory, build_args={"BASE": SMP}).image.base == SMP.partition("/")[2]


def test_a_repository_is_scanned_and_encrypted_and_keeps_the_newest_ten_images_under_tags_for_good(
    directory: Path,
) -> None:
    Image(directory).template.has_resource(
        "AWS::ECR::Repository",
        {
            "Properties": {
                "ImageScanningConfiguration": {"ScanOnPush": True},
                "ImageTagMutability": "IMMUTABLE",
                "LifecyclePolicy": {"LifecyclePolicyText": Match.string_like_regexp('"countNumber":10')},
            },
            "DeletionPolicy": "Retain",
        },
    )


def test_a_repository_that_goes_with_its_stack_goes_with_its_images(directory: Path) -> None:
    Image(directory, removal_policy=cdk.RemovalPolicy.DESTROY, max_images=3).template.has_resource(
        "AWS::ECR::Repository",
        {
            "Properties": {
                "EmptyOnDelete": True,
                "LifecyclePolicy": {"LifecyclePolicyText": Match.string_like_regexp('"countNumber":3')},
            },
            "DeletionPolicy": "Delete",
        },
    )


def test_a_repository_is_encrypted_with_the_users_key(directory: Path) -> None:
    stack = cdk.Stack()
    TrainingImage.from_codebuild(stack, "Image", directory=str(directory), encryption_key=kms.Key(stack, "Key"))
    Template.from_stack(stack).has_resource_properties(
        "AWS::ECR::Repository",
        {"EncryptionConfiguration": {"EncryptionType": "KMS", "KmsKey": {"Fn::GetAtt": Match.any_value()}}},
    )


def test_a_users_own_repository_takes_the_image(directory: Path) -> None:
    stack = cdk.Stack()
    own = ecr.Repository(stack, "Own")
    image = TrainingImage.from_codebuild(stack, "Image", directory=str(directory), repository=own)
    Template.from_stack(stack).resource_count_is("AWS::ECR::Repository", 1)
    assert image.repository is own


def test_the_build_logs_in_to_the_registry_of_its_base_image_first(directory: Path) -> None:
    assert (
        Image(directory)
        .build["buildCommand"]
        .startswith(
            "aws ecr get-login-password --region us-east-1 | "
            f"docker login --username AWS --password-stdin {OF_AWS} && docker buildx build "
        )
    )


# TensorFlow 2.12's container, the last with Horovod, is in the private registry alone; its Dockerfile says so.
@pytest.mark.parametrize("file", [file for file in PACKAGED if "resnet" not in file])
def test_docker_builds_a_packaged_image_without_a_login(file: str) -> None:
    images = Dockerfile(Path(training_code_path()), file, {}).pulled
    assert images
    assert not [image for image in images if IN_ECR.match(image)]


def test_the_build_may_pull_its_base_image_and_no_other_of_awss(directory: Path) -> None:
    [policy] = [
        value
        for name, value in Image(directory).template.find_resources("AWS::IAM::Policy").items()
        if name.startswith("ContainerImageBuild")
    ]
    [pull] = [
        statement
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if OF_AWS[:12] in json.dumps(statement["Resource"])
    ]
    assert pull["Resource"]["Fn::Join"][1][-1] == f":ecr:us-east-1:{OF_AWS[:12]}:repository/pytorch"
    assert pull["Action"] == ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]


def test_build_arguments_are_words_of_the_builds_command_whatever_is_in_them(directory: Path) -> None:
    command = Image(directory, build_args={"NAME": "two words; and $more"}).build["buildCommand"]
    assert " --build-arg NAME='two words; and $more' " in command


def test_the_platform_is_that_of_sagemakers_machines_unless_said(directory: Path) -> None:
    assert " --platform linux/amd64 " in Image(directory).build["buildCommand"]
    other = Image(directory, platform=ecr_assets.Platform.LINUX_ARM64)
    assert " --platform linux/arm64 " in other.build["buildCommand"]


def test_the_project_keeps_layers_unless_every_build_is_to_begin_anew(directory: Path) -> None:
    kept = {"Cache": {"Type": "LOCAL", "Modes": ["LOCAL_DOCKER_LAYER_CACHE"]}}
    Image(directory).template.has_resource_properties("AWS::CodeBuild::Project", kept)
    anew = Image(directory, cache=False)
    assert " --no-cache " in anew.build["buildCommand"]
    anew.template.has_resource_properties("AWS::CodeBuild::Project", {"Cache": {"Type": "NO_CACHE"}})


def test_docker_begins_anew_where_that_is_said(directory: Path) -> None:
    app = cdk.App()
    TrainingImage.from_asset(cdk.Stack(app, "Stack"), "Image", directory=str(directory), cache=False)
    [image] = json.loads((Path(app.synth().directory) / "Stack.assets.json").read_text())["dockerImages"].values()
    assert image["source"]["cacheDisabled"] is True


def test_an_edit_to_what_is_not_copied_builds_nothing_anew_in_codebuild(directory: Path) -> None:
    before = Image(directory).source
    (directory / "notes.txt").write_text("edited")
    assert Image(directory).source == before
    (directory / "train.py").write_text("edited")
    assert Image(directory).source != before


def test_two_images_of_a_stack_are_built_by_one_project(directory: Path) -> None:
    stack = cdk.Stack()
    for name in ("One", "Two"):
        TrainingImage.from_codebuild(stack, name, directory=str(directory))
    Template.from_stack(stack).resource_count_is("AWS::CodeBuild::Project", 1)


def test_an_image_that_codebuild_builds_may_be_pulled_by_the_role_that_is_granted_it(directory: Path) -> None:
    stack = cdk.Stack()
    TrainingImage.from_codebuild(stack, "Image", directory=str(directory)).grant_pull(TrainingRole(stack, "Role"))
    policies = Template.from_stack(stack).find_resources("AWS::IAM::Policy")
    [own] = [json.dumps(policy) for name, policy in policies.items() if name.startswith("Role")]
    assert "ecr:BatchGetImage" in own


def test_a_number_of_images_out_of_range_is_refused(directory: Path) -> None:
    with pytest.raises(ValueError, match=r"^max_images must be a whole number from 1 to 1000, like 10, got 0$"):
        Image(directory, max_images=0)


def test_a_prop_of_a_new_repository_beside_an_existing_one_is_refused(directory: Path) -> None:
    stack = cdk.Stack(cdk.App(), "Stack")
    own = ecr.Repository(stack, "Own")
    with pytest.raises(ValueError) as raised:
        TrainingImage.from_codebuild(stack, "Image", str(directory), repository=own, max_images=3)
    assert str(raised.value) == (
        "max_images must be left out with an existing repository, like max_images=None, got it with repository='Stack/Own'"
    )


def test_codebuild_without_the_package_for_it_is_refused_with_what_to_install(directory: Path) -> None:
    program = (
        "import sys, aws_cdk as cdk\n"
        "sys.modules['deploy_time_build'] = None  # as Python marks what is not to be found\n"
        "from cdk_sagemaker_training import TrainingImage\n"
        f"TrainingImage.from_codebuild(cdk.Stack(), 'Image', {str(directory)!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=os.environ, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ValueError: TrainingImage.from_codebuild must have the package deploy-time-build, like pip install "
        "'cdk-sagemaker-training[codebuild]', or be TrainingImage.from_asset, got no such package"
    )


def test_an_image_by_its_uri_is_what_the_request_names_and_may_be_pulled() -> None:
    stack = cdk.Stack()
    uri = "210987654321.dkr.ecr.eu-west-1.amazonaws.com/team/jobs@sha256:" + "0" * 64
    image = TrainingImage.from_uri(stack, "Image", uri, base="pytorch:2.13")
    assert (image.image_uri, image.base) == (uri, "pytorch:2.13")
    image.grant_pull(TrainingRole(stack, "Role"))
    assert ":ecr:eu-west-1:210987654321:repository/team/jobs" in json.dumps(Template.from_stack(stack).to_json())


def test_an_image_in_a_registry_that_is_not_ecr_has_no_repository_to_grant() -> None:
    stack = cdk.Stack()
    image = TrainingImage.from_uri(stack, "Image", "registry.example.com/team/jobs:1")
    image.grant_pull(role := TrainingRole(stack, "Role"))
    assert image.repository is None
    assert role.role is not None
    assert "ecr:" not in json.dumps(Template.from_stack(stack).to_json())


@pytest.mark.parametrize("uri", ["jobs:1", "https://registry.example.com/jobs:1", "two words/jobs"])
def test_a_uri_that_names_no_image_in_a_registry_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="image_uri must be an image with its registry, like '123456789012"):
        TrainingImage.from_uri(cdk.Stack(), "Image", uri)
