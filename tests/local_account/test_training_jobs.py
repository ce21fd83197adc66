"""SageMaker's API of training jobs, as boto3 sees it, with jobs that run."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from running_account import NEWER_TYPE, Running
from shell_jobs import HOSTNAME

from sagemaker_local_account.aws.sagemaker import attempt
from sagemaker_local_account.aws.sagemaker.job_status import JobStatus
from sagemaker_local_account.faults import Capacity, Interruption, LostHost, Quota, ScheduledPlan
from sagemaker_local_account.images.image_store import ImageStore

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1"
AN_ERROR_RATHER_THAN_A_HANG = 120
# The image's one program: a shell command that each job gives as its argument.
DOCKERFILE = 'FROM python:3.11\nENTRYPOINT ["sh", "-ec"]\n'
CHECKPOINTS = "/opt/ml/checkpoints"
UNTIL_GO = "until test -e /opt/ml/output/go; do sleep 0.1; done"
ON_SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 86_400},
}


class Jobs:
    """The account with an image, a bucket and a role, and what a test asks of it."""

    def __init__(self, running: Running, folder: Path) -> None:
        self.running = running
        # Jobs may be listed twice a second: whoever lists more often waits, and gives up after two tries by botocore's default.
        patient = Config(retries={"mode": "standard", "total_max_attempts": 20})
        self.sagemaker, self.s3 = running.client("sagemaker", config=patient), running.client("s3")
        self.s3.create_bucket(Bucket="jobs-bucket")
        self.role = running.role("Jobs", "sagemaker.amazonaws.com", may_do_all=True)
        (folder / "Dockerfile").write_text(DOCKERFILE)
        store = ImageStore(running.account.state)
        store.build(folder, folder / "Dockerfile", [IMAGE])
        store.push(IMAGE)
        self._count = 0

    def request(self, program: str, **members: Any) -> dict[str, Any]:
        self._count += 1
        definitions = [{"Name": "loss", "Regex": "loss ([0-9.]+)"}]
        return {
            "TrainingJobName": f"job-{self._count}",
            "AlgorithmSpecification": {
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "ContainerArguments": [program],
                "MetricDefinitions": definitions,
            },
            "RoleArn": self.role,
            "OutputDataConfig": {"S3OutputPath": "s3://jobs-bucket/models"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            **members,
        }

    def create(self, program: str, **members: Any) -> str:
        request = self.request(program, **members)
        self.sagemaker.create_training_job(**request)
        return str(request["TrainingJobName"])

    def ended(self, name: str) -> dict[str, Any]:
        return self.until(name, lambda job: job["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"))

    def until(self, name: str, condition: Any) -> dict[str, Any]:
        limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
        while time.monotonic() < limit:
            job: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
            if condition(job):
                return job
            time.sleep(0.05)
        raise AssertionError(job)

    def run(self, program: str, **members: Any) -> dict[str, Any]:
        return self.ended(self.create(program, **members))

    def said(self, name: str) -> list[str]:
        events = self.running.client("logs").filter_log_events(
            logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{name}/"
        )["events"]
        return [event["message"] for event in events]

    def archive(self, uri: str) -> dict[str, str]:
        """The files in a .tar.gz in S3."""
        bucket, key = uri.removeprefix("s3://").split("/", 1)
        body = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            return {file.name: tar.extractfile(file).read().decode() for file in tar if file.isfile()}  # type: ignore[union-attr]

    def go(self, name: str, host: str = "algo-1") -> None:
        """Makes the file for which a job waits that runs `UNTIL_GO`."""
        (self.running.account.state / "jobs" / "us-east-1" / name / host / "opt" / "ml" / "output" / "go").touch()

    def has_object(self, key: str) -> bool:
        return "Contents" in self.s3.list_objects_v2(Bucket="jobs-bucket", Prefix=key)

    def put(self, key: str, text: str) -> None:
        self.s3.put_object(Bucket="jobs-bucket", Key=key, Body=text.encode())


@pytest.fixture(scope="module")
def jobs(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    folder = tmp_path_factory.mktemp("image")
    yield Jobs(running, folder)
    shutil.rmtree(folder)


def channel(name: str, prefix: str, **source: Any) -> dict[str, Any]:
    place = {"S3DataType": "S3Prefix", "S3Uri": f"s3://jobs-bucket/{prefix}", **source}
    return {"ChannelName": name, "DataSource": {"S3DataSource": place}}


def groups(**counts: int) -> dict[str, Any]:
    return {
        "VolumeSizeInGB": 1,
        "InstanceGroups": [
            {"InstanceGroupName": name, "InstanceType": "ml.m5.large", "InstanceCount": count}
            for name, count in counts.items()
        ],
    }


def test_a_job_goes_through_sagemakers_statuses_each_of_which_ends_when_the_next_begins(jobs: Jobs) -> None:
    job = jobs.run("true")
    assert job["TrainingJobStatus"] == "Completed"
    changes = job["SecondaryStatusTransitions"]
    assert [change["Status"] for change in changes] == [
        "Starting",
        "Downloading",
        "Training",
        "Uploading",
        "Completed",
    ]
    following = [*(change["StartTime"] for change in changes[1:]), job["TrainingEndTime"]]
    assert [change["EndTime"] for change in changes] == following
    assert job["LastModifiedTime"] == job["TrainingEndTime"]
    assert job["TrainingStartTime"] <= changes[1]["StartTime"] <= changes[2]["StartTime"]


def test_what_a_job_leaves_in_its_model_folder_is_its_artefact(jobs: Jobs) -> None:
    job = jobs.run("mkdir /opt/ml/model/deep && echo weights > /opt/ml/model/deep/model.bin")
    uri = job["ModelArtifacts"]["S3ModelArtifacts"]
    assert uri == f"s3://jobs-bucket/models/{job['TrainingJobName']}/output/model.tar.gz"
    assert jobs.archive(uri) == {"deep/model.bin": "weights\n"}


def test_of_an_empty_model_folder_nothing_is_uploaded_and_its_place_is_described_all_the_same(jobs: Jobs) -> None:
    job = jobs.run("echo step > /opt/ml/output/data/step")
    assert job["TrainingJobStatus"] == "Completed"
    output = f"models/{job['TrainingJobName']}/output"
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://jobs-bucket/{output}/model.tar.gz"
    found = jobs.s3.list_objects_v2(Bucket="jobs-bucket", Prefix=output)["Contents"]
    assert [one["Key"] for one in found] == [f"{output}/output.tar.gz"]


def test_all_hosts_models_are_one_artefact(jobs: Jobs) -> None:
    job = jobs.run(HOSTNAME + "echo $(hostname) > /opt/ml/model/$(hostname)", ResourceConfig=groups(one=1, two=2))
    assert jobs.archive(job["ModelArtifacts"]["S3ModelArtifacts"]) == {
        f"algo-{number}": f"algo-{number}\n" for number in (1, 2, 3)
    }


def test_output_data_is_an_archive_of_its_own(jobs: Jobs) -> None:
    job = jobs.run("echo figures > /opt/ml/output/data/report.txt")
    uri = f"s3://jobs-bucket/models/{job['TrainingJobName']}/output/output.tar.gz"
    assert jobs.archive(uri) == {"report.txt": "figures\n"}


def test_a_channel_is_a_folder_of_its_objects(jobs: Jobs) -> None:
    jobs.put("letters/a.txt", "a")
    jobs.put("letters/more/b.txt", "b")
    job = jobs.run(
        "cd /opt/ml/input/data/letters && cat a.txt more/b.txt", InputDataConfig=[channel("letters", "letters/")]
    )
    assert jobs.said(job["TrainingJobName"]) == ["ab"]


def test_a_sharded_channel_is_dealt_out_to_the_hosts_that_get_it(jobs: Jobs) -> None:
    for number in range(4):
        jobs.put(f"shards/{number}", str(number))
    job = jobs.run(
        HOSTNAME + "echo $(hostname) $(ls /opt/ml/input/data/shards || true)",
        ResourceConfig=groups(one=2, two=1),
        InputDataConfig=[
            channel("shards", "shards/", S3DataDistributionType="ShardedByS3Key", InstanceGroupNames=["one"])
        ],
    )
    said = sorted(line for line in jobs.said(job["TrainingJobName"]) if line.startswith("algo"))
    assert said == ["algo-1 0 2", "algo-2 1 3", "algo-3"]


def test_a_manifest_names_a_channels_objects(jobs: Jobs) -> None:
    jobs.put("letters/a.txt", "a")
    jobs.put("manifest.json", json.dumps([{"prefix": "s3://jobs-bucket/letters/"}, "a.txt"]))
    listed = channel("letters", "manifest.json", S3DataType="ManifestFile")
    job = jobs.run("find /opt/ml/input/data -type f", InputDataConfig=[listed])
    assert jobs.said(job["TrainingJobName"]) == ["/opt/ml/input/data/letters/a.txt"]


def test_a_prefix_matches_the_names_that_begin_with_it_too_which_keep_what_differs(jobs: Jobs) -> None:
    for key in ("pictures/1", "pictures-old/2"):
        jobs.put(key, "a picture")
    program = "cd /opt/ml/input/data/pictures; find . -type f | sort"
    job = jobs.run(program, InputDataConfig=[channel("pictures", "pictures")])
    assert jobs.said(job["TrainingJobName"]) == ["./1", "./pictures-old/2"]


def test_a_prefix_without_objects_fails_the_job_and_names_channel_and_place(jobs: Jobs) -> None:
    job = jobs.run("true", InputDataConfig=[channel("letters", "nothing/")])
    assert job["TrainingJobStatus"] == "Failed"
    assert "s3://jobs-bucket/nothing/" in job["FailureReason"]
    assert "letters" in job["FailureReason"]


def test_the_resource_configuration_is_the_documented_one(jobs: Jobs) -> None:
    job = jobs.run("cat /opt/ml/input/config/resourceconfig.json", ResourceConfig=groups(one=1, two=1))
    first, _ = sorted(
        (json.loads(line) for line in jobs.said(job["TrainingJobName"])), key=lambda it: it["current_host"]
    )
    assert first == {
        "current_group_name": "one",
        "current_host": "algo-1",
        "current_instance_type": "ml.m5.large",
        "hosts": ["algo-1", "algo-2"],
        "instance_groups": [
            {"instance_group_name": "one", "instance_type": "ml.m5.large", "hosts": ["algo-1"]},
            {"instance_group_name": "two", "instance_type": "ml.m5.large", "hosts": ["algo-2"]},
        ],
        "network_interface_name": "eth0",
    }


def test_a_hosts_environment_has_the_jobs_own_and_the_roles_credentials(jobs: Jobs) -> None:
    job = jobs.run("echo $GREETING $TRAINING_JOB_NAME; test -n $AWS_SESSION_TOKEN", Environment={"GREETING": "hello"})
    assert jobs.said(job["TrainingJobName"]) == [f"hello {job['TrainingJobName']}"]


def test_the_last_value_of_a_metric_is_in_the_description(jobs: Jobs) -> None:
    job = jobs.run("echo loss 0.5; echo loss 0.25; echo loss none")
    [metric] = job["FinalMetricDataList"]
    assert (metric["MetricName"], metric["Value"]) == ("loss", 0.25)


def test_metrics_are_in_cloudwatch(jobs: Jobs) -> None:
    job = jobs.run("echo loss 0.5")
    found = jobs.running.client("cloudwatch").list_metrics(Namespace="/aws/sagemaker/TrainingJobs", MetricName="loss")
    jobs_of = [dimension["Value"] for metric in found["Metrics"] for dimension in metric["Dimensions"]]
    assert job["TrainingJobName"] in jobs_of


def test_checkpoints_are_kept_and_come_back(jobs: Jobs) -> None:
    kept = {"S3Uri": "s3://jobs-bucket/checkpoints"}
    jobs.run("echo 7 > /opt/ml/checkpoints/epoch", CheckpointConfig=kept)
    job = jobs.run("cat /opt/ml/checkpoints/epoch", CheckpointConfig=kept)
    assert jobs.said(job["TrainingJobName"]) == ["7"]


def test_checkpoints_are_in_s3_while_the_job_runs(jobs: Jobs) -> None:
    kept = {"S3Uri": "s3://jobs-bucket/running"}
    name = jobs.create(f"touch {CHECKPOINTS}/first; {UNTIL_GO}; touch {CHECKPOINTS}/last", CheckpointConfig=kept)
    jobs.until(name, lambda job: jobs.has_object("running/first"))
    jobs.go(name)
    assert jobs.ended(name)["TrainingJobStatus"] == "Completed"
    assert jobs.has_object("running/last")


def test_checkpoints_that_a_script_removes_are_deleted(jobs: Jobs) -> None:
    kept = {"S3Uri": "s3://jobs-bucket/pruned"}
    jobs.run("cd /opt/ml/checkpoints; touch step-1 step-2", CheckpointConfig=kept)
    jobs.run("cd /opt/ml/checkpoints; rm step-1", CheckpointConfig=kept)
    [left] = jobs.s3.list_objects_v2(Bucket="jobs-bucket", Prefix="pruned/")["Contents"]
    assert left["Key"] == "pruned/step-2"


def test_a_failure_file_becomes_the_failure_reason(jobs: Jobs) -> None:
    job = jobs.run("echo the digits are missing > /opt/ml/output/failure; exit 3")
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"] == "AlgorithmError: the digits are missing, exit code: 3"


def test_what_a_job_that_fails_leaves_in_its_folders_is_uploaded(jobs: Jobs) -> None:
    job = jobs.run("echo half > /opt/ml/model/model.bin; echo figures > /opt/ml/output/data/report.txt; exit 3")
    assert job["TrainingJobStatus"] == "Failed"
    uri = job["ModelArtifacts"]["S3ModelArtifacts"]
    assert jobs.archive(uri) == {"model.bin": "half\n"}
    assert jobs.archive(uri.replace("model.tar.gz", "output.tar.gz")) == {"report.txt": "figures\n"}


def test_artefacts_are_encrypted_with_the_outputs_key(jobs: Jobs) -> None:
    key = jobs.running.client("kms").create_key()["KeyMetadata"]["Arn"]
    output = {"S3OutputPath": "s3://jobs-bucket/encrypted", "KmsKeyId": key}
    job = jobs.run("touch /opt/ml/model/model.bin", OutputDataConfig=output)
    kept = jobs.s3.head_object(Bucket="jobs-bucket", Key=f"encrypted/{job['TrainingJobName']}/output/model.tar.gz")
    assert (kept["ServerSideEncryption"], kept["SSEKMSKeyId"]) == ("aws:kms", key)


def test_a_line_without_text_is_a_space_in_the_log(jobs: Jobs) -> None:
    assert jobs.said(jobs.run("echo first; echo; echo last")["TrainingJobName"]) == ["first", " ", "last"]


def test_a_host_that_fails_without_a_message_is_named_with_its_exit_code_and_last_lines(jobs: Jobs) -> None:
    job = jobs.run(
        HOSTNAME
        + "test $(hostname) = algo-1 && sleep 1000; for n in $(seq 30); do echo step $n; done; echo no digits >&2; exit 9",
        ResourceConfig=groups(one=1, two=1),
    )
    first, *lines, last = job["FailureReason"].split("\n")
    assert first == "AlgorithmError: the command on algo-2 of two ended; its last lines:"
    assert lines == [f"step {n}" for n in range(12, 31)]
    assert last == "no digits, exit code: 9"


def test_a_host_that_a_signal_ends_is_named_with_the_signal(jobs: Jobs) -> None:
    # A signal that process 1 does not handle does not reach it, but for those of its own faults, such as this one.
    job = jobs.run("exec python -c 'import ctypes; print(1, flush=True); ctypes.string_at(0)'")
    assert job["FailureReason"] == (
        "AlgorithmError: the command on algo-1 was ended by SIGSEGV; its last lines:\n1, exit code: 139"
    )


def test_of_several_hosts_that_fail_the_first_is_named(jobs: Jobs) -> None:
    # algo-2 ends by what the failure of algo-1 brings about.
    program = HOSTNAME + "test $(hostname) = algo-1 && exit 5; trap 'exit 6' TERM; while :; do sleep 0.1; done"
    job = jobs.run(program, ResourceConfig=groups(one=1, two=1))
    assert job["FailureReason"] == "AlgorithmError: the command on algo-1 of one ended, exit code: 5"


def test_a_script_that_takes_algo_1_for_a_host_of_the_first_group_fails_where_a_seed_deals_it_to_another(
    jobs: Jobs,
) -> None:
    jobs.running.account.jobs.host_seed = 0  # the groups' order
    first = HOSTNAME + "test $(hostname) != algo-1 || grep -q 'current_group_name.: .first' /opt/ml/input/config/res*"
    try:
        assert jobs.run(first, ResourceConfig=groups(first=1, second=1))["TrainingJobStatus"] == "Completed"
        jobs.running.account.jobs.host_seed = 1
        assert jobs.run(first, ResourceConfig=groups(first=1, second=1))["TrainingJobStatus"] == "Failed"
    finally:
        jobs.running.account.jobs.host_seed = None


def test_a_host_that_fails_ends_the_others(jobs: Jobs) -> None:
    job = jobs.run(HOSTNAME + "test $(hostname) = algo-1 && exit 1; sleep 1000", ResourceConfig=groups(one=1, two=1))
    assert job["TrainingJobStatus"] == "Failed"


def test_the_other_hosts_have_a_sigterm_and_three_seconds_before_they_are_killed(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attempt.PEERS_SECONDS == 3
    monkeypatch.setattr(attempt, "PEERS_SECONDS", AN_ERROR_RATHER_THAN_A_HANG)
    first = f"{UNTIL_GO}; exit 1"
    second = f"trap 'echo notice' TERM; echo ready; {UNTIL_GO}; touch /opt/ml/model/saved"
    program = f"if grep -q 't_host\": \"algo-1' /opt/ml/input/config/res*; then {first}; else {second}; fi"
    name = jobs.create(program, ResourceConfig=groups(one=1, two=1))
    jobs.until(name, lambda job: _has_said(jobs, name, "ready"))
    jobs.go(name, "algo-1")
    jobs.until(name, lambda job: job["TrainingJobStatus"] == "Failed" or _has_said(jobs, name, "notice"))
    jobs.go(name, "algo-2")
    assert jobs.archive(jobs.ended(name)["ModelArtifacts"]["S3ModelArtifacts"]) == {"saved": ""}


def test_a_job_that_is_stopped_gets_a_sigterm_and_keeps_its_model(jobs: Jobs) -> None:
    name = jobs.create(
        "trap 'echo saved > /opt/ml/model/model.bin; exit' TERM; echo ready; while :; do sleep 0.1; done"
    )
    jobs.until(name, lambda job: job["SecondaryStatus"] == "Training" and _has_said(jobs, name, "ready"))
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    job = jobs.ended(name)
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert jobs.archive(job["ModelArtifacts"]["S3ModelArtifacts"]) == {"model.bin": "saved\n"}


def test_a_job_whose_time_is_over_is_stopped(jobs: Jobs) -> None:
    job = jobs.run("trap exit TERM; while :; do sleep 0.1; done", StoppingCondition={"MaxRuntimeInSeconds": 1})
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")


def test_a_command_that_does_not_handle_sigterm_is_killed_when_the_120_seconds_are_over(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attempt.STOP_SECONDS == 120
    monkeypatch.setattr(attempt, "STOP_SECONDS", 0.5)
    # Moved, so that what is there when it is killed is whole.
    name = jobs.create("echo ready; cd /opt/ml/model; while :; do date +%s.%N > new; mv new last; done")
    jobs.until(name, lambda job: job["SecondaryStatus"] == "Training" and _has_said(jobs, name, "ready"))
    before = time.time()
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    last = float(jobs.archive(jobs.ended(name)["ModelArtifacts"]["S3ModelArtifacts"])["last"])
    assert last > before + 0.4


def test_a_spot_job_has_the_same_time_after_the_sigterm_of_an_interruption_to_save_its_checkpoints(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "PEERS_SECONDS", 0)
    jobs.running.account.faults.add(Interruption("ready", away=3_600))
    name = jobs.create(
        f"trap 'echo notice' TERM; echo ready; {UNTIL_GO}; touch {CHECKPOINTS}/saved",
        CheckpointConfig={"S3Uri": "s3://jobs-bucket/noticed"},
        **ON_SPOT,
    )
    jobs.until(name, lambda job: job["SecondaryStatus"] == "Interrupted" or _has_said(jobs, name, "notice"))
    jobs.go(name)
    jobs.until(name, lambda job: job["SecondaryStatus"] == "Interrupted")
    assert jobs.has_object("noticed/saved")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.ended(name)["TrainingJobStatus"] == "Stopped"


@pytest.mark.parametrize(
    ("status", "program", "kept"),
    [
        ("Starting", "true", {}),
        ("Downloading", "true", {}),
        ("Training", "trap exit TERM; while :; do sleep 0.1; done", {}),
        ("Uploading", "echo trained > /opt/ml/model/model.bin", {"model.bin": "trained\n"}),
        ("Restarting", "echo first; sleep 100", {}),
        ("Interrupted", "trap exit TERM; echo first; while :; do sleep 0.1; done", {}),
    ],
)
def test_a_job_that_is_stopped_in_a_status_enters_no_other_but_stopping_and_stopped(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, status: str, program: str, kept: dict[str, str]
) -> None:
    faults = {"Restarting": LostHost("first"), "Interrupted": Interruption("first", away=3_600)}
    members: dict[str, Any] = {
        "Restarting": {"RetryStrategy": {"MaximumRetryAttempts": 1}},
        "Interrupted": ON_SPOT,
    }
    if status in faults:
        jobs.running.account.faults.add(faults[status])
    request = jobs.request(program, **members.get(status, {}))
    name, entered = request["TrainingJobName"], JobStatus.change

    def stopped_there(job: JobStatus, secondary: str, message: str, **options: Any) -> None:
        entered(job, secondary, message, **options)
        # By the job itself, so that it is in the status; the first message of Starting is that of its creation.
        own = threading.current_thread().name == job.request["TrainingJobName"] == name
        if own and secondary == wanted and job.current == "InProgress":
            jobs.sagemaker.stop_training_job(TrainingJobName=name)

    wanted = status
    monkeypatch.setattr(JobStatus, "change", stopped_there)
    jobs.sagemaker.create_training_job(**request)
    job = jobs.ended(name)
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert [change["Status"] for change in job["SecondaryStatusTransitions"]][-3:] == [status, "Stopping", "Stopped"]
    assert "FailureReason" not in job
    assert (jobs.archive(job["ModelArtifacts"]["S3ModelArtifacts"]) if kept else {}) == kept


def test_a_job_that_is_over_cannot_be_stopped(jobs: Jobs) -> None:
    job = jobs.run("true")
    with pytest.raises(ClientError, match="is in status Completed"):
        jobs.sagemaker.stop_training_job(TrainingJobName=job["TrainingJobName"])


def test_a_quota_has_room_for_as_many_machines_as_it_says(jobs: Jobs) -> None:
    quota = jobs.running.account.faults.add(Quota("ml.c5.4xlarge", 2, times=None))
    machines = {"InstanceType": "ml.c5.4xlarge", "VolumeSizeInGB": 1}
    name = jobs.create(f"echo ready; {UNTIL_GO}", ResourceConfig={**machines, "InstanceCount": 2})
    with pytest.raises(ClientError, match="current utilization of 2 Instances and a request delta of 1 Instances"):
        jobs.create("true", ResourceConfig={**machines, "InstanceCount": 1})
    jobs.until(name, lambda job: _has_said(jobs, name, "ready") and jobs.said(name) == ["ready"] * 2)
    for host in ("algo-1", "algo-2"):
        jobs.go(name, host)
    jobs.ended(name)
    jobs.run("true", ResourceConfig={**machines, "InstanceCount": 1})
    jobs.running.account.faults.mend(quota)


def test_a_name_in_use_is_refused(jobs: Jobs) -> None:
    request = jobs.request("true")
    jobs.sagemaker.create_training_job(**request)
    with pytest.raises(jobs.sagemaker.exceptions.ResourceInUse):
        jobs.sagemaker.create_training_job(**request)


def test_an_image_that_was_not_pushed_fails_the_job(jobs: Jobs) -> None:
    algorithm = {"TrainingImage": IMAGE.replace("jobs:1", "jobs:2"), "TrainingInputMode": "File"}
    job = jobs.run("true", AlgorithmSpecification=algorithm)
    assert "Cannot find the requested image" in job["FailureReason"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"RoleArn": "arn:aws:iam::123456789012:role/Nobody"}, "Could not assume role"),
        ({"TrainingJobName": "a b"}, "failed to satisfy constraint: Member must satisfy regular expression pattern"),
        ({"HyperParameters": {"text": "x" * 2501}}, "less than or equal to 2500"),
        (
            {"ResourceConfig": {**groups(one=1), "InstanceType": "ml.m5.large", "InstanceCount": 1}},
            "cannot be specified with InstanceGroups",
        ),
        ({"ResourceConfig": {**groups(one=1), "KeepAlivePeriodInSeconds": 60}}, "KeepAlivePeriodInSeconds"),
        (
            {"InputDataConfig": [{**channel("pipe", "letters/"), "InputMode": "Pipe"}]},
            "input mode must be File or FastFile",
        ),
        (
            {
                "ResourceConfig": groups(one=1),
                "InputDataConfig": [channel("a", "a/", InstanceGroupNames=["one"]), channel("b", "b/")],
            },
            "must be specified for all channels or for none",
        ),
        (
            {"ResourceConfig": groups(one=1), "InputDataConfig": [channel("a", "a/", InstanceGroupNames=["two"])]},
            "names instance groups that ResourceConfig does not have",
        ),
        ({"EnableManagedSpotTraining": True}, "MaxWaitTimeInSeconds must be at least"),
    ],
)
def test_a_request_that_sagemaker_refuses_is_refused(jobs: Jobs, members: dict[str, Any], message: str) -> None:
    with pytest.raises(ClientError, match="ValidationException") as raised:
        jobs.create("true", **members)
    assert message in str(raised.value)


def test_an_operation_that_is_not_served_is_refused_by_name(jobs: Jobs) -> None:
    with pytest.raises(ClientError, match="the local account does not have SageMaker's ListEndpoints"):
        jobs.sagemaker.list_endpoints()


def test_jobs_are_listed_by_name_status_and_time(jobs: Jobs) -> None:
    first, second = (jobs.run("true", TrainingJobName=f"listed-{number}")["TrainingJobName"] for number in (1, 2))

    def listed(**filters: Any) -> list[str]:
        pages = jobs.sagemaker.get_paginator("list_training_jobs").paginate(NameContains="listed", **filters)
        return [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]

    assert listed(SortOrder="Ascending") == [first, second]
    assert listed(SortBy="Name", SortOrder="Descending", MaxResults=1) == [second, first]
    assert listed(StatusEquals="InProgress") == []
    described = jobs.sagemaker.describe_training_job(TrainingJobName=first)
    assert listed(CreationTimeAfter=described["CreationTime"]) == [second]


def test_a_page_of_jobs_is_filtered_by_status_after_it_is_taken(jobs: Jobs) -> None:
    for number in (1, 2):
        jobs.run("true", TrainingJobName=f"paged-{number}")
    running = jobs.create("sleep 600", TrainingJobName="paged-3")
    page = jobs.sagemaker.list_training_jobs(NameContains="paged", StatusEquals="InProgress", MaxResults=2)
    assert page["TrainingJobSummaries"] == []
    following = jobs.sagemaker.list_training_jobs(
        NameContains="paged", StatusEquals="InProgress", MaxResults=2, NextToken=page["NextToken"]
    )
    jobs.sagemaker.stop_training_job(TrainingJobName=running)
    assert [job["TrainingJobName"] for job in following["TrainingJobSummaries"]] == [running]


def test_jobs_are_listed_at_most_twice_a_second(jobs: Jobs) -> None:
    once = jobs.running.client("sagemaker", config=Config(retries={"total_max_attempts": 1}))

    def list_often() -> None:
        for _ in range(10):
            once.list_training_jobs()

    with pytest.raises(ClientError, match=r"\(ThrottlingException\).* Rate exceeded"):
        list_often()


def test_tags_are_added_listed_and_deleted(jobs: Jobs) -> None:
    arn = jobs.run("true", Tags=[{"Key": "team", "Value": "vision"}])["TrainingJobArn"]
    jobs.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "cost", "Value": "low"}])
    jobs.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["team"])
    assert jobs.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "cost", "Value": "low"}]


def test_a_job_leaves_no_folder(jobs: Jobs) -> None:
    name = jobs.run("true")["TrainingJobName"]
    assert not (jobs.running.account.state / "jobs" / "us-east-1" / name).exists()


def _statuses(job: dict[str, Any]) -> list[str]:
    return [change["Status"] for change in job["SecondaryStatusTransitions"]]


def _has_said(jobs: Jobs, name: str, line: str) -> bool:
    logs = jobs.running.client("logs")
    try:
        return line in jobs.said(name)
    except logs.exceptions.ResourceNotFoundException:
        return False


def test_a_model_that_shall_not_be_compressed_lies_in_s3_as_it_is(jobs: Jobs) -> None:
    output = {"S3OutputPath": "s3://jobs-bucket/plain", "CompressionType": "NONE"}
    job = jobs.run("mkdir /opt/ml/model/a; echo b > /opt/ml/model/a/b", OutputDataConfig=output)
    place = job["ModelArtifacts"]["S3ModelArtifacts"]
    assert place == f"s3://jobs-bucket/plain/{job['TrainingJobName']}/output/model/"
    key = f"{place.removeprefix('s3://jobs-bucket/')}a/b"
    assert jobs.s3.get_object(Bucket="jobs-bucket", Key=key)["Body"].read() == b"b\n"


def test_an_isolated_job_reaches_its_peers_and_neither_the_account_nor_its_credentials(jobs: Jobs) -> None:
    port = jobs.running.account.endpoint_url.rpartition(":")[2]
    connect = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
    program = (
        "env | grep -c -E 'AWS_ACCESS_KEY_ID|AWS_ENDPOINT_URL' || true; getent hosts algo-2 | wc -l; "
        f'python3 -c "{connect}" 2>&1 | tail -1'
    )
    name = jobs.create(
        program,
        EnableNetworkIsolation=True,
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1},
    )
    assert jobs.ended(name)["TrainingJobStatus"] == "Completed"
    said = jobs.said(name)
    assert sorted(line for line in said if line.isdigit()) == ["0", "0", "1", "1"]
    assert sum("ConnectionRefusedError" in line for line in said) == 2


def test_a_job_that_shall_be_tried_again_restarts_after_a_host_was_lost(jobs: Jobs) -> None:
    jobs.running.account.faults.add(LostHost("first", times=1))
    # On the second machine there are the checkpoints, and nothing else that was written before.
    program = (
        "cd /opt/ml; test -e model/first && exit 3; test -e checkpoints/first && exit; "
        f"touch model/first checkpoints/first; {UNTIL_GO}; echo first; sleep 100"
    )
    name = jobs.create(
        program,
        RetryStrategy={"MaximumRetryAttempts": 1},
        CheckpointConfig={"S3Uri": "s3://jobs-bucket/tried-again"},
    )
    jobs.until(name, lambda job: jobs.has_object("tried-again/first"))
    jobs.go(name)
    assert _statuses(jobs.ended(name)) == [
        "Starting",
        "Downloading",
        "Training",
        "Restarting",
        "Starting",
        "Downloading",
        "Training",
        "Uploading",
        "Completed",
    ]


def test_a_job_is_tried_again_at_most_as_often_as_it_says(jobs: Jobs) -> None:
    lost = jobs.running.account.faults.add(LostHost("again and again", times=None))
    name = jobs.create(f"echo again and again; {UNTIL_GO}", RetryStrategy={"MaximumRetryAttempts": 1})
    job = jobs.until(name, lambda job: _statuses(job).count("Training") == 3 or job["TrainingJobStatus"] == "Failed")
    jobs.running.account.faults.mend(lost)
    assert (_statuses(job).count("Training"), job["TrainingJobStatus"]) == (2, "Failed")
    assert job["FailureReason"].startswith("InternalServerError: the host algo-1 was lost")


def test_a_script_that_fails_is_not_tried_again(jobs: Jobs) -> None:
    job = jobs.run("exit 3", RetryStrategy={"MaximumRetryAttempts": 3})
    assert job["TrainingJobStatus"] == "Failed"
    assert "Restarting" not in [change["Status"] for change in job["SecondaryStatusTransitions"]]


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"TensorBoardOutputConfig": {"S3OutputPath": "s3://jobs-bucket/"}}, "TensorBoardOutputConfig"),
        ({"RemoteDebugConfig": {"EnableRemoteDebug": True}}, "RemoteDebugConfig.EnableRemoteDebug"),
        ({"ExperimentConfig": {"ExperimentName": "mine"}}, "ExperimentConfig"),
    ],
)
def test_a_member_that_the_account_does_not_have_is_refused_by_name(
    jobs: Jobs, members: dict[str, Any], named: str
) -> None:
    with pytest.raises(ClientError, match=f"the local account does not support {named} of CreateTrainingJob: "):
        jobs.create("true", **members)


def test_what_is_switched_off_is_not_refused(jobs: Jobs) -> None:
    job = jobs.run("true", RemoteDebugConfig={"EnableRemoteDebug": False}, ProfilerConfig={"DisableProfiler": True})
    assert job["TrainingJobStatus"] == "Completed"


PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
ON_A_GPU = {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1}
AN_HOUR = 3600
PENDING_FOR_AN_HOUR = {"MaxRuntimeInSeconds": 600, "MaxPendingTimeInSeconds": AN_HOUR}


def is_pending(job: dict[str, Any]) -> bool:
    return bool(job["SecondaryStatus"] == "Pending")


def test_a_job_of_a_training_plan_that_is_active_runs(jobs: Jobs) -> None:
    job = jobs.run("true", ResourceConfig={**ON_A_GPU, "TrainingPlanArn": PLAN})
    assert job["TrainingJobStatus"] == "Completed"


def test_a_job_is_pending_until_its_training_plan_starts_which_does_not_count(jobs: Jobs) -> None:
    faults = jobs.running.account.faults
    scheduled = faults.add(ScheduledPlan(PLAN, times=None))
    name = jobs.create(
        "true", ResourceConfig={**ON_A_GPU, "TrainingPlanArn": PLAN}, StoppingCondition=PENDING_FOR_AN_HOUR
    )
    jobs.until(name, is_pending)
    jobs.running.account.clock.advance(72 * AN_HOUR)
    faults.mend(scheduled)
    job = jobs.ended(name)
    assert job["TrainingJobStatus"] == "Completed"
    assert [change["Status"] for change in job["SecondaryStatusTransitions"]][:3] == ["Starting", "Pending", "Starting"]


def test_a_job_that_waits_for_its_training_plan_can_be_stopped(jobs: Jobs) -> None:
    faults = jobs.running.account.faults
    scheduled = faults.add(ScheduledPlan(PLAN, times=None))
    name = jobs.create("true", ResourceConfig={**ON_A_GPU, "TrainingPlanArn": PLAN})
    jobs.until(name, is_pending)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.ended(name)["TrainingJobStatus"] == "Stopped"
    faults.mend(scheduled)


def test_a_job_that_waits_for_capacity_is_stopped_after_its_pending_time(jobs: Jobs) -> None:
    faults = jobs.running.account.faults
    lacking = faults.add(Capacity("ml.g5.xlarge", times=None))
    name = jobs.create("true", ResourceConfig=ON_A_GPU, StoppingCondition=PENDING_FOR_AN_HOUR)
    jobs.until(name, is_pending)
    jobs.running.account.clock.advance(AN_HOUR)
    job = jobs.ended(name)
    faults.mend(lacking)
    assert job["TrainingJobStatus"] == "Stopped"
    assert job["SecondaryStatusTransitions"][-1]["StatusMessage"] == (
        "Training job pending time exceeded MaxPendingTimeInSeconds provided"
    )


def test_a_job_on_machines_without_accelerators_waits_for_no_capacity(jobs: Jobs) -> None:
    jobs.running.account.faults.add(Capacity("ml.m5.large", times=1))
    job = jobs.run("true", StoppingCondition=PENDING_FOR_AN_HOUR)
    assert job["FailureReason"].startswith("CapacityError: ")


def preferring(*types: str, **members: Any) -> dict[str, Any]:
    return {"InstancePreferences": [{"InstanceType": name, **members} for name in types], "VolumeSizeInGB": 1}


def test_a_job_runs_on_the_first_type_that_it_prefers(jobs: Jobs) -> None:
    resources = {**preferring("ml.g5.xlarge", "ml.m5.large"), "InstanceCount": 1}
    job = jobs.run("nvidia-smi -L > /opt/ml/model/gpus", ResourceConfig=resources)
    assert job["TrainingJobStatus"] == "Completed"
    selected = {"SelectedInstanceType": "ml.g5.xlarge", "SelectedInstanceCount": 1}
    assert job["ResourceConfig"] == {**resources, **selected}


def test_a_type_without_capacity_gives_way_to_the_next_which_the_hosts_are_told_of(jobs: Jobs) -> None:
    faults = jobs.running.account.faults
    lacking = faults.add(Capacity("ml.g5.xlarge", times=None))
    resources = {
        "InstancePreferences": [
            {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1},
            {"InstanceType": "ml.m5.large", "InstanceCount": 2},
        ],
        "VolumeSizeInGB": 1,
    }
    job = jobs.run(
        'grep -q \'"current_instance_type": "ml.m5.large"\' /opt/ml/input/config/resourceconfig.json && '
        "grep -q algo-2 /opt/ml/input/config/resourceconfig.json",
        ResourceConfig=resources,
    )
    faults.mend(lacking)
    assert job["TrainingJobStatus"] == "Completed"
    assert job["ResourceConfig"]["SelectedInstanceType"] == "ml.m5.large"
    assert job["ResourceConfig"]["SelectedInstanceCount"] == 2


def test_a_job_fails_where_no_type_that_it_prefers_has_capacity(jobs: Jobs) -> None:
    for name in ("ml.g5.xlarge", "ml.m5.large"):
        jobs.running.account.faults.add(Capacity(name))
    job = jobs.run("true", ResourceConfig={**preferring("ml.g5.xlarge", "ml.m5.large"), "InstanceCount": 1})
    assert job["FailureReason"].startswith("CapacityError: ")
    assert "SelectedInstanceType" not in job["ResourceConfig"]


def test_a_type_whose_training_plan_has_not_started_gives_way_to_the_next(jobs: Jobs) -> None:
    faults = jobs.running.account.faults
    scheduled = faults.add(ScheduledPlan(PLAN, times=None))
    resources = {**preferring("ml.g5.xlarge", "ml.m5.large"), "InstanceCount": 1}
    resources["InstancePreferences"][0]["TrainingPlanArns"] = [PLAN]
    job = jobs.run("true", ResourceConfig=resources)
    faults.mend(scheduled)
    assert job["ResourceConfig"]["SelectedInstanceType"] == "ml.m5.large"


@pytest.mark.parametrize(
    ("members", "resources", "why"),
    [
        ({}, {"InstanceType": "ml.m5.large", "InstanceCount": 1}, "cannot be specified with InstanceType"),
        (
            {"EnableManagedSpotTraining": True},
            {"InstanceCount": 1},
            "cannot be specified with EnableManagedSpotTraining",
        ),
        ({}, {}, "InstanceCount must be in every one of InstancePreferences, or in ResourceConfig"),
        ({}, {"InstanceCount": 1, **preferring("ml.m5.large", InstanceCount=1)}, "and not in both"),
        ({}, {"InstanceCount": 1, **preferring("ml.m5.large", "ml.m5.large")}, "can appear only once"),
        (
            {},
            {"InstanceCount": 1, "SelectedInstanceType": "ml.m5.large"},
            "SelectedInstanceType in ResourceConfig is read-only",
        ),
        (
            {},
            {"InstanceCount": 1, "TrainingPlanArn": PLAN, **preferring("ml.g5.xlarge", TrainingPlanArns=[PLAN])},
            "cannot be specified with TrainingPlanArn in ResourceConfig",
        ),
        (
            {},
            {"InstanceCount": 1, "VolumeSizeInGB": 0},
            "VolumeSizeInGB in ResourceConfig must be at least 1 for ml.m5.large",
        ),
    ],
)
def test_what_a_choice_among_types_excludes_is_refused(
    jobs: Jobs, members: dict[str, Any], resources: dict[str, Any], why: str
) -> None:
    request = jobs.request("true", ResourceConfig={**preferring("ml.g5.xlarge", "ml.m5.large"), **resources}, **members)
    with pytest.raises(ClientError, match=why):
        jobs.sagemaker.create_training_job(**request)


def test_a_type_that_is_newer_than_the_model_is_taken_with_the_devices_that_the_account_is_started_with(
    jobs: Jobs,
) -> None:
    resources = {"InstanceCount": 1, "VolumeSizeInGB": 1}
    job = jobs.run("test $(nvidia-smi -L | wc -l) = 3", ResourceConfig={**resources, "InstanceType": NEWER_TYPE})
    assert job["TrainingJobStatus"] == "Completed"
    with pytest.raises(ClientError, match="failed to satisfy constraint: Member must satisfy enum value set"):
        jobs.create("true", ResourceConfig={**resources, "InstanceType": "ml.p9.48xlarge"})


def test_a_place_may_be_an_address_with_the_bucket_in_its_path_as_cdks_s3_location_has_it(jobs: Jobs) -> None:
    """The API's pattern of S3Uri and S3OutputPath begins with "(https|s3)"."""
    jobs.put("addressed/a.txt", "text")
    place = "https://s3.us-east-1.amazonaws.com/jobs-bucket"
    job = jobs.run(
        "cp /opt/ml/input/data/letters/a.txt /opt/ml/model",
        InputDataConfig=[channel("letters", "", S3Uri=f"{place}/addressed/")],
        OutputDataConfig={"S3OutputPath": f"{place}/models"},
    )
    uri = job["ModelArtifacts"]["S3ModelArtifacts"]
    assert uri == f"{place}/models/{job['TrainingJobName']}/output/model.tar.gz"
    assert jobs.archive(uri.replace(place, "s3://jobs-bucket")) == {"a.txt": "text"}
