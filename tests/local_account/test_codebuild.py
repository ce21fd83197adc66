"""CodeBuild's API, as boto3 sees it, with builds that run."""

from __future__ import annotations

import io
import json
import time
import zipfile
from typing import Any

import pytest
from botocore.exceptions import ClientError
from running_account import Running

AN_ERROR_RATHER_THAN_A_HANG = 120
REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
LOGIN = f"aws ecr get-login-password | docker login --username AWS --password-stdin {REGISTRY}"
ENVIRONMENT = {
    "type": "LINUX_CONTAINER",
    "image": "aws/codebuild/standard:7.0",
    "computeType": "BUILD_GENERAL1_SMALL",
    "privilegedMode": True,
}
NO_ARTIFACTS = {"type": "NO_ARTIFACTS"}


class Builds:
    """The account with a role and a source for builds, and what a test asks of it."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.codebuild, self.s3 = running.client("codebuild"), running.client("s3")
        self.s3.create_bucket(Bucket="sources")
        running.client("ecr").create_repository(repositoryName="jobs")
        self.role = running.role("Builds", "codebuild.amazonaws.com", may_do_all=True)
        self._count = 0

    def source(self, **files: str) -> dict[str, str]:
        """A source of files, whose names have `_` for `.`."""
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as zipped:
            for name, text in files.items():
                zipped.writestr(name.replace("_", "."), text)
        self._count += 1
        self.s3.put_object(Bucket="sources", Key=f"{self._count}.zip", Body=archive.getvalue())
        return {"type": "S3", "location": f"sources/{self._count}.zip"}

    def project(self, *, source: dict[str, str] | None = None, **members: Any) -> str:
        self._count += 1
        self.codebuild.create_project(
            **{
                "name": f"project-{self._count}",
                "source": source or {"type": "NO_SOURCE", "buildspec": spec(build=["true"])},
                "artifacts": NO_ARTIFACTS,
                "environment": ENVIRONMENT,
                "serviceRole": self.role,
                **members,
            }
        )
        return f"project-{self._count}"

    def run(self, name: str, **members: Any) -> dict[str, Any]:
        """A build that has ended."""
        return self.ended(self.codebuild.start_build(projectName=name, **members)["build"]["id"])

    def run_commands(self, *commands: str, **phases: list[str]) -> dict[str, Any]:
        buildspec = spec(build=[*commands], **phases)
        return self.run(self.project(source={"type": "NO_SOURCE", "buildspec": buildspec}))

    def ended(self, id: str) -> dict[str, Any]:
        return self.until(id, lambda build: build["buildComplete"])

    def until(self, id: str, condition: Any) -> dict[str, Any]:
        limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
        while time.monotonic() < limit:
            [build] = self.codebuild.batch_get_builds(ids=[id])["builds"]
            if condition(build):
                return dict(build)
            time.sleep(0.1)
        raise AssertionError("this did not come to pass")

    def said(self, build: dict[str, Any]) -> list[str]:
        """What the build's commands printed."""
        logs = build["logs"]
        events = self.running.client("logs").get_log_events(
            logGroupName=logs["groupName"], logStreamName=logs["streamName"], startFromHead=True
        )["events"]
        return [event["message"] for event in events if not event["message"].startswith("[Container]")]


def spec(**phases: list[str]) -> str:
    return json.dumps({"version": "0.2", "phases": {name: {"commands": listed} for name, listed in phases.items()}})


def failed_phase(build: dict[str, Any]) -> tuple[str, str, str]:
    """The phase that failed, its code and what it says."""
    [phase] = [phase for phase in build["phases"] if phase.get("phaseStatus") == "FAILED"]
    [context] = phase["contexts"]
    return phase["phaseType"], context["statusCode"], context["message"]


@pytest.fixture(scope="module")
def builds(running: Running) -> Builds:
    return Builds(running)


def test_a_project_is_described_as_it_was_created(builds: Builds) -> None:
    name = builds.project(description="builds the jobs")
    [project] = builds.codebuild.batch_get_projects(names=[name, "nobody"])["projects"]
    assert project["description"] == "builds the jobs"
    assert project["environment"] == ENVIRONMENT
    assert project["timeoutInMinutes"] == 60
    assert name in builds.codebuild.list_projects()["projects"]


def test_an_updated_project_keeps_what_the_update_does_not_say(builds: Builds) -> None:
    name = builds.project(description="builds the jobs")
    builds.codebuild.update_project(name=name, timeoutInMinutes=10)
    [project] = builds.codebuild.batch_get_projects(names=[name])["projects"]
    assert (project["description"], project["timeoutInMinutes"]) == ("builds the jobs", 10)


def test_a_deleted_project_is_gone(builds: Builds) -> None:
    name = builds.project()
    builds.codebuild.delete_project(name=name)
    assert builds.codebuild.batch_get_projects(names=[name])["projectsNotFound"] == [name]
    with pytest.raises(ClientError, match="Project cannot be found"):
        builds.codebuild.start_build(projectName=name)


def test_a_build_builds_its_source_and_pushes_the_image(builds: Builds) -> None:
    source = builds.source(
        Dockerfile="FROM python:3.11\nCOPY hello.txt /hello.txt\n",
        hello_txt="hello",
        buildspec_yml=spec(pre_build=[LOGIN], build=["docker build -t $IMAGE .", "docker push $IMAGE"]),
    )
    build = builds.run(
        builds.project(source=source),
        environmentVariablesOverride=[{"name": "IMAGE", "value": f"{REGISTRY}/jobs:built"}],
    )
    assert build["buildStatus"] == "SUCCEEDED", builds.said(build)
    images = builds.running.client("ecr").list_images(repositoryName="jobs")["imageIds"]
    assert [image["imageTag"] for image in images] == ["built"]


def test_each_command_goes_on_where_the_one_before_left_off(builds: Builds) -> None:
    build = builds.run_commands("here=$(pwd)", "mkdir inner; cd inner", 'echo "$PWD" = "$here/inner"')
    [line] = builds.said(build)
    left, _, right = line.partition(" = ")
    assert left == right


def test_a_phase_ends_with_its_first_command_that_fails_and_names_it(builds: Builds) -> None:
    build = builds.run_commands("echo no such thing; exit 3", "echo never")
    assert failed_phase(build) == (
        "BUILD",
        "COMMAND_EXECUTION_ERROR",
        "Error while executing command: echo no such thing; exit 3. Reason: exit status 3: no such thing",
    )
    assert (build["buildStatus"], builds.said(build)) == ("FAILED", ["no such thing"])


def test_post_build_comes_after_a_build_that_failed(builds: Builds) -> None:
    build = builds.run_commands("false", post_build=["echo succeeding: $CODEBUILD_BUILD_SUCCEEDING"])
    assert builds.said(build) == ["succeeding: 0"]


def test_nothing_comes_after_a_pre_build_that_failed(builds: Builds) -> None:
    build = builds.run_commands("echo never", pre_build=["false"], post_build=["echo never"])
    assert builds.said(build) == []


def test_a_finally_block_runs_whatever_became_of_its_phase(builds: Builds) -> None:
    phases = {"build": {"commands": ["false"], "finally": ["echo at last"]}}
    source = {"type": "NO_SOURCE", "buildspec": json.dumps({"version": 0.2, "phases": phases})}
    assert builds.said(builds.run(builds.project(source=source))) == ["at last"]


def test_a_command_that_is_not_on_this_machine_fails_the_build_by_its_name(builds: Builds) -> None:
    _, _, message = failed_phase(builds.run_commands("frobnicate --all"))
    assert message.startswith("Error while executing command: frobnicate --all. Reason: exit status 127")
    assert "frobnicate" in message.partition("127")[2]


def test_a_build_does_not_see_the_users_files(builds: Builds) -> None:
    build = builds.run_commands(f"ls {builds.running.account.state}/account.json")
    assert "No such file" in failed_phase(build)[2]


def test_an_image_is_of_files_of_the_builds_own_alone(builds: Builds) -> None:
    build = builds.run_commands("docker build --file /etc/hostname /etc")
    assert "docker: a build's folders must be within" in failed_phase(build)[2]


def test_a_build_acts_as_its_service_role(builds: Builds) -> None:
    build = builds.run_commands("aws sts get-caller-identity --query Arn --output text")
    [arn] = builds.said(build)
    assert ":assumed-role/Builds/" in arn


def test_a_project_that_is_not_privileged_has_no_docker_daemon(builds: Builds) -> None:
    buildspec = spec(build=["docker images"])
    name = builds.project(
        source={"type": "NO_SOURCE", "buildspec": buildspec}, environment={**ENVIRONMENT, "privilegedMode": False}
    )
    assert "Cannot connect to the Docker daemon" in failed_phase(builds.run(name))[2]


def test_a_part_of_a_buildspec_that_is_not_known_fails_the_build_by_its_name(builds: Builds) -> None:
    buildspec = json.dumps({"version": 0.2, "reports": {}, "phases": {}})
    phase, code, message = failed_phase(
        builds.run(builds.project(source={"type": "NO_SOURCE", "buildspec": buildspec}))
    )
    assert (phase, code) == ("DOWNLOAD_SOURCE", "YAML_FILE_ERROR")
    assert message == "buildspec: reports is not supported by the local account; it supports version, env, phases"


def test_a_source_that_is_not_there_fails_the_build_by_its_name(builds: Builds) -> None:
    build = builds.run(builds.project(source={"type": "S3", "location": "sources/none.zip"}))
    phase, _, message = failed_phase(build)
    assert phase == "DOWNLOAD_SOURCE"
    assert message.startswith("cannot download source s3://sources/none.zip")


def test_a_stopped_build_says_so(builds: Builds) -> None:
    name = builds.project(source={"type": "NO_SOURCE", "buildspec": spec(build=["echo waiting", "sleep 1000"])})
    id = builds.codebuild.start_build(projectName=name)["build"]["id"]
    builds.until(id, lambda build: build["currentPhase"] == "BUILD")
    builds.codebuild.stop_build(id=id)
    build = builds.ended(id)
    phases = {phase["phaseType"]: phase.get("phaseStatus") for phase in build["phases"]}
    assert (build["buildStatus"], phases["BUILD"]) == ("STOPPED", "STOPPED")


def test_a_projects_builds_are_listed_the_last_first(builds: Builds) -> None:
    name = builds.project()
    ids = [builds.run(name)["id"] for _ in range(2)]
    assert builds.codebuild.list_builds_for_project(projectName=name)["ids"] == ids[::-1]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"artifactsOverride": {"type": "S3", "location": "x"}}, "artifacts.type must be NO_ARTIFACTS"),
        ({"environmentTypeOverride": "ARM_CONTAINER"}, "environment.type must be LINUX_CONTAINER"),
        ({"imageOverride": "ubuntu:24.04"}, "environment.image must be one of CodeBuild's own"),
        ({"sourceTypeOverride": "GITHUB"}, "source.type must be S3 or NO_SOURCE"),
        ({"debugSessionEnabled": True}, "does not support debugSessionEnabled of StartBuild"),
        (
            {"environmentVariablesOverride": [{"name": "A", "value": "a", "type": "SECRETS_MANAGER"}]},
            "environment variable 'A' must be PLAINTEXT",
        ),
    ],
)
def test_what_a_build_cannot_do_here_is_refused_by_its_name(
    builds: Builds, override: dict[str, Any], message: str
) -> None:
    with pytest.raises(ClientError, match=message):
        builds.codebuild.start_build(projectName=builds.project(), **override)


def test_an_operation_that_is_not_there_is_refused_by_its_name(builds: Builds) -> None:
    with pytest.raises(ClientError, match="the local account does not have CodeBuild's ListReports"):
        builds.codebuild.list_reports()
