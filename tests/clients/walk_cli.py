"""Version 1 of the AWS CLI with nothing but the environment: `walk_cli.py CALLS` prints what each call came to, by its service.

Those for which it has endpoints of its own (overridesslcommonname.py in it) are called as a user does, by `aws` on the PATH. The
others are called in this process, with the endpoint that this `aws` adds.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

from awscli.clidriver import create_clidriver
from awscli.customizations.overridesslcommonname import SSL_COMMON_NAMES

COMMANDS = {"s3": "s3api"}


def called(service: str, operation: str, members: dict[str, str]) -> str:
    arguments = [COMMANDS.get(service, service), operation, "--cli-input-json", json.dumps(members)]
    if service in SSL_COMMON_NAMES:
        done = subprocess.run(["aws", *arguments], capture_output=True, text=True, check=False)
        code, errors = done.returncode, done.stderr
    else:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
            code = create_clidriver().main(["--endpoint-url", os.environ["AWS_ENDPOINT_URL"], *arguments])
        errors = told.getvalue()
    if code == 0:
        return "answered"
    return f"{'refused' if 'An error occurred (' in errors else 'failed'}: {errors.strip()}"


calls = json.loads(Path(sys.argv[1]).read_text())
calls |= {"docdb": ["describe-db-clusters", {}], "emr": ["list-clusters", {}], "neptune": ["describe-db-clusters", {}]}
print(json.dumps({service: called(service, *call) for service, call in calls.items()}))
