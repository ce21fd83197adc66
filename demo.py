"""From `cdk deploy` to a trained model, on this machine: `make demo`, or with `KIND=compiled` or `KIND=model-parallel`.

Starts the local account, bootstraps and deploys a stack of app.py with the CDK CLI, uploads its data, starts an execution of its
state machine, watches the training job by `training-jobs watch`, evaluates the model that it leaves in S3, and takes everything
down again.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import math
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import numpy as np
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.core.state import AccountError

HERE = Path(__file__).parent
LEAST_ACCURACY = 0.90
MOST_BITS = 4.0  # of a byte; one that knows nothing of text needs 8
HELD_OUT_MODULE = "argparse.py"
WINDOW = "1280,800"  # pixels of a picture of the web page
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
HEADS = 4  # the default of training_code/compiled/train.py


class DemoError(Exception):
    """A part of the demo failed; the message says which and why."""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--kind", choices=sorted(KINDS), default="heterogeneous", help="of training job")
    arguments.add_argument("--state", type=Path, default=HERE / ".local-account", help="the account's folder")
    arguments.add_argument("--picture", type=Path, help="also write the last picture of `training-jobs watch`, as SVG")
    arguments.add_argument("--report", type=Path, help="also write the page of `training-jobs report`")
    arguments.add_argument(
        "--pages",
        type=Path,
        help="also write a picture of each page of the account's web page to this folder, by Chromium",
    )
    options = arguments.parse_args()
    console = Console()
    start = time.monotonic()
    try:
        with step(console, "start the account"):
            account = LocalAccount(state=options.state, web=options.pages is not None)
            account.start()
        try:
            run(console, account, KINDS[options.kind], options)
        finally:
            with step(console, "stop the account"):
                account.close()
    except (DemoError, AccountError, BotoCoreError, ClientError) as error:
        console.print(f"[bold red]the demo failed:[/] {error}", highlight=False)
        return 1
    console.print(f"all of it took {time.monotonic() - start:.0f} s")
    return 0


@dataclass(frozen=True)
class Kind:
    """What sets one kind's demo apart: its stack, what it trains on, and what its model must be able to do.

    ``data`` is the content of the object at ``key``; ``judge`` says what the model in a folder can do, and whether that
    will do.
    """

    stack: str
    key: str
    data: Callable[[], bytes]
    judge: Callable[[Path], tuple[str, bool]]


def run(console: Console, account: LocalAccount, kind: Kind, options: argparse.Namespace) -> None:
    environment = account.environment()
    session = boto3.Session(
        environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"], region_name=environment["AWS_REGION"]
    )

    def client(service: str) -> Any:
        return session.client(service, endpoint_url=environment["AWS_ENDPOINT_URL"])

    with step(console, "cdk bootstrap"):
        # With the account and region named, the CLI need not synthesize the app to find them.
        cdk(environment, "bootstrap", f"aws://{environment['CDK_DEFAULT_ACCOUNT']}/{environment['CDK_DEFAULT_REGION']}")
    outputs_file, assembly = account.state / "outputs.json", str(account.state / "cdk.out")
    with step(console, f"cdk deploy {kind.stack}"):
        cdk(
            environment,
            "deploy",
            kind.stack,
            "--require-approval",
            "never",
            "--outputs-file",
            str(outputs_file),
            "--output",
            assembly,
        )
    outputs = json.loads(outputs_file.read_text())[kind.stack]
    bucket, machine = outputs["BucketName"], outputs["StateMachineArn"]
    try:
        with step(console, f"upload {kind.key}"):
            client("s3").put_object(Bucket=bucket, Key=kind.key, Body=kind.data())
        execution = client("stepfunctions").start_execution(stateMachineArn=machine)["executionArn"]
        watch(environment, execution, options.picture)
        job = describe(environment, execution)
        if options.pages:
            with step(console, "draw the web page"):
                shown = {"account": "", "execution": f"execution/{quote(execution, safe='')}"}
                shown["job"] = f"job/{account.description.regions[0]}/{job['TrainingJobName']}"
                draw_pages(account, shown, options.pages)
        if options.report:
            command = ["training-jobs", "report", execution, "--to", str(options.report)]
            subprocess.run(command, env=environment, check=True)
        with step(console, "evaluate the model"):
            uri = job["ModelArtifacts"]["S3ModelArtifacts"]
            download(client("s3"), uri, account.state / "model")
            said, good = kind.judge(account.state / "model")
        console.print(summary(job, said))
        console.print(f"model: {uri}", soft_wrap=True)
        if not good:
            raise DemoError(f"the model has not learned enough: {said}")
    finally:
        with step(console, "cdk destroy"):
            empty(client("s3"), bucket)
            cdk(environment, "destroy", kind.stack, "--force", "--app", assembly)


@contextmanager
def step(console: Console, name: str) -> Iterator[None]:
    """Show a part while it runs, then the time it took."""
    start = time.monotonic()
    with console.status(f"{name} ..."):
        yield
    console.print(f"[green]{'done':>6}[/]  {name:<40} {time.monotonic() - start:5.1f} s", highlight=False)


def cdk(environment: dict[str, str], *arguments: str) -> None:
    command = ["cdk", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=HERE,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except FileNotFoundError:
        raise DemoError("the CDK CLI is not on the PATH; `make demo` installs it") from None
    if done.returncode:
        raise DemoError(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stdout.decode(errors='replace')}")


def digits_file() -> bytes:
    """scikit-learn's handwritten digits: images, uint8 [1797, 8, 8], and labels [1797], as one .npz file."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    file = io.BytesIO()
    np.savez_compressed(file, images=digits.images.astype(np.uint8), labels=digits.target)
    return file.getvalue()


def watch(environment: dict[str, str], execution: str, picture: Path | None) -> None:
    """Watch the execution to its end, as a user of the command line does."""
    saved = [] if picture is None else ["--svg", str(picture)]
    if subprocess.run(["training-jobs", "watch", execution, *saved], env=environment, check=False).returncode:
        raise DemoError(f"the execution did not succeed: {execution}")


def describe(environment: dict[str, str], execution: str) -> dict[str, Any]:
    """Return the description of the execution's job."""
    command = ["training-jobs", "describe", execution, "--json"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def draw_pages(account: LocalAccount, pages: Mapping[str, str], folder: Path) -> None:
    """Save pictures of pages, by their names and paths after the token."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise DemoError(f"--pages needs Chromium, as one of {', '.join(BROWSERS)}")
    for name, path in pages.items():
        url = f"{account.description.web_url}{path}"
        file = folder.absolute() / f"web-{name}.png"
        command = [program, "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WINDOW}"]
        done = subprocess.run([*command, f"--screenshot={file}", url], capture_output=True, text=True, check=False)
        if done.returncode or not file.exists():
            raise DemoError(f"Chromium cannot draw {name}:\n{done.stderr}")


def download(s3: Any, uri: str, folder: Path) -> None:
    bucket, key = uri.removeprefix("s3://").split("/", 1)
    archive = io.BytesIO(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    with tarfile.open(fileobj=archive) as tar:
        tar.extractall(folder, filter="data")


def training_module(kind: str) -> Any:
    """``model`` of a kind's training code; a process shows one kind."""
    sys.path[:0] = [str(HERE / "training_code" / kind), str(HERE / "training_code")]
    import model

    return model


def judged_digits(folder: Path) -> tuple[str, bool]:
    right = float(training_module("heterogeneous").held_out_accuracy(folder / "model.pt"))
    return f"accuracy on held-out digits {right:.1%}", right >= LEAST_ACCURACY


def library_text() -> bytes:
    """The modules of Python's standard library, but the one that the model is judged by."""
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return b"\n\n\n".join(module.read_bytes() for module in modules if module.name != HELD_OUT_MODULE)


def judged_compiled(folder: Path) -> tuple[str, bool]:
    import torch

    code, text = training_module("compiled"), importlib.import_module("text")
    state = torch.load(folder / "model.pt", map_location="cpu", weights_only=True)
    sequence, width = state["positions.weight"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("blocks."))
    model = code.LanguageModel(sequence=sequence, width=width, layers=layers, heads=HEADS)
    model.load_state_dict(state)
    unseen = text.Text(held_out_module(), sequence)
    count = unseen.targets(np.arange(len(unseen)))
    with torch.no_grad():
        return judged_text(model(*text.inputs_and_targets(text.padded(list(unseen), sequence)), count).item())


def judged_model_parallel(folder: Path) -> tuple[str, bool]:
    import torch

    code = training_module("model_parallel")
    saved = torch.load(folder / "model.pt", map_location="cpu", weights_only=True)
    model = code.Transformer(code.Config(**saved["config"]))
    model.load_state_dict(saved["model"])
    unseen = torch.frombuffer(bytearray(held_out_module().read_bytes()), dtype=torch.uint8).long()
    sequences = unseen.unfold(0, model.config.context + 1, model.config.context)
    with torch.no_grad():
        logits = model(sequences[:, :-1])
        return judged_text(torch.nn.functional.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten()).item())


def held_out_module() -> Path:
    return Path(sysconfig.get_path("stdlib")) / HELD_OUT_MODULE


def judged_text(nats: float) -> tuple[str, bool]:
    """From a model's loss on the module that it has not seen."""
    bits = nats / math.log(2)
    return f"{bits:.2f} bits for a byte of {HELD_OUT_MODULE}, which it has not seen", bits <= MOST_BITS


KINDS = {
    "heterogeneous": Kind("HeterogeneousTraining", "digits/digits.npz", digits_file, judged_digits),
    "compiled": Kind("CompiledTraining", "text/library.txt", library_text, judged_compiled),
    "model-parallel": Kind("ModelParallelTraining", "text/library.py", library_text, judged_model_parallel),
}


def summary(job: dict[str, Any], said: str) -> Table:
    table = Table(title=job["TrainingJobName"])
    for heading in ("group", "instance type", "hosts"):
        table.add_column(heading)
    first = 1
    resources = job["ResourceConfig"]
    for group in resources.get("InstanceGroups") or [{"InstanceGroupName": "all", **resources}]:
        names = [f"algo-{number}" for number in range(first, first + group["InstanceCount"])]
        first += group["InstanceCount"]
        table.add_row(group["InstanceGroupName"], group["InstanceType"], ", ".join(names))
    metrics = ", ".join(f"{metric['MetricName']} {metric['Value']:.4g}" for metric in job["FinalMetricDataList"])
    table.caption = f"{metrics}; {said}; {job['TrainingTimeInSeconds']} s of training"
    return table


def empty(s3: Any, bucket: str) -> None:
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for entry in page.get("Contents", []):
            s3.delete_object(Bucket=bucket, Key=entry["Key"])


if __name__ == "__main__":
    sys.exit(main())
