"""A job of two groups, as every client makes it, and what it leaves."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from running_account import Running

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1"
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
# AmazonSageMakerFullAccess is for buckets with "sagemaker" in their names.
BUCKET = "own-sagemaker-bucket"
SOURCE = Path(__file__).parent / "source"
HOSTS = {"algo-1": "data_group", "algo-2": "dnn_group", "algo-3": "dnn_group"}
LINES = [f"{host} trains in {group}" for host, group in HOSTS.items()]
WEIGHTS = {f"{group}-{host}.txt": f"weights of {group}" for host, group in HOSTS.items()}


@dataclass(frozen=True)
class Place:
    """A running account, and the role of its jobs."""

    running: Running
    role: str

    def request(self, name: str) -> dict[str, Any]:
        """A heterogeneous job, as CreateTrainingJob takes it. Its image runs train.py."""
        groups = [("data_group", "ml.m5.large", 1), ("dnn_group", "ml.m5.xlarge", 2)]
        return {
            "TrainingJobName": name,
            "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
            "RoleArn": self.role,
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/models"},
            "ResourceConfig": {
                "VolumeSizeInGB": 1,
                "InstanceGroups": [
                    {"InstanceGroupName": group, "InstanceType": kind, "InstanceCount": count}
                    for group, kind, count in groups
                ],
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        }


def files_of(archive: Path) -> dict[str, str]:
    """The files in a model.tar.gz, by their names."""
    with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as tar:
        return {file.name: tar.extractfile(file).read().decode() for file in tar if file.isfile()}  # type: ignore[union-attr]


def groups_of(job: dict[str, Any]) -> dict[str, int]:
    return {group["InstanceGroupName"]: group["InstanceCount"] for group in job["ResourceConfig"]["InstanceGroups"]}
