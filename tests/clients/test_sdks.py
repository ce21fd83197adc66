"""SageMaker's own Python SDKs, unchanged, each in an environment of its own: the scripts beside this file are a user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import loopback
import pytest
from two_groups import BUCKET, IMAGE, LINES, SOURCE, WEIGHTS, Place, files_of, groups_of

HERE = Path(__file__).parent
DEEP_LEARNING_CONTAINER = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker"
# Image, and where the SDK leaves what it uploads: v3 is not told, and takes the account's default bucket.
VERSIONS = {
    "v2": (DEEP_LEARNING_CONTAINER, BUCKET),
    "v3": (IMAGE, "sagemaker-us-east-1-123456789012"),
}


@dataclass(frozen=True)
class Ran:
    """What came of a user's script."""

    code: int
    printed: str
    model: Path
    job: dict[str, Any]
    uploads: list[str]
    sought: list[str]


# Each takes half a minute of a processor, and an installation; test_recordings.py has the requests of both.
@pytest.fixture(scope="module", params=[pytest.param(one, marks=pytest.mark.soak) for one in ("v2", "v3")])
def ran(
    request: pytest.FixtureRequest,
    place: Place,
    programs_of: Callable[[Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Ran:
    version = request.param
    image, bucket = VERSIONS[version]
    folder = tmp_path_factory.mktemp(version)
    own_bucket = [BUCKET] if version == "v2" else []
    python = programs_of(HERE / f"requirements-{version}.txt") / "python"
    done = loopback.run(
        [str(python), str(HERE / f"sdk_{version}.py"), image, place.role, str(SOURCE), str(folder), *own_bucket],
        place.running.account.environment(),
        folder,
    )
    sagemaker, s3 = place.running.client("sagemaker"), place.running.client("s3")
    [job] = sagemaker.list_training_jobs(NameContains=f"sdk-{version}")["TrainingJobSummaries"] or [{}]
    return Ran(
        code=done.code,
        printed=done.output + done.errors,
        model=folder / "model.tar.gz",
        job=sagemaker.describe_training_job(TrainingJobName=job["TrainingJobName"]) if job else {},
        uploads=[entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket).get("Contents", [])] if job else [],
        sought=done.sought,
    )


def test_a_users_script_ends_well(ran: Ran) -> None:
    assert ran.code == 0, ran.printed


def test_its_job_completes_with_two_groups(ran: Ran) -> None:
    assert (ran.job["TrainingJobStatus"], groups_of(ran.job)) == ("Completed", {"data_group": 1, "dnn_group": 2})


def test_it_prints_what_each_host_says(ran: Ran) -> None:
    assert [line for line in LINES if line not in ran.printed] == []


def test_it_downloads_the_model_of_all_hosts(ran: Ran) -> None:
    assert files_of(ran.model) == WEIGHTS


def test_it_uploads_the_source_that_the_job_runs(ran: Ran) -> None:
    name = ran.job["TrainingJobName"]
    sources = ("/source/sourcedir.tar.gz", "/input/code/train.py")
    assert [key for key in ran.uploads if name in key and key.endswith(sources)], ran.uploads


def test_it_seeks_nothing_but_the_account(ran: Ran) -> None:
    assert ran.sought == []
