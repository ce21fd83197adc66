"""What a job does to reach files of the person who runs the account, each way as a real job: none of them leads out."""

from __future__ import annotations

import io
import json
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import visible
from shell_jobs import BUCKET, ShellJobs, channel

from sagemaker_local_account.account import LocalAccount

SECRET = "what the person who runs the account has"
CHECKPOINTS = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints"}}
PLAIN = {"OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/models", "CompressionType": "NONE"}}


class Escapes(ShellJobs):
    """An account whose person has a file that no job may read, and folders that no job may write to."""

    def __init__(self, account: LocalAccount, person: Path) -> None:
        super().__init__(account.environment(), account.state)
        self.person = person
        self.secret = person / "keys"
        self.secret.write_text(SECRET)
        self.keys = account.state / "account.json"
        self.account = account

    def put(self, key: str, content: str) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=content.encode())

    def everything(self) -> str:
        """All that S3 holds, archives unpacked, as one text."""
        texts = []
        for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            for entry in page.get("Contents", []):
                body = self.s3.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read()
                texts.append(body.decode(errors="replace"))
                if entry["Key"].endswith(".tar.gz"):
                    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
                        files = [tar.extractfile(member) for member in tar.getmembers() if member.isfile()]
                        texts += [file.read().decode(errors="replace") for file in files if file is not None]
        return "\n".join(texts)

    def reason(self, name: str) -> str:
        job = self.ended(name)
        assert job["TrainingJobStatus"] == "Failed", job
        return str(job["FailureReason"])


@pytest.fixture(scope="module")
def escapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Escapes]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield Escapes(account, tmp_path_factory.mktemp("person"))


def test_a_link_in_its_folders_shows_no_file_of_the_person_and_no_keys_of_the_account(escapes: Escapes) -> None:
    for number, file in enumerate((escapes.secret, escapes.keys)):
        for way, more in {"packed": CHECKPOINTS, "plain": {**CHECKPOINTS, **PLAIN}}.items():
            program = (
                f"for f in checkpoints model output/data; do mkdir -p /opt/ml/$f; ln -s {file} /opt/ml/$f/x; done; "
                "echo m > /opt/ml/model/m"
            )
            escapes.create(f"links-{number}-{way}", program, **more)
    for number in (0, 1):
        for way in ("packed", "plain"):
            assert escapes.ended(f"links-{number}-{way}")["TrainingJobStatus"] == "Completed"
    everything = escapes.everything()
    assert SECRET not in everything
    assert json.loads(escapes.keys.read_text()), "the account has its keys where the test looks for them"
    for value in _texts(json.loads(escapes.keys.read_text())):
        assert value not in everything


def test_a_link_that_stays_in_the_model_stays_a_link_in_the_archive(escapes: Escapes) -> None:
    escapes.create("inner", "cd /opt/ml/model; echo best > step-5; ln -s step-5 latest")
    assert escapes.ended("inner")["TrainingJobStatus"] == "Completed"
    body = escapes.s3.get_object(Bucket=BUCKET, Key="models/inner/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        assert {member.name: member.linkname for member in tar} == {"latest": "step-5", "step-5": ""}


def test_a_failure_file_that_is_a_link_gives_no_reason(escapes: Escapes) -> None:
    escapes.create("failure", f"ln -s {escapes.secret} /opt/ml/output/failure; exit 3")
    assert escapes.reason("failure") == "AlgorithmError: the command on algo-1 ended, exit code: 3"


@pytest.mark.parametrize(
    ("folder", "more"),
    [("checkpoints", CHECKPOINTS), ("model", {}), ("model", PLAIN), ("output/data", {})],
    ids=["checkpoints", "model", "plain-model", "data"],
)
def test_a_folder_that_is_replaced_by_a_link_fails_the_job(
    escapes: Escapes, folder: str, more: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    name = f"replaced-{request.node.callspec.id}"
    program = f"rm -rf /opt/ml/{folder}; ln -s {escapes.person} /opt/ml/{folder}"
    escapes.create(name, program, **more)
    assert f"a link or a file is in place of the folder '{folder}'" in escapes.reason(name)
    assert SECRET not in escapes.everything()


def test_no_process_of_a_job_reaches_the_descriptors_of_its_host(escapes: Escapes) -> None:
    # Process 1 is the job's own command: it has its output, and nothing of what made its host.
    # No grep runs beside ls, which would see the libraries that the loader of that grep has open.
    look = "ls -l /proc/[0-9]*/fd > /tmp/seen; grep -e '->' /tmp/seen | grep -v -e 'pipe:' -e /dev/null -e /proc/ -e /tmp/seen"
    escapes.create("descriptors", f"{look} && exit 3; ls /proc/1/fd/0 && grep -c 'pipe:' /tmp/seen && exit 0; exit 4")
    assert escapes.ended("descriptors")["TrainingJobStatus"] == "Completed"


class TestKeysThatLeadOut:
    """A key whose path below the channel's folder is not one, in AWS's own words."""

    @pytest.mark.parametrize(
        ("key", "illegal"), [("out/../../../evil", ".."), ("out//evil", "//"), ("out/a/../../evil", "..")]
    )
    def test_fail_the_job(self, escapes: Escapes, key: str, illegal: str, request: pytest.FixtureRequest) -> None:
        name = f"key-{['../..', '//', 'a/..'].index(next(p for p in ('a/..', '../..', '//') if p in key))}"
        escapes.put(f"{name}/{key}", "evil")
        escapes.create(name, "true", InputDataConfig=[channel("data", f"s3://{BUCKET}/{name}/")])
        reason = escapes.reason(name)
        assert reason.startswith("ClientError: Data download failed:Failed to download data. S3 key: s3://")
        assert f"has an illegal char sub-sequence '{illegal}' in it" in reason
        self.nothing_came_out(escapes)

    def test_fail_a_job_that_finds_them_among_its_checkpoints(self, escapes: Escapes) -> None:
        escapes.put("kept/../../../evil", "evil")
        escapes.create("kept", "true", CheckpointConfig={"S3Uri": f"s3://{BUCKET}/kept"})
        assert "has an illegal char sub-sequence '..' in it" in escapes.reason("kept")
        self.nothing_came_out(escapes)

    @pytest.mark.parametrize("path", ["../../../evil", "/../../evil"])
    def test_fail_a_job_whose_manifest_has_them(self, escapes: Escapes, path: str) -> None:
        name = f"manifest-{len(path)}"
        escapes.put(f"{name}/data/evil", "evil")
        escapes.put(f"{name}/{path}", "evil")
        manifest(escapes, name, [{"prefix": f"s3://{BUCKET}/{name}/"}, path])
        assert "has an illegal char sub-sequence" in escapes.reason(name)
        self.nothing_came_out(escapes)

    def test_of_a_local_path_fail_the_job(self, escapes: Escapes) -> None:
        config = {"S3Uri": f"s3://{BUCKET}/local", "LocalPath": "/opt/ml/../../evil"}
        escapes.create("local", "true", CheckpointConfig=config)
        assert "ClientError: a path must stay in its folder" in escapes.reason("local")
        self.nothing_came_out(escapes)

    def nothing_came_out(self, escapes: Escapes) -> None:
        assert not list(escapes.account.state.rglob("evil"))


def test_a_home_of_the_jobs_own_is_a_variable_and_makes_no_folder_outside(escapes: Escapes) -> None:
    home = f"/..{escapes.person}/home"
    escapes.create("home", 'echo "home is $HOME"', Environment={"HOME": home})
    assert escapes.ended("home")["TrainingJobStatus"] == "Completed"
    assert escapes.said("home")["algo-1"] == [f"home is {home}"]
    assert [path.name for path in escapes.person.iterdir()] == ["keys"]


def test_a_manifest_with_an_absolute_path_lies_below_the_channel(escapes: Escapes) -> None:
    escapes.put("absolute/part/etc/evil", "below")
    manifest(
        escapes,
        "absolute",
        [{"prefix": f"s3://{BUCKET}/absolute/part"}, "/etc/evil"],
        "cat /opt/ml/input/data/data/etc/evil",
    )
    assert escapes.ended("absolute")["TrainingJobStatus"] == "Completed"
    assert escapes.said("absolute")["algo-1"] == ["below"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "got {}"),
        ("[]", "got []"),
        ("not JSON", "is not JSON: Expecting value"),
        ('[{"prefix": "s3://shell-bucket/a/"}, 7]', "must be a list of a prefix and names"),
        ('[{"prefix": 7}, "a"]', "must be a list of a prefix and names"),
        ('["a"]', "must be a list of a prefix and names"),
    ],
    ids=["object", "empty", "text", "number", "prefix", "no-prefix"],
)
def test_a_malformed_manifest_is_the_users_mistake(
    escapes: Escapes, content: str, said: str, request: pytest.FixtureRequest
) -> None:
    name = f"malformed-{request.node.callspec.id}"
    manifest(escapes, name, content)
    reason = escapes.reason(name)
    assert reason.startswith(f"ClientError: Data download failed: the manifest s3://{BUCKET}/{name}/manifest ")
    assert said in reason


def test_a_file_and_a_folder_of_one_name_are_the_users_mistake(escapes: Escapes) -> None:
    escapes.put("twice/a", "a file")
    escapes.put("twice/a/b", "in a folder")
    escapes.create("twice", "true", InputDataConfig=[channel("data", f"s3://{BUCKET}/twice/")])
    assert escapes.reason("twice").startswith(
        "ClientError: Data download failed for s3://shell-bucket/twice/a/b: a file and a folder"
    )


def test_a_channel_whose_name_is_no_folder_is_the_users_mistake(escapes: Escapes) -> None:
    escapes.put("data/a", "a")
    escapes.create("dots", "true", InputDataConfig=[channel("..", f"s3://{BUCKET}/data/")])
    assert escapes.reason("dots").startswith("ClientError: a path must stay in its folder")


def test_a_job_sees_what_the_list_has_with_a_reason_and_nothing_else(
    escapes: Escapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONS_TOKEN", SECRET)
    with socket.create_server(("", 0)) as others:  # a server of another program on this machine
        port = others.getsockname()[1]
        addresses = [a.address for found in psutil.net_if_addrs().values() for a in found if a.family == socket.AF_INET]
        places = [("MACHINE", address, port) for address in addresses]
        places += [("METADATA", "169.254.169.254", 80), ("OUTSIDE", "192.0.2.1", 443)]
        escapes.put("look/train.py", Path(__file__).with_name("look_around.py").read_text())
        escapes.create(
            "look",
            "python /opt/ml/input/data/code/train.py",
            InputDataConfig=[channel("code", f"s3://{BUCKET}/look/")],
            Environment={
                "PROBED": " ".join(f"{name},{address},{number}" for name, address, number in places),
                "PYTHON_FOLDERS": ":".join(visible.python_folders(escapes.account.state)),
            },
        )
        assert escapes.statuses(["look"]) == ["Completed"]
    of_test = ("environment PATH=", "environment PROBED=", "environment PYTHON_FOLDERS=")
    lines = [line for line in escapes.said("look")["algo-1"] if not line.startswith(of_test)]
    endpoint = {str(escapes.account.description.port): "ENDPOINT"}
    seen, expected = visible.seen(lines, escapes.account.state, endpoint), visible.expected()
    assert seen - {line.text for line in expected} == set(), "what no line of visible.txt has"
    assert {line.text for line in expected if line.everywhere} - seen == set(), "what is not there any more"
    assert [line.text for line in expected if not line.reason] == []


def manifest(escapes: Escapes, name: str, content: Any, program: str = "true") -> None:
    """A job whose channel `data` is a manifest."""
    escapes.put(f"{name}/manifest", content if isinstance(content, str) else json.dumps(content))
    source = {"S3DataType": "ManifestFile", "S3Uri": f"s3://{BUCKET}/{name}/manifest"}
    escapes.create(name, program, InputDataConfig=[{"ChannelName": "data", "DataSource": {"S3DataSource": source}}])


def _texts(value: Any) -> Iterator[str]:
    """The texts in a JSON value that are long enough to be found by chance nowhere else."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, str) and len(value) > 15 and "KEY" not in value.upper():
        yield value
