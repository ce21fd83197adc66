import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from moto.server import ThreadedMotoServer

from sagemaker_local_account.images.image_store import ImageStore

REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
ASSETS = f"{REGISTRY}/cdk-hnb659fds-container-assets-123456789012-us-east-1"


@pytest.fixture(scope="module")
def endpoint_url() -> Iterator[str]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # moto's state is the process's, in which another module's account may have left a repository of the same name.
    requests.post(f"http://{host}:{port}/moto-api/reset").raise_for_status()
    yield f"http://{host}:{port}"
    server.stop()


class Docker:
    """The command as a client starts it, in a folder with a Dockerfile."""

    def __init__(self, folder: Path, endpoint_url: str) -> None:
        self.context = folder / "asset.1234"
        self.context.mkdir()
        (self.context / "Dockerfile").write_text(
            "FROM python:3.11\nARG NAME=one\nENV NAME=$NAME\nCOPY train.py /opt/\n"
        )
        (self.context / "train.py").write_text("print('training')")
        self.state = folder / "state"
        self.environment = {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint_url,
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "SAGEMAKER_LOCAL_ACCOUNT_STATE": str(self.state),
        }

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sagemaker_local_account.images.docker", *arguments]
        return subprocess.run(
            command, input=stdin, env=self.environment, cwd=self.context, text=True, capture_output=True, check=False
        )

    def does(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refuses(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 1, done.stdout
        return done.stderr.strip()

    def logs_in(self, registry: str) -> None:
        self.does("login", "--username", "AWS", "--password-stdin", registry, stdin="token")

    def ecr(self) -> Any:
        return boto3.client(
            "ecr",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )


@pytest.fixture
def docker(tmp_path: Path, endpoint_url: str) -> Docker:
    return Docker(tmp_path, endpoint_url)


@pytest.fixture
def repository(docker: Docker) -> Iterator[str]:
    """A repository as `cdk bootstrap` makes it."""
    ecr, name = docker.ecr(), ASSETS.partition("/")[2]
    ecr.create_repository(repositoryName=name, imageTagMutability="IMMUTABLE")
    docker.logs_in(REGISTRY)
    yield name
    ecr.delete_repository(repositoryName=name, force=True)


def test_what_the_cdk_cli_does_for_an_asset_gives_an_image_that_jobs_find(docker: Docker, repository: str):
    assert docker.run("inspect", "cdkasset-1234").returncode == 1
    docker.does("build", "--build-arg", "NAME=two", "--tag", "cdkasset-1234", "--platform", "linux/amd64", ".")
    docker.does("tag", "cdkasset-1234", f"{ASSETS}:1234")
    docker.does("push", f"{ASSETS}:1234")
    image = ImageStore(docker.state).resolve(f"{ASSETS}:1234")
    assert (image.env, (image.root / "opt" / "train.py").read_text()) == ({"NAME": "two"}, "print('training')")


def test_ecr_knows_an_image_that_was_pushed(docker: Docker, repository: str):
    docker.does("build", "--tag", f"{ASSETS}:1234", ".")
    docker.does("push", f"{ASSETS}:1234")
    [known] = docker.ecr().describe_images(repositoryName=repository, imageIds=[{"imageTag": "1234"}])["imageDetails"]
    by_digest = ImageStore(docker.state).resolve(f"{ASSETS}@{known['imageDigest']}")
    assert by_digest == ImageStore(docker.state).resolve(f"{ASSETS}:1234")


def test_an_image_can_be_pushed_again_and_under_another_tag(docker: Docker, repository: str):
    docker.does("build", "--tag", f"{ASSETS}:1", "--tag", f"{ASSETS}:2", ".")
    for tag in ("1", "1", "2"):
        docker.does("push", f"{ASSETS}:{tag}")
    assert docker.ecr().describe_images(repositoryName=repository, imageIds=[{"imageTag": "1"}, {"imageTag": "2"}])


def test_a_tag_that_ecr_keeps_as_it_is_is_not_pushed_over(docker: Docker, repository: str):
    docker.does("build", "--tag", f"{ASSETS}:1", ".")
    docker.does("push", f"{ASSETS}:1")
    docker.does("build", "--build-arg", "NAME=other", "--tag", f"{ASSETS}:1", ".")
    assert "tags are immutable, and another image has this tag" in docker.refuses("push", f"{ASSETS}:1")
    assert ImageStore(docker.state).resolve(f"{ASSETS}:1").env == {"NAME": "one"}


def test_a_push_to_a_repository_that_is_not_there_is_refused(docker: Docker):
    docker.logs_in(REGISTRY)
    docker.does("build", "--tag", f"{REGISTRY}/other:1", ".")
    assert "The repository with name 'other' does not exist" in docker.refuses("push", f"{REGISTRY}/other:1")


def test_a_push_to_another_registry_is_refused_by_name(docker: Docker):
    docker.does("build", "--tag", "ghcr.io/me/jobs:1", ".")
    assert docker.refuses("push", "ghcr.io/me/jobs:1").endswith("amazonaws.com/jobs:1, got 'ghcr.io/me/jobs:1'")


@pytest.mark.parametrize("registry", ["ghcr.io", "210987654321.dkr.ecr.us-east-1.amazonaws.com", "docker.io"])
def test_a_login_to_another_registry_is_refused_by_name(docker: Docker, registry: str):
    arguments = ("login", "--username", "AWS", "--password-stdin", registry)
    assert docker.refuses(*arguments, stdin="token").endswith(f"us-east-1.amazonaws.com, got {registry!r}")


OF_AWS = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
CONTAINER = "pytorch:2.13-cpu-amzn2023-sagemaker"


def begins_with(docker: Docker, image: str) -> tuple[str, ...]:
    """The build of an image that begins with another."""
    (docker.context / "Dockerfile").write_text(f"FROM {image}\nCOPY train.py /opt/\n")
    return ("build", "--tag", "jobs", ".")


def test_an_image_in_an_account_of_awss_is_not_pulled_without_a_login(docker: Docker):
    refused = docker.refuses(*begins_with(docker, f"{OF_AWS}/{CONTAINER}"))
    assert f"Dockerfile:1: FROM: {OF_AWS}/{CONTAINER}: pull access denied" in refused
    assert refused.endswith(
        "no basic auth credentials. Log in first, like `aws ecr get-login-password --region us-east-1 | docker login "
        f"--username AWS --password-stdin {OF_AWS}`; AWS's containers are also in public.ecr.aws/deep-learning-containers/, "
        "which requires no login"
    )


def test_an_image_in_an_account_of_awss_is_pulled_after_a_login_and_not_after_a_logout(docker: Docker):
    build = begins_with(docker, f"{OF_AWS}/{CONTAINER}")
    docker.logs_in(OF_AWS)
    docker.does(*build)
    docker.does("logout", OF_AWS)
    assert "no basic auth credentials" in docker.refuses(*build)


def test_an_image_in_the_public_gallery_is_pulled_without_a_login(docker: Docker):
    docker.does(*begins_with(docker, f"public.ecr.aws/deep-learning-containers/{CONTAINER}"))


def test_a_container_that_aws_does_not_publish_in_the_gallery_is_not_there(docker: Docker):
    image = "public.ecr.aws/deep-learning-containers/huggingface-pytorch-training:2.9"
    assert "of AWS's containers there it supports pytorch, pytorch-training, tensorflow-training" in docker.refuses(
        *begins_with(docker, image)
    )


def test_an_image_of_this_machine_is_not_pulled_and_one_of_the_accounts_registry_is_not_without_a_login(
    docker: Docker, repository: str
):
    image = f"{ASSETS}:1"
    docker.does("build", "--tag", image, ".")
    docker.does("push", image)
    docker.does("logout", REGISTRY)
    docker.does(*begins_with(docker, image))
    for tag in (docker.state / "images" / "tags").glob("*.json"):
        tag.unlink()  # as on another machine
    assert "no basic auth credentials" in docker.refuses(*begins_with(docker, image))


def test_a_push_takes_a_login(docker: Docker):
    docker.does("build", "--tag", f"{ASSETS}:1", ".")
    assert "no basic auth credentials" in docker.refuses("push", f"{ASSETS}:1")


def test_a_credential_helper_that_the_cdk_cli_names_stands_for_a_login(docker: Docker, tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps({"credHelpers": {OF_AWS: "cdk-assets"}}))
    docker.does("--config", str(tmp_path), *begins_with(docker, f"{OF_AWS}/{CONTAINER}"))


def test_a_login_without_a_password_is_refused(docker: Docker):
    assert "password" in docker.refuses("login", "--username", "AWS", "--password-stdin", REGISTRY)


def test_a_build_prints_its_steps_and_notes(docker: Docker):
    (docker.context / "Dockerfile").write_text("FROM python:3.11\nRUN make\nENTRYPOINT python\n")
    printed = docker.run("build", "--tag", "jobs", ".").stderr.splitlines()
    assert printed[0] == "[1/3] FROM python:3.11"
    assert printed[-3:] == ["[2/3] RUN make", "  note: Dockerfile:2: skipped: RUN make", "[3/3] ENTRYPOINT python"]


def test_a_build_that_fails_ends_with_its_line_and_no_image(docker: Docker):
    (docker.context / "Dockerfile").write_text("FROM python:3.11\nONBUILD RUN make\n")
    assert "Dockerfile:2: instruction ONBUILD is not supported" in docker.refuses("build", "--tag", "jobs", ".")
    assert docker.run("inspect", "jobs").returncode == 1


def test_a_build_takes_the_dockerfile_and_the_target_that_it_is_given(docker: Docker):
    (docker.context / "jobs").mkdir()
    (docker.context / "jobs" / "Dockerfile").write_text("FROM python:3.11 AS one\nENV A=1\nFROM one\nENV B=1\n")
    docker.does("build", "--file", "jobs/Dockerfile", "--target=one", "-t", "jobs", ".")
    [described] = json.loads(docker.does("inspect", "jobs"))
    assert described["Config"]["Env"] == ["A=1"]


@pytest.mark.parametrize("option", ["--secret", "--ssh", "--build-context", "--squash"])
def test_an_option_of_build_that_is_not_known_is_refused_by_name(docker: Docker, option: str):
    assert f"build: option {option} is not supported" in docker.refuses("build", option, "x=y", "--tag", "jobs", ".")


def test_an_output_elsewhere_is_refused(docker: Docker):
    assert "--output must be type=docker, got 'type=local" in docker.refuses("build", "--output=type=local,dest=x", ".")


def test_a_build_without_a_context_is_refused(docker: Docker):
    assert "must have one folder as its context, like '.', got 'nowhere'" in docker.refuses("build", "nowhere")


@pytest.mark.parametrize("command", ["run", "pull", "compose"])
def test_a_command_that_is_not_known_is_refused_by_name(docker: Docker, command: str):
    assert f"command {command!r} is not supported by the local account; it supports build, images" in docker.refuses(
        command, "x"
    )


def test_the_images_of_a_tag_are_listed_as_the_cdk_cli_asks(docker: Docker):
    docker.does("build", "--tag", f"{ASSETS}:1", "--tag", f"{ASSETS}:2", "--tag", "cdkasset-1", ".")
    listed = docker.does("images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", "reference=*/*:1")
    assert listed.split() == [f"{ASSETS}:1"]


def test_a_configuration_folder_is_passed_over(docker: Docker):
    assert docker.does("--config", "/somewhere", "--version").startswith("Docker version")


def test_a_state_folder_must_be_said(docker: Docker):
    del docker.environment["SAGEMAKER_LOCAL_ACCOUNT_STATE"]
    assert "SAGEMAKER_LOCAL_ACCOUNT_STATE must name the account's folder" in docker.refuses("inspect", "jobs")


def test_a_command_that_calls_nothing_of_aws_does_not_load_its_client(docker: Docker):
    program = "import sys, sagemaker_local_account.images.docker; print('boto3' in sys.modules, 'moto' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env=docker.environment, text=True, stdout=subprocess.PIPE)
    assert done.stdout.split() == ["False", "False"]
