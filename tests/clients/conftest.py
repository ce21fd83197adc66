"""What clients of SageMaker find: an account that enforces permissions, with an image, a role and a bucket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from running_account import Running
from two_groups import BUCKET, IMAGE, SOURCE, Place

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.images.image_store import ImageStore


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("image")
    (folder / "train.py").write_bytes((SOURCE / "train.py").read_bytes())
    (folder / "Dockerfile").write_text(
        'FROM python:3.11\nCOPY train.py /opt/\nENTRYPOINT ["python", "/opt/train.py"]\n'
    )
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        account.jobs.host_seed = 0  # which deals two hosts to their groups in order
        running = Running(account)
        role = running.role("Jobs", "sagemaker.amazonaws.com")
        policy = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
        running.client("iam").attach_role_policy(RoleName="Jobs", PolicyArn=policy)
        running.client("s3").create_bucket(Bucket=BUCKET)
        store = ImageStore(account.state)
        store.build(folder, folder / "Dockerfile", [IMAGE])
        store.push(IMAGE)
        yield Place(running, role)
