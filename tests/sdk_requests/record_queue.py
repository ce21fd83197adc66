"""Records what AWS's SDK sends to a queue of AWS Batch, without sending it, in an environment of version 3 (README.md).

Writes `queue.json`: ``payload``, a CreateTrainingJob request, and ``request``, the SubmitServiceJob request for it.
"""

import copy
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

PAYLOAD = {
    "TrainingJobName": "stack-training",
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1},
    "Tags": [{"Key": "team", "Value": "digits"}],
}


class Batch:
    """A client that keeps what it is called with."""

    def submit_service_job(self, **request: Any) -> dict[str, Any]:
        self.request = request
        return {}


def main() -> None:
    from sagemaker.train.aws_batch import batch_api_helper

    client = Batch()
    batch_api_helper.get_batch_boto_client = lambda: client
    batch_api_helper._submit_service_job(
        copy.deepcopy(PAYLOAD),
        "stack-training-1",
        "arn:aws:batch:us-east-1:123456789012:job-queue/jobs",
        retry_config={"attempts": 1},
        scheduling_priority=3,
        share_identifier="vision",
    )
    recorded = {"sdk": f"sagemaker-train {version('sagemaker-train')}", "payload": PAYLOAD, "request": client.request}
    Path(__file__).with_name("queue.json").write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
