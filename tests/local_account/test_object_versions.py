"""Objects of a bucket whose versioning was suspended, as AWS answered LocalStack's tests (localstack/localstack at 8b9a79f, under
tests/aws/services/s3: test_s3_api.py, test_put_object_on_suspended_bucket and test_delete_object_on_suspended_bucket)."""

from __future__ import annotations

from typing import Any

from running_account import Running

KEY = "it"


def suspended(running: Running, bucket: str, *bodies: str) -> tuple[Any, list[str]]:
    """A client of S3, and the ids of the versions that an object in a new bucket has had."""
    s3 = running.client("s3")
    s3.create_bucket(Bucket=bucket)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    ids = [str(s3.put_object(Bucket=bucket, Key=KEY, Body=body)["VersionId"]) for body in bodies]
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    return s3, ids


def listed(s3: Any, bucket: str) -> tuple[list[str], list[str]]:
    """The ids of an object's versions and of its delete markers, the newest first; the latest of all ends with a star."""
    answer = s3.list_object_versions(Bucket=bucket)
    versions, markers = (
        [it["VersionId"] + "*" * it["IsLatest"] for it in answer.get(kind, [])]
        for kind in ("Versions", "DeleteMarkers")
    )
    return versions, markers


def test_a_write_replaces_the_version_null_alone(running: Running) -> None:
    s3, [first, second, third] = suspended(running, "written", "0", "1", "2")
    assert listed(s3, "written") == ([f"{third}*", second, first], [])
    for body in ("suspended", "suspended again"):
        assert "VersionId" not in s3.put_object(Bucket="written", Key=KEY, Body=body)
        assert listed(s3, "written") == (["null*", third, second, first], [])
        assert s3.get_object(Bucket="written", Key=KEY)["Body"].read().decode() == body
    assert s3.get_object(Bucket="written", Key=KEY, VersionId=second)["Body"].read() == b"1"


def test_a_deletion_leaves_all_versions_but_null(running: Running) -> None:
    s3, [first, second] = suspended(running, "deleted", "0", "1")
    for _ in range(2):
        answer = s3.delete_object(Bucket="deleted", Key=KEY)
        assert (answer["DeleteMarker"], answer["VersionId"]) == (True, "null")
        assert listed(s3, "deleted") == ([second, first], ["null*"])
        s3.put_object(Bucket="deleted", Key=KEY, Body="suspended")
        assert listed(s3, "deleted") == (["null*", second, first], [])
    s3.delete_object(Bucket="deleted", Key=KEY, VersionId=second)
    assert listed(s3, "deleted") == (["null*", first], [])
