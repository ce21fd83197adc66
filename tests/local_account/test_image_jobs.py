"""What a job sees of its image: the command that starts it, the packages that it may import, and nothing of the account's own."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shell_jobs import BUCKET, ShellJobs

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.images.image_store import Image, ImageStore
from training_jobs.lint import refused_arguments
from training_jobs.lint.dockerfile import Dockerfile
from training_jobs.lint.image_start import ImageStart

REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
# Of AWS's own, whose toolkit runs train.py and writes why that failed.
PYTORCH = (
    "FROM public.ecr.aws/deep-learning-containers/pytorch:2.13-cpu-amzn2023-sagemaker",
    "ENV SAGEMAKER_PROGRAM=train.py SAGEMAKER_SUBMIT_DIRECTORY=/opt/ml/code",
    "COPY . /opt/ml/code/",
)


class ImageJobs(ShellJobs):
    """The account, and jobs of images that a test writes."""

    def __init__(self, account: LocalAccount) -> None:
        super().__init__(account.environment(), account.state)
        self._store = ImageStore(account.state)
        self._count = 0

    def build(self, context: Path, *lines: str) -> Image:
        self._count += 1
        (context.parent / "Dockerfile").write_text("\n".join(lines))
        uri = f"{REGISTRY}/image-{self._count}:1"
        image = self._store.build(context, context.parent / "Dockerfile", [uri])
        self._store.push(uri)
        return image

    def run(self, **members: Any) -> dict[str, Any]:
        """A job of the image that was built last."""
        request = self.request(f"job-{self._count}", "", **members)
        uri = f"{REGISTRY}/image-{self._count}:1"
        request["AlgorithmSpecification"] = {"TrainingImage": uri, "TrainingInputMode": "File"}
        self.sagemaker.create_training_job(**request)
        return self.ended(request["TrainingJobName"])


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageJobs]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield ImageJobs(account)


@pytest.fixture
def context(tmp_path: Path) -> Callable[..., Path]:
    """A context with these files."""

    def write(**files: str) -> Path:
        folder = tmp_path / "context"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)
        return folder

    return write


def test_an_image_without_an_entry_point_and_without_train_fails_as_on_aws(
    jobs: ImageJobs, context: Callable[..., Path]
):
    jobs.build(context(), "FROM python:3.11")
    job = jobs.run()
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith(
        "ClientError: Artifact upload failed:API error (400): OCI runtime create failed: "
        'exec: "train": executable file not found in $PATH'
    )
    assert jobs.said(job["TrainingJobName"]) == {"algo-1": ['exec: "train": executable file not found in $PATH']}


@pytest.fixture(scope="module")
def ended(jobs: ImageJobs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A job of AWS's container, with a requirements.txt beside its script, which imports what nothing installs."""
    context = tmp_path_factory.mktemp("image") / "context"
    context.mkdir()
    (context / "requirements.txt").write_text("xmltodict\n")
    (context / "train.py").write_text("import sklearn, xmltodict\nprint('has these', flush=True)\nimport moto\n")
    jobs.build(context, *PYTORCH)
    return jobs.run()


def test_a_script_that_imports_what_its_image_lacks_fails(ended: dict[str, Any]):
    assert ended["TrainingJobStatus"] == "Failed"
    # The toolkit parts what a script says where it comes in two pieces.
    assert re.search(r"ModuleNotFoundError[\s:]+No module named 'moto'", ended["FailureReason"])


def test_a_script_has_what_awss_container_lists_and_its_requirements_txt(jobs: ImageJobs, ended: dict[str, Any]):
    assert "has these" in jobs.said(ended["TrainingJobName"])["algo-1"]


@pytest.fixture
def code(jobs: ImageJobs, context: Callable[..., Path], wheels: Any) -> Callable[..., dict[str, Any]]:
    """A job of AWS's container with code in S3, whose files these are; packages come from a folder."""

    def run(program: str, **files: str) -> dict[str, Any]:
        jobs.build(context(), PYTORCH[0])
        with io.BytesIO() as archive:
            with tarfile.open(fileobj=archive, mode="w:gz") as tar:
                for name, text in {"train.py": program, **files}.items():
                    about = tarfile.TarInfo(name)
                    about.size = len(text)
                    tar.addfile(about, io.BytesIO(text.encode()))
            jobs.s3.put_object(Bucket=BUCKET, Key="code/sourcedir.tar.gz", Body=archive.getvalue())
        place = f"s3://{BUCKET}/code/sourcedir.tar.gz"
        return jobs.run(HyperParameters={"sagemaker_program": "train.py", "sagemaker_submit_directory": f'"{place}"'})

    return run


@pytest.mark.soak  # test_environments.py installs packages, and what is refused runs below
def test_the_requirements_txt_of_code_in_s3_is_installed_when_its_job_is_created(jobs: ImageJobs, code: Any):
    program = "import jobtools, xmltodict; print(f'jobtools {jobtools.version}', flush=True)"
    job = code(
        program, **{"requirements.txt": "jobtools==1.0  # of a folder\n-r more.txt\n", "more.txt": "xmltodict\n"}
    )
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert "jobtools 1.0" in jobs.said(job["TrainingJobName"])["algo-1"]
    again = code(program, **{"requirements.txt": "jobtools\nxmltodict\n"})
    assert "jobtools 2.0" in jobs.said(again["TrainingJobName"])["algo-1"]


def test_a_requirement_of_code_in_s3_that_nobody_has_fails_its_job_at_once_by_its_name(jobs: ImageJobs, code: Any):
    job = code("print('trains')", **{"requirements.txt": "jobtools\nof-no-index==3.1\n"})
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith(
        "AlgorithmError: InstallRequirementsError: requirements.txt: cannot install of-no-index==3.1: Because "
    )
    assert not any(change["Status"] == "Downloading" for change in job["SecondaryStatusTransitions"])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("git+https://example.com/a.git", "git+https://example.com/a.git must be installed by the Dockerfile"),
        ("jobtools ~> 1", "'jobtools ~> 1' is not a requirement like 'pandas==2.3.3'"),
        ("-r other.txt", "no file 'other.txt' is in the image at this line"),
    ],
)
def test_a_requirements_txt_of_code_in_s3_that_a_host_could_not_install_fails_its_job(
    code: Any, line: str, reason: str
):
    job = code("print('trains')", **{"requirements.txt": f"{line}\n"})
    assert job["FailureReason"].startswith("AlgorithmError: InstallRequirementsError: requirements.txt: ")
    assert reason in job["FailureReason"]


def test_code_in_s3_that_is_no_archive_fails_its_job_by_the_toolkit(jobs: ImageJobs, context: Callable[..., Path]):
    jobs.build(context(), PYTORCH[0])
    jobs.s3.put_object(Bucket=BUCKET, Key="code/torn.tar.gz", Body=b"torn")
    where = {"sagemaker_program": "train.py", "sagemaker_submit_directory": f"s3://{BUCKET}/code/torn.tar.gz"}
    job = jobs.run(HyperParameters=where)
    assert "tarfile.py" in job["FailureReason"]


def test_a_job_sees_the_standard_library_and_what_its_image_installs(jobs: ImageJobs, context: Callable[..., Path]):
    program = "from importlib import metadata; print(sorted(one.name for one in metadata.distributions()))"
    jobs.build(context(), "FROM python:3.11", "RUN pip install requests", f'ENTRYPOINT ["python", "-c", "{program}"]')
    job = jobs.run()
    seen = jobs.said(job["TrainingJobName"])["algo-1"]
    assert set(eval(seen[0])) - {"pip", "setuptools", "wheel"} == {
        "requests",
        "certifi",
        "charset-normalizer",
        "idna",
        "urllib3",
    }


@pytest.mark.soak
@pytest.mark.parametrize(
    "lines",
    [("COPY . /opt/ml/code/",), ("COPY . /opt/ml/", "ENV SAGEMAKER_PROGRAM=train.py")],
)
def test_awss_toolkit_ends_where_an_image_names_no_script_or_has_it_elsewhere(
    jobs: ImageJobs, context: Callable[..., Path], lines: tuple[str, ...]
) -> None:
    folder = context(train_py="print(1)\n")
    jobs.build(folder, PYTORCH[0], *lines)
    (folder / "Dockerfile").write_text((folder.parent / "Dockerfile").read_text())
    assert len([*ImageStart(Dockerfile(folder, "Dockerfile", {}), "toolkit").mistakes()]) == 1
    assert jobs.run()["TrainingJobStatus"] == "Failed"


TRAIN = "#!/usr/bin/env python\nprint(1)\n"
OPTIONS = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()\n"


@pytest.mark.parametrize(
    ("lines", "ends"),
    [
        (('ENTRYPOINT ["python", "plain.py"]',), True),
        (('ENTRYPOINT ["python", "lost.py"]',), False),
        (('ENTRYPOINT ["python", "options.py"]',), False),
        (("ENTRYPOINT python options.py",), True),
        (('ENTRYPOINT ["python", "folders.py"]',), False),
        (("ENV SM_MODEL_DIR=/opt/ml/model", 'ENTRYPOINT ["python", "folders.py"]'), True),
        (('ENTRYPOINT ["./start.sh"]',), False),
        (('ENTRYPOINT ["bash", "start.sh"]',), True),
        (("COPY --chmod=755 start.sh /opt/start.sh", 'ENTRYPOINT ["/opt/start.sh"]'), True),
        (("COPY --chmod=755 plain.py /opt/start.py", 'ENTRYPOINT ["/opt/start.py"]'), False),
        (('CMD ["python", "plain.py"]',), False),
        (("COPY --chmod=755 train.txt /usr/local/bin/train",), True),
        (("COPY --chmod=755 train.txt /opt/program/train", "ENV PATH=/opt/program:$PATH"), True),
        (("COPY train.txt /usr/local/bin/train",), False),
        (("ENV FILE=plain.py", 'ENTRYPOINT ["python", "$FILE"]'), False),
    ],
)
def test_a_job_ends_where_a_check_of_its_dockerfile_says_so(
    jobs: ImageJobs, context: Callable[..., Path], lines: tuple[str, ...], ends: bool
) -> None:
    folders = "import os\nprint(os.environ['SM_MODEL_DIR'])\n"
    files = {"plain_py": "print(1)\n", "options_py": OPTIONS, "folders_py": folders, "train_txt": TRAIN}
    folder = context(**files, start_sh="#!/bin/bash\nexec python /opt/program/plain.py\n")
    (folder.parent / "Dockerfile").unlink(missing_ok=True)
    jobs.build(folder, "FROM python:3.11", "WORKDIR /opt/program", "COPY . .", *lines)
    (folder / "Dockerfile").write_text((folder.parent / "Dockerfile").read_text())
    said = [*ImageStart(Dockerfile(folder, "Dockerfile", {}), "public").mistakes()]
    command = ImageStart(Dockerfile(folder, "Dockerfile", {}), "public").command
    assert (not said and not [*refused_arguments(command, {})]) == ends
    assert (jobs.run()["TrainingJobStatus"] == "Completed") == ends
