"""Stacks of an older library that are deployed with today's while their jobs train, and what becomes of the jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from deployed import Deployed, wait_until
from test_updates import outputs_of, release

ROOT = Path(__file__).parents[2]
APP = Path(__file__).with_name("app_of_upgraded_stacks.py")
# Of 27 November 2026, before updates were looked at; the first release takes its place.
OLDER = "3179ce92616f78dd13b1040b9a814b4a8840d8ac"
SOURCES = ("constructs", "training_jobs", "training_code")
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_800)]


def older_library(folder: Path) -> Path:
    """The older library's sources, from the history of the repository."""
    archive = folder / "older.tar"
    subprocess.run(["git", "archive", "--output", str(archive), OLDER, *SOURCES], cwd=ROOT, check=True)
    with tarfile.open(archive) as members:
        members.extractall(folder / "older", filter="data")
    return folder / "older"


def assembly(library: Path, out: Path) -> str:
    """The stacks, synthesized with a library."""
    path = os.pathsep.join(str(library / source) for source in SOURCES[:2])
    environment = {**os.environ, "PYTHONPATH": path, "CDK_OUTDIR": str(out)}
    subprocess.run([sys.executable, str(APP)], env=environment, check=True)
    return str(out)


def test_jobs_of_before_an_upgrade_complete_and_keep_their_models_and_jobs_of_after_it_too(
    deployed: Deployed, tmp_path: Path
) -> None:
    older, newer = assembly(older_library(tmp_path), tmp_path / "first"), assembly(ROOT, tmp_path / "second")
    deploy = ("deploy", "--all", "--require-approval", "never", "--app")
    deployed.cdk(*deploy, older)
    outputs = {name: outputs_of(deployed, name) for name in ("Waiting", "Polling", "Piped")}
    machines = [outputs["Waiting"]["Arn"], outputs["Polling"]["Arn"], outputs["Piped"]["PipelineArn"]]

    def started() -> tuple[list[str], list[str]]:
        executions = [deployed.start(machine) for machine in machines]
        jobs = wait_until(lambda: found if len(found := deployed.running_jobs()) == len(machines) else None)
        for job in jobs:
            deployed.has_said(job, "waiting")
        return executions, jobs

    def completed(executions: list[str], jobs: list[str]) -> None:
        for job in jobs:
            release(deployed.account, job)
        ended = [deployed.ended(execution) for execution in executions]
        assert [one["status"] for one in ended] == ["SUCCEEDED"] * len(machines), [one.get("cause") for one in ended]
        described = [deployed.client("sagemaker").describe_training_job(TrainingJobName=job) for job in jobs]
        for job in described:
            bucket, _, key = job["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").partition("/")
            assert deployed.client("s3").head_object(Bucket=bucket, Key=key)["ContentLength"] > 0

    before = started()
    deployed.cdk(*deploy, newer)
    completed(*before)
    completed(*started())
    deployed.cdk("destroy", "--all", "--force", "--app", newer)
    assert deployed.running_jobs() == []
