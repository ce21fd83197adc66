"""What a newcomer gets wrong in one place of an example: refused where AWS fails, warned of where it is likely a mistake."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from rendered import resolved
from stacks import UserStack, message_of, reads

from cdk_sagemaker_training import (
    Cause,
    DataParallelJob,
    Debugger,
    HeterogeneousJob,
    InstanceGroup,
    InstancePreference,
    Mlflow,
    Retry,
    S3AccessPoint,
    S3Channel,
    S3Prefix,
    Spot,
    TextField,
    Torchrun,
    TrainingCode,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
    unlisted,
)
from cdk_sagemaker_training.facts.instance_facts import family
from cdk_sagemaker_training.facts.service_model import training_instance_types
from cdk_sagemaker_training.request.regions import lacks
from cdk_sagemaker_training.resources.networking.endpoints import PURPOSES

CPU, GPU, TRAINIUM = "ml.c5.xlarge", "ml.g5.xlarge", "ml.trn1.2xlarge"
NEURONX = "pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.29.1-ubuntu24.04"
OF_AWS = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
ELSEWHERE = "arn:aws:s3:eu-west-1:123456789012:accesspoint/images"
PLAN_ELSEWHERE = "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/spring"


class Stack(UserStack):
    """A stack with what an example has, one thing of which each test gets wrong."""

    def __init__(self, region: str | None = "us-east-1") -> None:
        super().__init__(region)
        self.elsewhere = s3.Bucket.from_bucket_attributes(
            self, "Elsewhere", bucket_name="elsewhere", region="eu-west-1"
        )

    def dlc(self, repository: str, tag: str) -> TrainingImage:
        return TrainingImage.from_dlc(self, "Image", repository, tag)

    def workflow(self, instance_type: str = GPU, **props: Any) -> TrainingWorkflow:  # type: ignore[override]
        if "image" not in props:
            props["image"] = self.dlc("pytorch-training", "2.6.0-gpu-py312")
        return super().workflow(**{"job": DataParallelJob(InstanceGroup(instance_type)), **props})


def dockerfile(folder: Path, text: str) -> str:
    (folder / "Dockerfile").write_text(text)
    return str(folder)


def test_a_misspelt_container_is_refused_with_the_one_that_is_spelt_most_like_it() -> None:
    assert reads(
        message_of(lambda: Stack().dlc("pytorch-trainig", "2.6.0-gpu-py312")),
        "repository must name a repository that AWS has for its containers ... 'pytorch-training' ... got "
        "'pytorch-trainig'",
    )


@pytest.mark.parametrize("registry", [OF_AWS, "public.ecr.aws/deep-learning-containers"])
def test_a_misspelt_container_in_a_uri_is_refused(registry: str) -> None:
    uri = f"{registry}/pytorhc:2.13-cpu-amzn2023-sagemaker"
    assert reads(
        message_of(lambda: TrainingImage.from_uri(Stack(), "Image", uri)),
        "image_uri must name a repository that AWS has for its containers ... 'pytorch' ... got 'pytorhc'",
    )


@pytest.mark.parametrize("registry", [OF_AWS, "public.ecr.aws/deep-learning-containers"])
def test_a_misspelt_container_in_a_dockerfile_is_refused(registry: str, tmp_path: Path) -> None:
    folder = dockerfile(tmp_path, f"FROM {registry}/pytorhc:2.13-cpu-amzn2023-sagemaker AS base\nFROM base\n")
    assert reads(
        message_of(lambda: TrainingImage.from_asset(Stack(), "Image", directory=folder)),
        "each FROM of file 'Dockerfile' must name a repository that AWS has for its containers ... 'pytorch' "
        "... got 'pytorhc'",
    )
    taken = TrainingImage.from_asset(Stack(), "Image", directory=folder, file=unlisted("Dockerfile"))
    assert taken.base == "pytorhc:2.13-cpu-amzn2023-sagemaker"


@pytest.mark.parametrize("repository", ["Jobs", "my jobs", "jobs/", "-jobs"])
def test_what_is_no_repositorys_name_in_a_uri_is_refused(repository: str) -> None:
    uri = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/{repository}:1"
    assert message_of(lambda: TrainingImage.from_uri(Stack(), "Image", uri)).startswith("image_uri must ")


def test_a_container_of_another_registry_may_have_any_name(tmp_path: Path) -> None:
    folder = dockerfile(tmp_path, "FROM 123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorhc:1\n")
    assert TrainingImage.from_asset(Stack(), "Image", directory=folder).base == "pytorhc:1"
    assert TrainingImage.from_dlc(Stack(), "Image", "our-own", "1", account_id="123456789012").base == "our-own:1"


@pytest.mark.parametrize(
    ("container", "instance_type", "text"),
    [
        (
            "pytorch-training:2.6.0-cpu-py312",
            GPU,
            "is for machines with no accelerators, and 'ml.g5.xlarge' has 1 NVIDIA A10G, which are",
        ),
        (
            "pytorch-training:2.6.0-gpu-py312",
            CPU,
            "is for machines with GPUs, and 'ml.c5.xlarge' has no accelerator, so that it trains on",
        ),
        (
            "pytorch-training:2.6.0-gpu-py312",
            TRAINIUM,
            "is for machines with GPUs, and 'ml.trn1.2xlarge' has 1 Trainium",
        ),
        (NEURONX, GPU, "is for machines with Trainium, and 'ml.g5.xlarge' has 1 NVIDIA A10G"),
        (NEURONX, CPU, "is for machines with Trainium, and 'ml.c5.xlarge' has no accelerator"),
        (
            "pytorch:2.13-cu133-amzn2023-sagemaker",
            CPU,
            "is for machines with GPUs, and 'ml.c5.xlarge' has no accelerator",
        ),
    ],
)
def test_an_image_for_other_machines_is_warned_of(container: str, instance_type: str, text: str) -> None:
    stack = Stack()
    stack.workflow(instance_type, image=stack.dlc(*container.split(":")))
    assert f"image {container!r} {text}" in stack.warnings("image-for-other-machines")[0]


@pytest.mark.parametrize(
    ("container", "instance_type"),
    [
        ("pytorch-training:2.6.0-cpu-py312", CPU),
        ("pytorch-training:2.6.0-gpu-py312", GPU),
        ("pytorch:2.13-cu133-amzn2023-sagemaker", GPU),
        (NEURONX, TRAINIUM),
        ("pytorch-training:2.6.0-cpu-py312", "ml.p7.48xlarge"),
    ],
)
def test_an_image_for_these_machines_or_for_unknown_ones_is_not_warned_of(container: str, instance_type: str) -> None:
    stack = Stack()
    stack.workflow(instance_type, image=stack.dlc(*container.split(":")))
    assert "image-for-other-machines" not in stack.warned()


def test_an_image_for_gpus_may_be_on_a_group_without_beside_one_with_them() -> None:
    stack = Stack()
    train = DataParallelJob(InstanceGroup(GPU))
    stack.workflow(job=HeterogeneousJob({"data": InstanceGroup(CPU)}, train, "dnn"))
    assert stack.warnings() == []


def test_an_image_that_is_built_is_for_the_machines_that_its_base_is_for(tmp_path: Path) -> None:
    stack = Stack()
    folder = dockerfile(
        tmp_path, "FROM public.ecr.aws/deep-learning-containers/pytorch:2.13-cpu-amzn2023-sagemaker\nENTRYPOINT run\n"
    )
    stack.task(image=TrainingImage.from_asset(stack, "Image", directory=folder))
    assert set(stack.warned()) == {"image-for-other-machines"}


@pytest.mark.parametrize(
    ("repository", "tag", "text"),
    [
        ("pytorch-inference", "2.6.0-gpu-py312", "is for inference and has no program `train`"),
        ("pytorch", "2.13-cu133-amzn2023", "is for EC2 and has no program `train`"),
        ("pytorch-training", "2.6.0-gpu-py312-cu126-ubuntu22.04-ec2", "is for EC2 and has no program `train`"),
    ],
)
def test_a_container_without_the_toolkit_is_warned_of_where_the_job_has_no_command(
    repository: str, tag: str, text: str
) -> None:
    stack = Stack()
    stack.task(image=stack.dlc(repository, tag))
    assert text in stack.warnings("image-without-toolkit")[0]
    other = Stack()
    other.workflow(image=other.dlc(repository, tag), container_entrypoint=["python", "train.py"])
    assert other.warnings() == []


# By the prop: what of it lies in eu-west-1, where the stack is in us-east-1.
IN_ANOTHER_REGION: dict[str, Callable[[Stack], dict[str, Any]]] = {
    "output": lambda stack: {"output": S3Prefix(stack.elsewhere, "models/")},
    "channels['images']": lambda stack: {"channels": {"images": S3Channel(stack.elsewhere, "images/")}},
    "channels['images'].objects": lambda stack: {
        "channels": {
            "images": S3Channel(
                stack.bucket, "list", data_type="ManifestFile", objects=S3Prefix(stack.elsewhere, "images/")
            )
        }
    },
    "channels['point']": lambda stack: {"channels": {"point": S3Channel(S3AccessPoint(ELSEWHERE), "images/")}},
    "checkpoints": lambda stack: {"checkpoints": S3Prefix(stack.elsewhere, "checkpoints/")},
    "spot.checkpoints": lambda stack: {"spot": Spot(S3Prefix(stack.elsewhere, "checkpoints/"), 100_000)},
    "debugger.output": lambda stack: {"debugger": Debugger(S3Prefix(stack.elsewhere, "tensors/"))},
    "volume_key": lambda stack: {
        "job": DataParallelJob(InstanceGroup(CPU)),
        "volume_key": kms.Key.from_key_arn(stack, "Key", "arn:aws:kms:eu-west-1:123456789012:key/1"),
    },
    "output_key": lambda stack: {
        "output_key": kms.Key.from_key_arn(stack, "Key", "arn:aws:kms:eu-west-1:123456789012:key/1")
    },
    "network": lambda stack: {
        "network": TrainingNetwork(
            stack,
            "Network",
            vpc=ec2.Vpc.from_vpc_attributes(
                stack,
                "Vpc",
                vpc_id="vpc-1",
                region="eu-west-1",
                availability_zones=["eu-west-1a"],
                private_subnet_ids=["subnet-1"],
            ),
        )
    },
    "training_plan": lambda stack: {"training_plan": PLAN_ELSEWHERE},
    "image": lambda stack: {
        "image": TrainingImage.from_uri(stack, "Uri", "123456789012.dkr.ecr.eu-west-1.amazonaws.com/jobs:1")
    },
}


# What a template has of each.
WHERE_IT_LIES = {
    "output": "s3://elsewhere/models/",
    "channels['images']": "s3://elsewhere/images/",
    "channels['images'].objects": "s3:::elsewhere/images/*",
    "channels['point']": ELSEWHERE,
    "checkpoints": "s3://elsewhere/checkpoints/",
    "spot.checkpoints": "s3://elsewhere/checkpoints/",
    "debugger.output": "s3://elsewhere/tensors/",
    "volume_key": "arn:aws:kms:eu-west-1:123456789012:key/1",
    "output_key": "arn:aws:kms:eu-west-1:123456789012:key/1",
    "network": "subnet-1",
    "training_plan": PLAN_ELSEWHERE,
    "image": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/jobs:1",
}


@pytest.mark.parametrize("prop", IN_ANOTHER_REGION)
def test_what_is_known_to_be_in_another_region_than_the_job_is_refused(prop: str) -> None:
    stack = Stack()
    message = message_of(lambda: stack.task(**IN_ANOTHER_REGION[prop](stack)))
    assert message.startswith(f"{prop} must be in the region of the stack, 'us-east-1', where its jobs run")
    assert message.endswith(", got 'eu-west-1'")


@pytest.mark.parametrize("prop", IN_ANOTHER_REGION)
def test_what_is_in_another_region_is_taken_where_that_of_the_stack_is_not_known(prop: str) -> None:
    stack = Stack(region=None)
    stack.workflow(**{"image": stack.image, **IN_ANOTHER_REGION[prop](stack)})
    assert WHERE_IT_LIES[prop] in str(resolved(stack.template()))


def test_the_training_plan_of_one_of_several_types_in_another_region_is_refused() -> None:
    group = InstanceGroup([InstancePreference("ml.p5.48xlarge", training_plan=PLAN_ELSEWHERE), "ml.p4d.24xlarge"])
    message = message_of(lambda: Stack().workflow(job=DataParallelJob(group)))
    assert message.startswith("training_plan must be in the region of the stack, 'us-east-1', where its jobs run")


def test_a_repository_of_another_region_is_refused() -> None:
    stack = Stack()
    repository = ecr.Repository.from_repository_arn(stack, "Repo", "arn:aws:ecr:eu-west-1:123456789012:repository/jobs")
    image = TrainingImage.from_ecr_repository(stack, "Jobs", repository, "1")
    assert message_of(lambda: stack.task(image=image)).endswith(", got 'eu-west-1'")


def test_a_bucket_of_another_stack_in_another_region_is_refused() -> None:
    app = cdk.App()
    theirs = cdk.Stack(app, "Theirs", env=cdk.Environment(account="123456789012", region="eu-west-1"))
    bucket = s3.Bucket(theirs, "Bucket", bucket_name="theirs-1")
    stack = Stack()
    assert message_of(lambda: stack.task(output=S3Prefix(bucket, "models/"))).startswith("output must be in the ")


def test_a_type_that_the_region_lacks_is_warned_of_with_regions_that_have_it() -> None:
    stack = Stack("eu-west-1")
    stack.workflow("ml.g6.xlarge")
    [text] = stack.warnings("instance-type-not-in-region")
    assert "'ml.g6.xlarge' is not among the instance types that EC2 offered in 'eu-west-1'" in text
    assert "eu-central-1" in text
    assert "or unlisted('ml.g6.xlarge') where AWS differs by now" in text


@pytest.mark.parametrize(
    ("region", "instance_type"),
    [
        ("us-east-1", "ml.g6.xlarge"),
        ("eu-west-1", unlisted("ml.g6.xlarge")),
        ("eu-west-1", "ml.p3.2xlarge"),
        ("us-gov-west-1", "ml.g6.xlarge"),
        (None, "ml.g6.xlarge"),
    ],
)
def test_a_type_is_not_warned_of_where_it_is_or_where_nothing_is_known(region: str | None, instance_type: str) -> None:
    stack = Stack(region)
    stack.task(instance_type)
    assert "instance-type-not-in-region" not in stack.warned()


def test_what_regions_lack_is_what_ec2_does_not_offer_there() -> None:
    spec = find_spec("moto")
    assert spec is not None
    assert spec.origin is not None
    recorded = Path(spec.origin).parent / "ec2" / "resources" / "instance_type_offerings" / "region"
    offers = {
        path.name.removesuffix(".json.gz"): {
            f"ml.{one['InstanceType']}" for one in json.loads(gzip.decompress(path.read_bytes()))
        }
        for path in recorded.glob("*.json.gz")
    }
    offered = set().union(*offers.values())
    for region, types in offers.items():
        assert {name for name in training_instance_types() if lacks(region, name)} == {
            name for name in training_instance_types() if name in offered and name not in types
        }
    assert {family(name) for name in training_instance_types() - offered} == {"p2", "p3", "p6e-gb200"}


def test_a_time_in_which_no_job_trains_is_warned_of() -> None:
    stack = Stack()
    stack.task(max_runtime=cdk.Duration.seconds(30))
    assert "max_runtime is 30 seconds, hardly more than" in stack.warnings("short-max-runtime")[0]


@pytest.mark.parametrize("seconds", [60, cdk.Duration.hours(1), None])
def test_a_time_in_which_a_job_may_train_is_not_warned_of(seconds: Any) -> None:
    stack = Stack()
    stack.task(max_runtime=seconds)
    assert stack.warnings() == []


@pytest.mark.parametrize("value", ["/opt/x:$PATH", "${PATH}:/opt/x", "/opt/x:${PATH:-/bin}"])
def test_a_variable_that_shall_add_to_the_images_own_is_warned_of(value: str) -> None:
    stack = Stack()
    stack.task(environment={"PATH": value})
    [warning] = stack.warnings("variable-not-expanded")
    assert f"like ENV PATH={value}" in warning
    other = Stack()
    other.task(environment={"PATH": "/bin:$HOME/bin", "HOME": "$PATHS", "PRICE": "5$"})
    assert other.warnings() == []


def test_an_expression_of_a_metric_that_is_none_is_refused_by_its_name() -> None:
    for made in (Stack().workflow, Stack().task):
        with pytest.raises(
            ValueError, match=r"^metric_definitions\['loss'\] must be a regular expression, .* position 6"
        ):
            made(metric_definitions={"loss": "loss=([0-9"})


def test_an_execution_that_ends_before_a_job_could_begin_is_warned_of() -> None:
    stack = Stack()
    stack.workflow(timeout=cdk.Duration.seconds(6))
    assert "timeout is 6 seconds" in stack.warnings("short-timeout")[0]


def test_an_execution_that_ends_before_a_job_may_is_warned_of() -> None:
    stack = Stack()
    stack.workflow(timeout=3600, max_runtime=7200)
    assert "timeout is 3600 seconds" in stack.warnings("timeout-before-max-runtime")[0]
    other = Stack()
    other.workflow(timeout=7200, max_runtime=7200)
    assert other.warnings() == []


def test_an_execution_that_ends_before_its_job_has_waited_or_its_retries_is_warned_of() -> None:
    stack = Stack()
    capacity = {Cause.CAPACITY: Retry(first_wait=600, until=86_400)}
    stack.workflow(timeout=7_200, max_runtime=3_600, max_pending=cdk.Duration.days(1), retries=capacity)
    [pending] = stack.warnings("timeout-before-max-pending")
    assert "timeout is 7200 seconds" in pending
    assert "max_pending lets the job wait for its machines for 86400" in pending
    [waits] = stack.warnings("timeout-before-retries")
    assert "the waits of retries of Cause.CAPACITY are 86400 together" in waits
    other = Stack()
    other.workflow(timeout=cdk.Duration.days(3), max_pending=cdk.Duration.days(1), retries=capacity)
    assert other.warnings() == []


def test_more_processes_than_accelerators_are_warned_of() -> None:
    stack = Stack()
    stack.task(job=DataParallelJob(InstanceGroup(GPU), launcher=Torchrun(processes_per_host=4)))
    assert (
        "4 processes share the 1 accelerators of ml.g5.xlarge" in stack.warnings("more-processes-than-accelerators")[0]
    )


def test_an_input_field_that_nothing_reads_is_warned_of() -> None:
    stack = Stack()
    group = InstanceGroup(sfn.JsonPath.string_at("$['machine']"))
    checkpoints = S3Prefix(stack.bucket, "checkpoints/")
    resumed = sfn.JsonPath.string_at("$.resume_from")
    fields = {"machine": TextField(), "resume_from": TextField(), "machin": TextField()}
    stack.workflow(job=DataParallelJob(group), checkpoints=checkpoints, resume_from=resumed, input_fields=fields)
    [text] = stack.warnings("unused-input-field")
    assert "input_fields['machin'] is in no prop of the job" in text


def test_an_entry_point_in_place_of_what_fetches_the_code_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    stack = Stack()
    stack.workflow(code=TrainingCode(str(tmp_path)), container_entrypoint=["python", "train.py"])
    assert stack.warned() == ["entrypoint-instead-of-code"]


def test_packages_that_a_job_without_a_network_installs_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    stack = Stack()
    stack.task(code=TrainingCode(str(tmp_path)), network_isolation=True)
    assert stack.warned() == []
    (tmp_path / "requirements.txt").write_text("einops")
    other = Stack()
    other.task(code=TrainingCode(str(tmp_path)), network_isolation=True)
    assert other.warned() == ["isolated-script-installs-packages"]


def vpc_of(stack: Stack, kind: str) -> ec2.IVpc | None:
    """A VPC with subnets of a kind; None for the network's own."""
    if kind == "imported":
        return ec2.Vpc.from_vpc_attributes(
            stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-east-1a"], private_subnet_ids=["subnet-1"]
        )
    return None if kind == "own" else ec2.Vpc(stack, "Vpc", nat_gateways=None if kind == "NAT" else 0)


@pytest.mark.parametrize(
    ("kind", "selected", "warned"),
    [
        ("own", None, True),
        ("NAT", None, False),
        ("imported", None, False),
        ("no NAT", ec2.SubnetType.PRIVATE_ISOLATED, True),
        ("NAT", ec2.SubnetType.PUBLIC, True),
    ],
)
def test_packages_that_hosts_without_a_route_to_the_internet_install_are_warned_of(
    tmp_path: Path, kind: str, selected: ec2.SubnetType | None, warned: bool
) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "requirements.txt").write_text("einops")
    subnets = None if selected is None else ec2.SubnetSelection(subnet_type=selected)

    def told(**environment: str) -> list[str]:
        stack = Stack()
        network = TrainingNetwork(stack, "Network", vpc=vpc_of(stack, kind), vpc_subnets=subnets)
        stack.task(code=TrainingCode(str(tmp_path)), network=network, environment=environment)
        return stack.warned()

    assert told() == ["network-without-egress-installs-packages"] * warned
    assert told(PIP_INDEX_URL="https://pypi.example.com") == told(CA_REPOSITORY_ARN="arn:aws:codeartifact:x") == []
    (tmp_path / "requirements.txt").unlink()
    assert told() == []
    (tmp_path / "train.py").write_text(
        "from transformers import AutoModel\nAutoModel.from_pretrained('bert-base-uncased')"
    )
    assert ("script-download" in told()) is warned
    assert "script-download" not in told(HF_ENDPOINT="https://hub.example.com")


def test_what_a_script_downloads_in_isolation_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\ntorch.hub.load('pytorch/vision', 'resnet18')\n")
    for isolated in (True, False):
        stack = Stack()
        stack.task(code=TrainingCode(str(tmp_path)), network_isolation=isolated)
        assert ("script-download" in stack.warned()) is isolated


SERVER = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/digits"


@pytest.mark.parametrize(
    ("props", "service"),
    [
        ({"remote_debug": True}, "ssmmessages"),
        ({"mlflow": Mlflow(SERVER)}, "experiments"),
        ({"mlflow": Mlflow(SERVER.replace("tracking-server", "app"))}, ""),
        ({}, ""),
    ],
)
def test_a_service_that_hosts_do_not_reach_is_warned_of(props: dict[str, Any], service: str) -> None:
    def told(kind: str, *endpoints: str) -> list[str]:
        stack = Stack()
        network = TrainingNetwork(stack, "Network", vpc=vpc_of(stack, kind), endpoints=endpoints)
        stack.workflow(network=network, **props)
        return stack.warnings("network-without-endpoint")

    assert [f"an endpoint of {service!r}" in text for text in told("own")] == [True] * bool(service)
    assert told("own", *filter(None, [service])) == told("NAT") == told("imported") == []


def test_the_services_of_endpoints_are_those_of_the_cdk() -> None:
    """A name that AWS does not have is refused when the stack is deployed."""
    services = ec2.InterfaceVpcEndpointAwsService
    named = [getattr(services, name) for name in dir(services) if name.isupper()]
    known = {(one.short_name, one.name.startswith("aws.sagemaker")) for one in named}
    assert {(service, service == "experiments") for service in PURPOSES} <= known
    stack = Stack()
    TrainingNetwork(stack, "Network", endpoints=["experiments"])
    stack.task()
    endpoints = [one for one in stack.template()["Resources"].values() if one["Type"] == "AWS::EC2::VPCEndpoint"]
    assert any("aws.sagemaker." in str(one["Properties"]["ServiceName"]) for one in endpoints)


def test_an_alias_of_a_volumes_key_is_refused() -> None:
    stack = Stack()
    imported = kms.Alias.from_alias_name(stack, "Imported", "alias/models")
    assert reads(
        message_of(lambda: stack.task(CPU, volume_key=imported)),
        "volume_key must be a key, of which SageMaker takes no alias ... got the alias 'alias/models'",
    )


def test_an_imported_alias_on_which_nothing_is_granted_is_warned_of() -> None:
    stack = Stack()
    stack.task(output_key=kms.Alias.from_alias_name(stack, "Imported", "alias/models"))
    assert "nothing is granted on a key that was imported by its alias" in stack.warnings("key-by-alias")[0]
    other = Stack()
    other.task(output_key=kms.Alias(other, "Alias", alias_name="alias/models", target_key=kms.Key(other, "Key")))
    assert other.warnings() == []


@pytest.mark.parametrize("place", [{"prefix": "lists/"}, {"prefix": "lists/", "subfolder": "digits/"}])
def test_a_folder_in_place_of_a_manifest_is_refused(place: dict[str, str]) -> None:
    bucket = Stack().bucket
    objects = S3Prefix(bucket, "images/")
    said = message_of(lambda: S3Channel(bucket, **place, data_type="ManifestFile", objects=objects))
    assert said.startswith("prefix must be the key of a manifest where data_type is 'ManifestFile'")


def test_a_channel_that_what_jobs_make_is_part_of_is_warned_of() -> None:
    stack = Stack()
    stack.task(channels={"all": S3Channel(stack.bucket)}, checkpoints=S3Prefix(stack.bucket, "checkpoints/"))
    texts = stack.warnings("channel-holds-output")
    for text, place in zip(texts, ("output at 'models/'", "checkpoints at 'checkpoints/'"), strict=True):
        assert f"channels['all'] contains every key that begins with '', so also {place}, and each job" in text


def test_a_channel_beside_what_jobs_make_is_not_warned_of() -> None:
    stack = Stack()
    other = s3.Bucket.from_bucket_name(stack, "Other", "other")
    stack.task(channels={"images": S3Channel(stack.bucket, "images/"), "other": S3Channel(other)})
    assert stack.warnings() == []


def test_the_warnings_can_be_acknowledged() -> None:
    stack = Stack()
    stack.task(CPU, max_runtime=cdk.Duration.seconds(2))
    for id in stack.warned():
        cdk.Annotations.of(stack).acknowledge_warning(f"cdk-sagemaker-training:{id}", "it is a trial")
    assert stack.warnings() == []


@pytest.mark.parametrize(
    ("make", "end"),
    [
        (lambda stack: stack.task(hyper_parameters={}), "'hyper_parameters', did you mean 'hyperparameters'?"),
        (lambda stack: InstanceGroup(GPU, instance_cont=2), "'instance_cont', did you mean 'instance_count'?"),
        (
            lambda stack: TrainingImage.from_dlc(stack, "Image", "pytorch", tags="2.13"),
            "'tags', did you mean 'tag'?",
        ),
        (
            lambda stack: TrainingWorkflow(stack, "Least", job=DataParallelJob(InstanceGroup(GPU)), image=stack.image),
            "missing required keyword argument 'output', like output=S3Prefix(bucket, 'models/')",
        ),
    ],
)
def test_a_misspelt_or_missing_prop_is_refused_with_what_was_meant(make: Callable[[Stack], Any], end: str) -> None:
    with pytest.raises(TypeError) as raised:
        make(Stack())
    assert str(raised.value).endswith(end)
