"""Records what version 3 of SageMaker's SDK sends, or why it refuses it: `record_v3.py PYTHON`, a Python that has the SDK."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from jobs_v3 import CASES

from training_jobs.adopt.from_sdk import request_of_script
from training_jobs.client.errors import TrainingError

HERE = Path(__file__).parent
VERSION = "from importlib.metadata import version; print('sagemaker-train', version('sagemaker-train'))"


def main(python: str) -> None:
    sdk = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=True).stdout.strip()
    for name in CASES:
        recorded: dict[str, Any] = {"sdk": sdk}
        try:
            caught = request_of_script(HERE / "jobs_v3.py", [name], python=python)
            recorded["request"] = {**caught.request, "TrainingJobName": "job"}  # the SDK's name has the time
        except TrainingError as error:
            recorded["refused"] = str(error).rpartition("before it starts a job: ")[2]
        text = json.dumps(recorded, indent=1, sort_keys=True)
        (HERE / "recorded_v3" / f"{name}.json").write_text(text + "\n")
        print(f"{name}: {recorded.get('refused', 'request')}")


if __name__ == "__main__":
    main(sys.argv[1])
