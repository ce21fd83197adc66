from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from sagemaker_local_account.images.image_store import ImageError, ImageStore

if TYPE_CHECKING:
    from conftest import Builds

DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker"
REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"


def test_the_same_content_is_the_same_image(builds: Builds):
    file = builds.file("a.py")
    first = builds.build("COPY a.py /opt/").id
    os.utime(file, (0, 0))
    assert builds.build("# another comment", "COPY a.py /opt/").id == first


def test_other_content_is_another_image(builds: Builds):
    builds.file("a.py", "one")
    first = builds.build("COPY a.py /opt/").id
    builds.file("a.py", "two")
    assert builds.build("COPY a.py /opt/").id != first


def test_an_image_is_found_by_its_names_and_its_id(builds: Builds):
    image = builds.build("ENV A=1", tags=("jobs", "jobs:2"))
    found = [builds.store.inspect(name) for name in ("jobs:latest", "jobs:2", image.id, f"sha256:{image.id}")]
    assert [one and one.env for one in found] == [{"A": "1"}] * 4


def test_there_is_no_image_of_an_unknown_name(builds: Builds):
    assert [builds.store.inspect(name) for name in ("other", "No Name", "../tags")] == [None] * 3


def test_a_name_moves_to_the_image_that_is_built_last(builds: Builds):
    builds.build("ENV A=1", tags=("jobs",))
    builds.build("ENV A=2", tags=("jobs",))
    found = builds.store.inspect("jobs")
    assert found is not None
    assert found.env == {"A": "2"}


def test_a_failed_build_leaves_nothing(builds: Builds):
    builds.file("a.py")
    builds.refused("COPY a.py /opt/", "COPY missing /opt/", tags=("jobs",))
    assert sorted(path.name for path in (builds.state / "images").rglob("*")) == ["registry", "tags"]


def test_an_image_that_was_pushed_is_what_a_job_gets(builds: Builds):
    builds.file("train.py")
    builds.build("COPY train.py /opt/", tags=("local:1",))
    builds.store.tag("local:1", f"{REGISTRY}/jobs:1")
    builds.store.push(f"{REGISTRY}/jobs:1")
    assert (ImageStore(builds.state).resolve(f"{REGISTRY}/jobs:1").root / "opt" / "train.py").is_file()


def test_an_image_that_was_not_pushed_is_not(builds: Builds):
    builds.build(tags=(f"{REGISTRY}/jobs:1",))
    with pytest.raises(ImageError, match=f"ClientError: Cannot find the requested image: {REGISTRY}/jobs:1"):
        builds.store.resolve(f"{REGISTRY}/jobs:1")


def test_an_image_is_also_found_by_the_digest_that_the_registry_gave_it(builds: Builds):
    image = builds.build(tags=(f"{REGISTRY}/jobs:1",))
    digest = f"sha256:{'7' * 64}"
    builds.store.push(f"{REGISTRY}/jobs:1", lambda id, name: digest)
    assert builds.store.resolve(f"{REGISTRY}/jobs@{digest}").id == image.id


def test_an_image_that_the_registry_refuses_is_not_pushed(builds: Builds):
    def refuse(id: str, name: object) -> None:
        raise ImageError("no such repository")

    builds.build(tags=(f"{REGISTRY}/jobs:1",))
    with pytest.raises(ImageError, match="no such repository"):
        builds.store.push(f"{REGISTRY}/jobs:1", refuse)
    with pytest.raises(ImageError, match="Cannot find the requested image"):
        builds.store.resolve(f"{REGISTRY}/jobs:1")


@pytest.mark.parametrize("registry", ["docker.io/me", "210987654321.dkr.ecr.us-east-1.amazonaws.com", "ghcr.io/me"])
def test_a_push_to_another_registry_is_refused_by_name(builds: Builds, registry: str):
    builds.build(tags=(f"{registry}/jobs:1",))
    with pytest.raises(
        ImageError, match=f"push must be to the account's own registry, like 1234.*got '{registry}/jobs:1'"
    ):
        builds.store.push(f"{registry}/jobs:1")


def test_a_deep_learning_container_is_an_image_with_no_file_but_its_entry_points(builds: Builds):
    image = builds.store.resolve(DLC)
    files = [str(path.relative_to(image.root)) for path in image.root.rglob("*") if path.is_file()]
    assert files == ["usr/local/bin/start_with_right_hostname.sh"]
    assert (image.entrypoint, image.workdir) == (["bash", "-m", "start_with_right_hostname.sh"], "/workspace")
    assert image.env["SAGEMAKER_TRAINING_MODULE"] == "sagemaker_pytorch_container.training:main"


@pytest.mark.parametrize("uri", ["nginx", f"{REGISTRY}/pytorch:2.13", "example.com/pytorch:2.13", "Not A Name"])
def test_no_other_image_is_had(builds: Builds, uri: str):
    with pytest.raises(ImageError):
        builds.store.resolve(uri)


def test_notes_are_kept_with_the_image(builds: Builds):
    image = builds.build("RUN make", tags=("jobs",))
    assert json.loads((image.root.parent / "image.json").read_text())["notes"] == image.notes
