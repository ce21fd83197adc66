"""Records what AWS's SDK sends for a job, or why it refuses it, without sending it: `record.py [NAME ...]`.

Runs in an environment of its own (README.md beside this). Each `cases_*.py` here has a dict ``CASES`` from a name to a function
that takes a SageMaker session and returns an estimator, or one with the arguments of its ``fit``; what comes of it is written to
`recorded/<name>.json`, either as ``request``, CreateTrainingJob's own JSON, or as ``refused``, the SDK's error.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROLE = "arn:aws:iam::123456789012:role/Training"
BUCKET = "bucket"
REGION = "us-east-1"
JOB_NAME = "job"
# What the SDK would look for on the machine, or ask AWS for.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


def main(names: list[str]) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "SAGEMAKER_"))]:
        del os.environ[name]
    os.environ.update(ENVIRONMENT, HOME=tempfile.mkdtemp())
    forbid_sockets()
    unknown = set(names) - set(all_cases())
    if unknown:
        raise SystemExit(f"names must be of cases, like {min(all_cases())!r}, got {sorted(unknown)}")
    (HERE / "recorded").mkdir(exist_ok=True)
    for name, case in all_cases().items():
        if names and name not in names:
            continue
        recorded = {"sdk": f"sagemaker {version('sagemaker')}", **outcome(case)}
        text = json.dumps(recorded, indent=1, sort_keys=True)
        (HERE / "recorded" / f"{name}.json").write_text(text + "\n")
        print(f"{name}: {recorded.get('refused', 'request')}")


def all_cases() -> dict[str, Callable[[Any], Any]]:
    cases: dict[str, Callable[[Any], Any]] = {}
    for path in sorted(HERE.glob("cases_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        twice = set(cases) & set(module.CASES)
        if twice:
            raise SystemExit(
                f"a case's name must be its own, like one that begins with {path.stem!r}, got {twice} twice"
            )
        cases.update(module.CASES)
    return cases


def outcome(case: Callable[[Any], Any]) -> dict[str, Any]:
    """The request of a case, or the error with which the SDK refuses it, when it is made or when it is started."""
    session = offline_session()
    try:
        made = case(session)
        estimator, fit = made if isinstance(made, tuple) else (made, {})
        return {"request": request_of(estimator, session, **fit)}
    except Exception as error:  # the SDK has errors of a dozen kinds, its bugs among them
        return {"refused": f"{type(error).__name__}: {_plain(str(error))}"}


def request_of(
    estimator: Any, session: Any, inputs: Any = None, experiment_config: dict[str, str] | None = None
) -> dict[str, Any]:
    """What ``estimator.fit(inputs, experiment_config=...)`` would send."""
    from sagemaker.estimator import _TrainingJob
    from sagemaker.fw_utils import UploadedCode

    # The script is not uploaded; where it would lie is what the request says.
    code = UploadedCode(f"s3://{BUCKET}/{JOB_NAME}/source/sourcedir.tar.gz", "train.py")
    estimator._stage_user_code_in_s3 = lambda: code
    estimator._prepare_for_training(job_name=JOB_NAME)
    channels = inputs or {"training": f"s3://{BUCKET}/training/"}
    arguments = _TrainingJob._get_train_args(estimator, channels, experiment_config)
    return dict(session._get_train_request(**arguments))


def offline_session() -> Any:
    import boto3
    from sagemaker import Session

    session = Session(
        boto_session=boto3.Session(region_name=REGION),
        default_bucket=BUCKET,
        sagemaker_config={"SchemaVersion": "1.0"},  # not the machine's
    )
    session._default_bucket = BUCKET  # so that it does not ask whether the bucket is there
    return session


def forbid_sockets() -> None:
    class NoSocket(socket.socket):
        def connect(self, address: Any) -> None:
            raise OSError(f"record.py talks to nobody, tried {address}")

    socket.socket = NoSocket  # type: ignore[misc]


def _plain(text: str) -> str:
    """An error without colours, line ends and what differs between two runs."""
    return re.sub(r"\s+", " ", re.sub(r"\x1b\[[0-9;]*m", "", text)).strip()


if __name__ == "__main__":
    main(sys.argv[1:])
