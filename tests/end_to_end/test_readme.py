"""The README's "Step by step", as typed, in two terminals, and its way to AWS."""

import hashlib
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a clone sets up first, and these tests have been set up with.
SET_UP = ("make setup", ". .venv/bin/activate", "PATH=$PWD/node_modules/.bin:$PATH")


def typed(title: str) -> list[list[str]]:
    """The lines of each console block of a section."""
    section = (ROOT / "README.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return [[line for line in block.splitlines() if line not in SET_UP] for block in blocks]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    subprocess.run(["git", "-C", str(ROOT), "checkout-index", "--all", f"--prefix={tmp_path}/clone/"], check=True)
    return tmp_path / "clone"


def test_step_by_step_works_as_typed(clone: Path) -> None:
    [account, *rest] = typed("Step by step")
    environment = {**os.environ, "PATH": f"{ROOT}/node_modules/.bin:{os.environ['PATH']}", "AWS_PROFILE": "another"}
    with subprocess.Popen(account, cwd=clone, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            exports = []
            for line in running.stdout:
                exports.append(line)
                if "Ctrl-C" in line:
                    break
            script = "".join(exports) + "\n".join(line for block in rest for line in block)
            done = subprocess.run(
                ["bash", "-exo", "pipefail", "-c", script],
                cwd=clone,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        finally:
            running.send_signal(signal.SIGINT)
    assert done.returncode == 0, done.stdout
    assert '"SecondaryStatus": "' in done.stdout
    assert '"searchedLogStreams"' in done.stdout
    # The job is that of the execution which was started, whatever other jobs there are.
    [execution] = re.findall(r"^\+ EXECUTION=(\S+)$", done.stdout, re.MULTILINE)
    digest = hashlib.md5(execution.encode(), usedforsecurity=False).hexdigest()
    assert re.findall(rf"^\+ JOB=\S*{digest}\S*$", done.stdout, re.MULTILINE)
    assert "HeterogeneousTraining: destroyed" in done.stdout
    assert running.returncode == 0


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """A folder with the command `docker`, logged in to nothing.

    A double, since there is no Docker engine where these tests run: it is the account's own, which refuses ECR's private
    registries without a log-in and takes its public gallery, as Docker does.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker").write_text('#!/bin/sh\nexec "$CDK_DOCKER" "$@"\n')
    (folder / "docker").chmod(0o755)
    return folder


def test_the_way_to_aws_reaches_the_deployment_with_a_docker_that_is_logged_in_to_nothing(
    clone: Path, docker: Path
) -> None:
    [quotas, deployment] = typed("On AWS")
    # Not typed here: the account on this machine has no quotas to show and to raise.
    assert all(line.startswith("aws service-quotas ") for line in quotas)
    done = subprocess.run(
        ["local-account", "run", "--", "bash", "-exo", "pipefail", "-c", "\n".join(deployment)],
        cwd=clone,
        env={**os.environ, "PATH": f"{docker}:{ROOT}/node_modules/.bin:{os.environ['PATH']}"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "FROM public.ecr.aws/deep-learning-containers/pytorch:" in done.stdout
    assert "HeterogeneousTraining.StateMachineArn = " in done.stdout
