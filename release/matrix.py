"""Installs the wheels in empty environments, by each Python, with the lowest and with the newest dependencies, and tries them.

    python release/matrix.py --python python3.12 --python python3.13 --dependencies lowest

``lowest`` has the lowest version of each package that the three pyproject.toml name, ``newest`` the newest that they take; all
else is the newest in both. In each environment the README's stack is synthesized, the tests of the constructs run, and the stack
is deployed to a local account, where its job's hosts run a command in place of the training: that takes PyTorch, which `make
soak` has. Node and the CDK CLI are those of `make setup`. Prints the table of docs/upgrading.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
# What the tests import besides, in the versions of requirements-dev.txt and requirements-jobs.txt.
TOOLS = (
    "deploy-time-build",
    "docstring_parser",
    "hypothesis",
    "networkx",
    "orjson",
    "pandas",
    "paramiko",
    "pytest",
    "pytest-timeout",
    "regex",
    "sympy",
)
# Without what they need besides: cfn-lint and policy_sentry take no PyYAML and requests as old as the lowest.
ALONE = ("cfn-lint", "policy_sentry", "sagemaker_training")
# Tests of what only newer versions have: docs/upgrading.md says what an older aws-cdk-lib lacks.
OF_THE_NEWEST = (
    # The condition of state machines' roles, since 2.274.
    "test_review.py::test_every_role_of_a_workflow_but_its_functions_is_taken_on_only_for_what_lies_in_its_account",
    # Quota shares, since 2.245.
    "test_queue.py::test_quota_shares_are_resources",
    "test_queue.py::test_quota_shares_need",
    "test_queue.py::test_a_job_of_a_quota_share",
    "test_queue.py::test_the_machine_of_a_job_of_a_quota_share",
    "test_queue.py::test_a_job_that_would_wait_for_ever_for_its_quota_share",
    "test_queue.py::test_a_job_that_was_preempted",
    "test_queue.py::test_each_preempted_run",
    "test_queue.py::test_a_number_of_preemptions",
    "test_queue.py::test_a_job_that_failed_after_as_many_preemptions",
    "test_queue.py::test_preemptions_are_limited_in_quota_shares",
    "test_queue.py::test_a_budget_of_jobs_that_batch_may_run_again",
    "test_queue.py::test_where_no_job_was_submitted",
    "test_snippets.py::test_a_snippet_runs_and_its_stack_synthesizes[docs/queue.md",
)
WITH_PYTORCH = (
    "test_init_script.py::test_the_first_script_trains",
    "test_commands.py::test_the_newest_version_of_the_table_is_that_of_the_launchers_here",
    "test_commands.py::test_launchers_end_at_the_arguments_at_which_they_are_said_to",
    "test_commands.py::test_accelerate_ends_at_the_files_at_which_it_is_said_to",
    "test_requirements.py::test_the_table_has_what_installed_packages_need",
    "test_requirements.py::test_a_module_that_an_installed_package_brings_is_not_called_absent",
)
START = """
import json, time
import boto3

outputs = json.load(open("outputs.json"))["Digits"]
states = boto3.client("stepfunctions")
execution = states.start_execution(stateMachineArn=outputs["StateMachineArn"])["executionArn"]
while (described := states.describe_execution(executionArn=execution))["status"] == "RUNNING":
    time.sleep(0.5)
assert described["status"] == "SUCCEEDED", described
"""
WITHOUT_TRAINING = 'container_entrypoint=["sh", "-c", "echo weights > /opt/ml/model/weights"], max_runtime='
DEPLOY_AND_START = (
    "cdk bootstrap aws://123456789012/us-east-1; "
    "cdk deploy --require-approval never --outputs-file outputs.json; "
    "python start.py"
)


def main() -> None:
    """Print a row for each environment; fails if a check of one does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", action="append", help=f"by default those of {', '.join(PYTHONS)} that are on the PATH"
    )
    parser.add_argument("--dependencies", choices=("lowest", "newest"), action="append", help="by default both")
    parser.add_argument("--check", choices=CHECKS, action="append", help="by default all; all others need install")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "matrix", help="for environments and outputs")
    given = parser.parse_args()
    columns = ("Python", "dependencies", "aws-cdk-lib", *CHECKS)
    print(row(*columns), row(*["---"] * len(columns)), sep="\n", flush=True)
    failed = False
    for python in given.python or filter(shutil.which, PYTHONS):
        for dependencies in given.dependencies or ("lowest", "newest"):
            home = given.folder.absolute() / f"{Path(python).name}-{dependencies}"
            results = []
            for name, check in CHECKS.items():
                if given.check and name not in given.check:
                    results.append("not run")
                    continue
                try:
                    check(home, python, dependencies)
                    results.append("passed")
                except subprocess.CalledProcessError as error:
                    (home.parent / f"{home.name}.{name}.log").write_text(error.stdout)
                    results.append("failed")
                    failed = True
            print(row(*versions(home, python, dependencies), *results), flush=True)
    sys.exit(failed)


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def versions(home: Path, python: str, dependencies: str) -> tuple[str, str, str]:
    """The first cells of an environment's row."""
    show = (
        "import platform, importlib.metadata as found; print(platform.python_version(), found.version('aws-cdk-lib'))"
    )
    try:
        version, cdk = run([home / "bin" / "python", "-c", show], home).split()
    except (OSError, subprocess.CalledProcessError):  # it was not installed
        return Path(python).name, dependencies, ""
    return version, dependencies, cdk


def install(home: Path, python: str, dependencies: str) -> None:
    """The wheels in an empty environment, with what the tests of the constructs need."""
    run([python, "-m", "venv", "--clear", home], ROOT)
    wheels = home / "wheels"
    source = home / "source"  # a copy, since setuptools leaves its build folder beside the source
    run(["git", "checkout-index", "--all", f"--prefix={source}/"], ROOT)
    pip = [home / "bin" / "pip", "install", "--no-compile"]
    sources = [source, source / "local_account", source / "training_jobs"]
    run([pip[0], "wheel", "--no-deps", "--wheel-dir", wheels, *sources], home)
    [constructs] = wheels.glob("cdk_*.whl")
    others = [one for one in wheels.glob("*.whl") if one != constructs]
    files = [(ROOT / f"requirements-{name}.txt").read_text() for name in ("dev", "jobs")]
    pinned = {line.split("==")[0]: line for text in files for line in text.splitlines()}
    tools = [pinned[name] for name in TOOLS]
    pins = lowest() if dependencies == "lowest" else []
    run([*pip, *others, f"{constructs}[local]", *tools, *pins], home)
    run([*pip, "--no-deps", *(pinned[name] for name in ALONE)], home)


def lowest() -> list[str]:
    """The lowest version of each package that the distributions name."""
    pins = set()
    for folder in ("", "local_account", "training_jobs"):
        project = (ROOT / folder / "pyproject.toml").read_text()
        for requirement in map(Requirement, tomllib.loads(project)["project"]["dependencies"]):
            [bound] = [one.version for one in requirement.specifier if one.operator in (">=", "==")]
            pins.add(f"{requirement.name}=={bound}")
    return sorted(pins)


def synthesize(home: Path, python: str, dependencies: str) -> None:
    """The README's stack, outside the clone."""
    (home / "app.py").write_text(readme_app())
    run([home / "bin" / "python", "app.py"], home, CDK_OUTDIR="cdk.out")
    assert (home / "cdk.out" / "Digits.template.json").exists()


def readme_app() -> str:
    """The app of the README's "A whole stack"."""
    [app] = re.findall(r"```python\n(import aws_cdk.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return str(app)


def constructs(home: Path, python: str, dependencies: str) -> None:
    """The tests of the constructs and of the command line, which import the wheels'."""
    # Warnings are no errors: the lowest versions may use what the newest of their own dependencies deprecate. Left out is what
    # needs PyTorch or accelerate, and cdk-nag, which takes no aws-cdk-lib below 2.257.
    options = [
        "-q",
        "-W",
        "default",
        "-m",
        "not soak",
        *(f"--deselect=tests/training_jobs/{name}" for name in WITH_PYTORCH),
        "--ignore=tests/constructs/test_from_cdk.py",
    ]
    if dependencies == "lowest":
        options += [f"--deselect=tests/constructs/{name}" for name in OF_THE_NEWEST]
    run([home / "bin" / "pytest", *options, "tests/constructs", "tests/training_jobs"], ROOT)


def job(home: Path, python: str, dependencies: str) -> None:
    """The README's stack, deployed to a local account, and its job."""
    app = readme_app().replace(" max_runtime=", f" {WITHOUT_TRAINING}")
    for name, text in {"app.py": app, "start.py": START, "cdk.json": '{"app": "python app.py"}'}.items():
        (home / name).write_text(text)
    run([home / "bin" / "local-account", "run", "--", "sh", "-ec", DEPLOY_AND_START], home)


def run(command: Sequence[str | Path], folder: Path, **variables: str) -> str:
    """Run a command with the programs of an environment; its output, which an error has too."""
    path = f"{Path(command[0]).parent}:{ROOT / 'node_modules' / '.bin'}:{os.environ['PATH']}"
    # Bytecode of what is imported is kept, since pip compiled nothing.
    own = {"PATH": path, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "", **variables}
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **own},
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ).stdout


CHECKS: dict[str, Callable[[Path, str, str], None]] = {
    "install": install,
    "synthesize": synthesize,
    "constructs": constructs,
    "job": job,
}

if __name__ == "__main__":
    main()
