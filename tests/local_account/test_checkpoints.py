"""The folders of checkpoints of a job's hosts beside their prefix in S3: what is uploaded, and what is deleted."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from running_account import Running

from sagemaker_local_account.core.safe_paths import JobFolder
from sagemaker_local_account.storage.checkpoints import Checkpoints


class Hosts:
    """Two hosts' folders, and the prefix that they share."""

    def __init__(self, running: Running, folder: Path, *before: str) -> None:
        self._s3 = running.client("s3")
        self.bucket = folder.name.replace("_", "-")
        self._s3.create_bucket(Bucket=self.bucket)
        for name in before:
            self.put(name)
        self.first, self.second = folder / "algo-1", folder / "algo-2"
        folders = [JobFolder(folder, "algo-1"), JobFolder(folder, "algo-2")]
        self.checkpoints = Checkpoints(self._s3, f"s3://{self.bucket}/run", folders)
        self.checkpoints.restore()

    def put(self, name: str) -> None:
        """As somebody else than the job's hosts."""
        self._s3.put_object(Bucket=self.bucket, Key=f"run/{name}", Body=b"before")

    def objects(self) -> dict[str, str]:
        """The texts that are under the prefix after the folders were looked at once more."""
        self.checkpoints.sync()
        listed = self._s3.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return {
            entry["Key"].removeprefix("run/"): self._s3.get_object(Bucket=self.bucket, Key=entry["Key"])["Body"]
            .read()
            .decode()
            for entry in listed
        }


@pytest.fixture
def hosts(running: Running, tmp_path: Path) -> Hosts:
    return Hosts(running, tmp_path, "old")


def test_what_a_host_wrote_and_removed_is_deleted(hosts: Hosts) -> None:
    (hosts.first / "new").write_text("new")
    assert hosts.objects() == {"new": "new", "old": "before"}
    (hosts.first / "new").unlink()
    assert hosts.objects() == {"old": "before"}


def test_what_a_host_writes_anew_with_as_many_bytes_is_uploaded_anew(hosts: Hosts) -> None:
    (hosts.first / "step").write_text("1")
    assert hosts.objects() == {"old": "before", "step": "1"}
    (hosts.first / "step").write_text("2")
    assert hosts.objects() == {"old": "before", "step": "2"}


def test_what_every_host_downloaded_and_removed_is_deleted(hosts: Hosts) -> None:
    (hosts.first / "old").unlink()
    (hosts.second / "old").unlink()
    assert hosts.objects() == {}


def test_what_another_host_still_has_stays(hosts: Hosts) -> None:
    (hosts.first / "old").unlink()
    assert hosts.objects() == {"old": "before"}
    (hosts.second / "old").unlink()
    assert hosts.objects() == {}


def test_what_another_host_wrote_stays(hosts: Hosts) -> None:
    (hosts.second / "of-the-second").write_text("second")
    (hosts.first / "of-the-first").write_text("first")
    hosts.objects()
    (hosts.first / "of-the-first").unlink()
    assert hosts.objects() == {"of-the-second": "second", "old": "before"}


def test_what_came_under_the_prefix_since_the_job_started_stays(hosts: Hosts) -> None:
    hosts.put("of-another-job")
    (hosts.first / "old").unlink()
    (hosts.second / "old").unlink()
    assert hosts.objects() == {"of-another-job": "before"}


def test_what_is_moved_is_under_its_new_name_only(hosts: Hosts) -> None:
    (hosts.first / "whole.tmp").write_text("whole")
    hosts.objects()
    (hosts.first / "whole.tmp").rename(hosts.first / "whole")
    assert hosts.objects() == {"old": "before", "whole": "whole"}


class Shortened(io.BytesIO):
    """A file that is shortened after its length was taken, as by ``echo 10 > step``."""

    def read(self, size: int | None = -1, /) -> bytes:
        self.truncate(2)
        return super().read(size)


def test_a_file_that_the_script_shortens_meanwhile_is_uploaded_as_it_was_read(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hosts.first / "step").write_text("12345")
    monkeypatch.setattr(JobFolder, "open", lambda *_: Shortened(b"12345"))
    assert hosts.objects()["step"] == "12"


def test_a_folder_that_cannot_be_read_has_lost_nothing(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(PermissionError):
        hosts.checkpoints.sync()
    monkeypatch.undo()
    assert hosts.objects() == {"old": "before"}
