import json
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template
from stacks import reads

from cdk_sagemaker_training import TrainingImage, TrainingRole


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for path, text in {
        "common/job.py": "one",
        "kind/train.py": "two",
        "kind/notes.txt": "three",
        "kind/Dockerfile": "FROM python:3.11\nCOPY common /opt/common\nCOPY kind/*.py /opt/\n",
        "another/train.py": "four",
    }.items():
        (tmp_path / "src" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / path).write_text(text)
    return tmp_path / "src"


def staged(directory: Path, file: str = "kind/Dockerfile") -> tuple[str, list[str]]:
    """The hash of an image's asset, and the files in it."""
    app = cdk.App()
    image = TrainingImage.from_asset(cdk.Stack(app, "Stack"), "Image", directory=str(directory), file=file)
    assert image.asset is not None
    assembly = Path(app.synth().directory)
    [folder] = assembly.glob("asset.*")
    return image.asset.asset_hash, sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_an_image_takes_of_its_directory_what_its_dockerfile_copies(directory: Path) -> None:
    assert staged(directory)[1] == ["common/job.py", "kind/Dockerfile", "kind/train.py"]


def test_an_edit_to_what_is_not_copied_leaves_the_hash_alone(directory: Path) -> None:
    before, _ = staged(directory)
    (directory / "another" / "train.py").write_text("edited")
    assert staged(directory)[0] == before


def test_an_edit_to_what_is_copied_changes_the_hash(directory: Path) -> None:
    before, _ = staged(directory)
    (directory / "common" / "job.py").write_text("edited")
    assert staged(directory)[0] != before


def test_what_the_directorys_own_dockerignore_leaves_out_stays_out(directory: Path) -> None:
    (directory / ".dockerignore").write_text("common/job.py\n")
    (directory / "common" / "more.py").write_text("more")
    assert "common/job.py" not in staged(directory)[1]
    assert "common/more.py" in staged(directory)[1]


def test_a_dockerfile_that_copies_everything_takes_everything(directory: Path) -> None:
    (directory / "Dockerfile").write_text("FROM python:3.11\nCOPY . /opt/\n")
    assert "another/train.py" in staged(directory, "Dockerfile")[1]


def test_a_directory_without_a_dockerfile_is_refused_with_those_below_it(directory: Path) -> None:
    with pytest.raises(ValueError, match="directory must contain the Dockerfile that file names") as raised:
        staged(directory, "Dockerfile")
    assert reads(
        str(raised.value),
        f"directory must contain the Dockerfile that file names ... got {str(directory)!r} without 'Dockerfile'",
    )


def test_a_directory_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"directory must be a folder with a Dockerfile"):
        TrainingImage.from_asset(cdk.Stack(), "Image", directory="nowhere")


def test_a_source_that_is_not_there_is_refused_with_its_line(directory: Path) -> None:
    (directory / "kind" / "Dockerfile").write_text("FROM python:3.11\n\nCOPY kind/missing.py /opt/\n")
    with pytest.raises(ValueError, match=r"without 'kind/missing\.py' \(line 3 of kind/Dockerfile\)"):
        staged(directory)


def test_a_deep_learning_container_is_that_of_the_stacks_region() -> None:
    stack = cdk.Stack(cdk.App(), "Stack", env=cdk.Environment(account="123456789012", region="eu-west-1"))
    image = TrainingImage.from_dlc(stack, "Image", "pytorch-training", "2.6.0-gpu-py312")
    assert stack.resolve(image.image_uri) == {
        "Fn::Join": [
            "",
            ["763104351884.dkr.ecr.eu-west-1.", {"Ref": "AWS::URLSuffix"}, "/pytorch-training:2.6.0-gpu-py312"],
        ]
    }


def test_a_deep_learning_container_in_a_stack_without_a_region_is_looked_up_in_a_map() -> None:
    stack = cdk.Stack()
    image = TrainingImage.from_dlc(stack, "Image", "pytorch-training", "2.6.0-gpu-py312")
    cdk.CfnOutput(stack, "Uri", value=image.image_uri)
    TrainingImage.from_dlc(stack, "Other", "tensorflow-training", "2.21-gpu-py312")
    [accounts] = Template.from_stack(stack).to_json()["Mappings"].values()
    assert accounts["ap-east-1"] == {"account": "871362719292"}
    assert accounts["us-gov-west-1"] == {"account": "442386744353"}


# Those that CDK's own table does not have, and those of other partitions (image_uri_config of the SageMaker Python SDK).
@pytest.mark.parametrize(
    ("region", "account"),
    [
        ("af-south-1", "626614931356"),
        ("ap-northeast-3", "364406365360"),
        ("ap-southeast-5", "550225433462"),
        ("ap-southeast-7", "590183813437"),
        ("ca-west-1", "204538143572"),
        ("il-central-1", "780543022126"),
        ("mx-central-1", "637423239942"),
        ("us-gov-east-1", "446045086412"),
        ("us-gov-west-1", "442386744353"),
        ("us-iso-east-1", "886529160074"),
        ("us-isob-east-1", "094389454867"),
        ("us-isof-south-1", "454834333376"),
        ("cn-north-1", "727897471807"),
        ("eusc-de-east-1", "204133271717"),
    ],
)
def test_a_deep_learning_container_is_in_the_account_of_each_region(region: str, account: str) -> None:
    stack = cdk.Stack(cdk.App(), "Stack", env=cdk.Environment(account="123456789012", region=region))
    image = TrainingImage.from_dlc(stack, "Image", "pytorch-training", "2.6.0-gpu-py312")
    [registry, suffix, name] = stack.resolve(image.image_uri)["Fn::Join"][1]
    # CloudFormation has the suffix of each partition: amazonaws.com.cn, c2s.ic.gov, ...
    assert (registry, suffix) == (f"{account}.dkr.ecr.{region}.", {"Ref": "AWS::URLSuffix"})
    assert name == "/pytorch-training:2.6.0-gpu-py312"


def test_a_deep_learning_container_in_a_region_of_no_known_account_is_refused_unless_that_is_given() -> None:
    stack = cdk.Stack(cdk.App(), "Stack", env=cdk.Environment(account="123456789012", region="eu-nowhere-1"))
    with pytest.raises(ValueError) as raised:
        TrainingImage.from_dlc(stack, "Image", "pytorch-training", "2.6.0-gpu-py312")
    assert reads(
        str(raised.value),
        "account_id must be set in a region whose account for AWS's containers is not known ... got None in "
        "'eu-nowhere-1'",
    )
    other = TrainingImage.from_dlc(stack, "Other", "pytorch-training", "2.6.0-gpu-py312", account_id="111122223333")
    assert "111122223333.dkr.ecr.eu-nowhere-1." in json.dumps(stack.resolve(other.image_uri))


def test_a_deep_learning_container_may_be_pulled_by_the_role_that_is_granted_it() -> None:
    stack = cdk.Stack(cdk.App(), "Stack", env=cdk.Environment(account="123456789012", region="us-east-1"))
    TrainingImage.from_dlc(stack, "Image", "pytorch-training", "2.6.0-gpu-py312").grant_pull(
        TrainingRole(stack, "Role")
    )
    [policy] = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    [pull] = [
        statement
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if "ecr:BatchGetImage" in statement["Action"]
    ]
    assert pull["Resource"]["Fn::Join"][1][-1] == ":ecr:us-east-1:763104351884:repository/pytorch-training"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM python:3.11\nENV A='x\n", "kind/Dockerfile:2: ENV A='x: No closing quotation"),
        ("FROM python:3.11\nCOPY kind\n", "kind/Dockerfile:2: COPY kind: it has no source and destination"),
        ("FROM python:3.11\n\nWORKDIR /opt\nCOPY 'a b\n", "kind/Dockerfile:4: COPY 'a b"),
    ],
)
def test_a_file_that_docker_does_not_read_is_refused_with_its_line(directory: Path, text: str, said: str) -> None:
    (directory / "kind" / "Dockerfile").write_text(text)
    with pytest.raises(ValueError, match="file must be a Dockerfile that Docker reads") as raised:
        staged(directory)
    assert said in str(raised.value)
