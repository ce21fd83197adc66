"""What goes wrong from outside, and what the user is told: a request, a role, a bucket, a port, a kernel, a disk."""

import contextlib
import os
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from account_process import COMMAND, Serving
from botocore.config import Config
from botocore.exceptions import ClientError
from running_account import Running
from shell_jobs import BUCKET, IMAGE, ShellJobs, channel

MEGABYTE = 1024 * 1024
NOBODY = "arn:aws:iam::123456789012:role/Nobody"


@pytest.fixture(scope="module")
def jobs(running: Running) -> ShellJobs:
    return ShellJobs(running.account.environment(), running.account.state)


@pytest.fixture(scope="module")
def sagemaker(running: Running) -> Any:
    """A client that sends what it is given: boto3 itself refuses some of it."""
    return running.client("sagemaker", config=Config(parameter_validation=False))


def refusal(jobs: ShellJobs, sagemaker: Any, **members: Any) -> tuple[str, str]:
    """Code and message by which a request is refused; a member that is None is left out."""
    request = {name: value for name, value in jobs.request("refused", "true", **members).items() if value is not None}
    with pytest.raises(ClientError) as raised:
        sagemaker.create_training_job(**request)
    error = raised.value.response["Error"]
    return error["Code"], error["Message"]


def resources(**members: Any) -> dict[str, Any]:
    one = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    return {"ResourceConfig": {name: value for name, value in {**one, **members}.items() if value is not None}}


GROUP = {"InstanceType": "ml.m5.large", "InstanceCount": 1}
SIX_GROUPS = [{"InstanceGroupName": f"group-{number}", **GROUP} for number in range(6)]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"TrainingJobName": "n" * 64},
            "at 'trainingJobName' failed to satisfy constraint: Member must have length less",
        ),
        ({"HyperParameters": {f"p{number}": "1" for number in range(101)}}, "less than or equal to 100"),
        ({"InputDataConfig": [channel(f"c{number}", "s3://b/k") for number in range(21)]}, "less than or equal to 20"),
        (resources(InstanceType=None, InstanceCount=None, InstanceGroups=SIX_GROUPS), "less than or equal to 5"),
        (resources(InstanceType="ml.m5.tiny"), "Member must satisfy enum value set: ["),
        (
            resources(InstanceCount=-1),
            "at 'resourceConfig.instanceCount' failed to satisfy constraint: Member must have",
        ),
        (resources(InstanceCount=0), "InstanceCount of at least 1"),
        (resources(VolumeSizeInGB=0), "VolumeSizeInGB in ResourceConfig must be at least 1 for ml.m5.large"),
        ({"RoleArn": None}, "Value null at 'roleArn' failed to satisfy constraint: Member must not be null"),
        ({"OutputDataConfig": {}}, "Value null at 'outputDataConfig.s3OutputPath' failed to satisfy constraint"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 0}}, "Member must have value greater than or equal to 1"),
    ],
)
def test_a_request_beyond_the_services_limits_is_a_validation_exception(
    jobs: ShellJobs, sagemaker: Any, members: dict[str, Any], message: str
) -> None:
    code, said = refusal(jobs, sagemaker, **members)
    assert code == "ValidationException"
    assert message in said


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"HyperParameters": {"epochs": 3}}, "NUMBER_VALUE can not be converted to String: 'hyperParameters.epochs'"),
        (resources(InstanceCount="1"), "STRING_VALUE can not be converted to Integer: 'resourceConfig.instanceCount'"),
        ({"EnableManagedSpotTraining": "yes"}, "STRING_VALUE can not be converted to Boolean"),
        (
            {"HyperParameters": {"sizes": {"a": "1"}}},
            "START_OBJECT can not be converted to String: 'hyperParameters.sizes'",
        ),
    ],
)
def test_a_value_of_another_type_is_a_serialization_exception(
    jobs: ShellJobs, sagemaker: Any, members: dict[str, Any], message: str
) -> None:
    code, said = refusal(jobs, sagemaker, **members)
    assert code == "SerializationException"
    assert message in said


def test_a_role_that_does_not_exist_cannot_be_assumed(jobs: ShellJobs, sagemaker: Any) -> None:
    code, said = refusal(jobs, sagemaker, RoleArn=NOBODY)
    assert code == "ValidationException"
    assert said.startswith(f"Could not assume role {NOBODY}. Please ensure that the role exists")


@pytest.mark.parametrize(
    ("name", "principals", "effect"),
    [
        ("Lambdas", [{"Service": "lambda.amazonaws.com"}], "Allow"),
        ("People", [{"AWS": "arn:aws:iam::123456789012:root"}], "Allow"),
        ("Denied", [{"Service": "sagemaker.amazonaws.com"}], "Deny"),
    ],
)
def test_a_role_that_sagemaker_may_not_assume_is_refused(
    jobs: ShellJobs, sagemaker: Any, name: str, principals: list[dict[str, Any]], effect: str
) -> None:
    arn = jobs.make_role(name, *principals, effect=effect)
    code, said = refusal(jobs, sagemaker, RoleArn=arn)
    assert code == "ValidationException"
    assert said.startswith(f"Could not assume role {arn}.")
    assert f"the trust policy of {arn} does not let sagemaker.amazonaws.com assume it" in said


def test_a_role_that_several_services_may_assume_is_accepted(jobs: ShellJobs) -> None:
    role = jobs.make_role("Several", {"Service": ["lambda.amazonaws.com", "sagemaker.amazonaws.com"]})
    assert jobs.statuses([jobs.create("several", "true", RoleArn=role)]) == ["Completed"]


@pytest.fixture(scope="module")
def far_bucket(running: Running) -> str:
    s3 = running.client("s3")
    s3.create_bucket(Bucket="far-bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    s3.put_object(Bucket="far-bucket", Key="letters/a.txt", Body=b"a")
    return "far-bucket"


@pytest.mark.parametrize(
    ("members", "member"),
    [
        ({"OutputDataConfig": {"S3OutputPath": "s3://far-bucket/models"}}, "S3OutputPath of OutputDataConfig"),
        ({"InputDataConfig": [channel("letters", "s3://far-bucket/letters/")]}, "the channel letters"),
        ({"CheckpointConfig": {"S3Uri": "s3://far-bucket/checkpoints"}}, "S3Uri of CheckpointConfig"),
    ],
)
def test_a_bucket_of_another_region_is_refused_by_both_regions(
    jobs: ShellJobs, sagemaker: Any, far_bucket: str, members: dict[str, Any], member: str
) -> None:
    code, said = refusal(jobs, sagemaker, **members)
    assert code == "ValidationException"
    assert said.startswith(f"{member}: the bucket {far_bucket}")
    assert "is in eu-west-1, and the training job in us-east-1" in said


def test_an_output_bucket_that_does_not_exist_is_refused(jobs: ShellJobs, sagemaker: Any) -> None:
    code, said = refusal(jobs, sagemaker, OutputDataConfig={"S3OutputPath": "s3://no-such-bucket/models"})
    assert code == "ValidationException"
    assert "S3OutputPath of OutputDataConfig: 's3://no-such-bucket/models' cannot be used" in said
    assert "The specified bucket does not exist" in said


def test_a_channels_bucket_that_does_not_exist_is_refused_in_sagemakers_words(jobs: ShellJobs, sagemaker: Any) -> None:
    code, said = refusal(jobs, sagemaker, InputDataConfig=[channel("letters", "s3://no-such-bucket/letters/")])
    assert code == "ValidationException"
    assert said.startswith('No S3 objects found under S3 URL "s3://no-such-bucket/letters/" given in input data source')
    assert "the channel letters" in said
    assert "The specified bucket does not exist" in said


def test_a_name_that_no_bucket_can_have_is_refused(jobs: ShellJobs, sagemaker: Any) -> None:
    code, said = refusal(jobs, sagemaker, OutputDataConfig={"S3OutputPath": "s3://No Such Bucket/models"})
    assert code == "ValidationException"
    assert (
        said
        == "S3OutputPath of OutputDataConfig must name a bucket, like s3://bucket/prefix, got 's3://No Such Bucket/models'"
    )


def test_an_image_that_was_never_pushed_fails_the_job(jobs: ShellJobs) -> None:
    image = IMAGE.replace("shell:1", "shell:2")
    algorithm = {"TrainingImage": image, "TrainingInputMode": "File"}
    job = jobs.ended(jobs.create("unpushed", "true", AlgorithmSpecification=algorithm))
    assert job["FailureReason"].startswith(f"ClientError: Cannot find the requested image: {image}")


def test_a_port_in_use_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = subprocess.run([COMMAND, "--port", str(port)], cwd=tmp_path, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"local-account: cannot bind 127.0.0.1:{port} (Address already in use); stop the process that listens there, "
        "or choose another port with --port (0 for a free one)\n"
    )


def within(script: str) -> list[str]:
    """A command that runs another in user and mount namespaces of its own, after a shell script."""
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", f'{script}; exec "$@"', "sh"]


@pytest.fixture(scope="module")
def no_namespaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where no user namespace can be had: what the account says at its start, and a job there."""
    state = tmp_path_factory.mktemp("state")
    with Serving(state, within=within("echo 0 > /proc/sys/user/max_user_namespaces")) as serving:
        jobs = ShellJobs(serving.exports, state)
        job = jobs.ended(jobs.create("refused", "true"))
        yield serving.end(), job


def test_a_machine_without_namespaces_is_told_of_at_the_start(no_namespaces: tuple[str, dict[str, Any]]) -> None:
    [line] = no_namespaces[0].splitlines()
    assert line.startswith("local-account: warning: training jobs cannot run here: ")
    assert "`sudo sysctl user.max_user_namespaces=10000` would allow it" in line


def test_a_job_on_a_machine_without_namespaces_fails_by_the_setting_to_change(
    no_namespaces: tuple[str, dict[str, Any]],
) -> None:
    _, job = no_namespaces
    assert job["TrainingJobStatus"] == "Failed"
    assert "`sudo sysctl user.max_user_namespaces=10000` would allow it" in job["FailureReason"]


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShellJobs]:
    """An account whose state folder lies on a disk of 12 MB, of which an object takes 8 and a host may take all the rest."""
    state = tmp_path_factory.mktemp("state")
    disk = f"mount -t tmpfs -o size=12m none {shlex.quote(str(state))}"
    with Serving(state, "--host-disk", "100%", within=within(disk)) as serving:
        jobs = ShellJobs(serving.exports, Path(f"/proc/{serving.process.pid}/root{state}"))
        jobs.s3.put_object(Bucket=BUCKET, Key="large/data", Body=os.urandom(8 * MEGABYTE))
        yield jobs


@pytest.mark.soak  # fills a disk
def test_a_channel_larger_than_the_disk_fails_the_job_in_sagemakers_words(small_disk: ShellJobs) -> None:
    name = small_disk.create("download", "true", InputDataConfig=[channel("large", f"s3://{BUCKET}/large/")])
    job = small_disk.ended(name)
    assert job["FailureReason"].startswith("ClientError: Data download failed:Insufficient disk space")
    assert "No space left on device" in job["FailureReason"]


def test_a_model_that_leaves_no_space_for_its_archive_fails_the_job_in_sagemakers_words(small_disk: ShellJobs) -> None:
    name = small_disk.create("upload", "head -c 3000000 /dev/urandom > /opt/ml/model/model.bin")
    job = small_disk.ended(name)
    assert job["FailureReason"].startswith("ClientError: Artifact upload failed:Insufficient disk space")
    assert "No space left on device" in job["FailureReason"]


def test_an_account_lives_on_after_its_disk_was_full(small_disk: ShellJobs) -> None:
    with contextlib.suppress(OSError):
        small_disk.ended(small_disk.create("full", "cat /dev/urandom > /opt/ml/model/model.bin"))
    assert small_disk.statuses([small_disk.create("after", "true")]) == ["Completed"]
