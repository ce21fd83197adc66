"""AWS's published example of a PyTorch data service over gRPC, with its own code, which is not included here.

Fetch it with `git clone --depth 1 https://github.com/aws/amazon-sagemaker-examples`; the folder is
training/heterogeneous-clusters/pt.grpc.sagemaker/code. Its train_data.py runs as it is; the reading side is its RemoteDataset
in its DataLoader, without its model. Two parts are ours: `standin`, which replaces MNIST by the run's samples; and its protocol,
compiled again from its own .proto, since its compiled one requires protobuf 3.20 of 2022. It listens on ports 6000 and 16000 of
all addresses, which cannot be changed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness import ENDLESS, Run, measure

STANDIN = Path(__file__).parent / "standin"
PORT = 6000


def copy_of(example: Path, folder: Path) -> Path:
    """The example's code in a folder of its own, with its protocol compiled by the protobuf that is installed."""
    code = folder / "code"
    shutil.copytree(example, code)
    compiler = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--grpc_python_out=."]
    subprocess.run([*compiler, "dataset_feed.proto"], cwd=code, check=True)
    return code


@contextlib.contextmanager
def data_host_of(run: Run, code: Path, paths: list[str]) -> Iterator[None]:
    options = {
        "--batch-size": run.batch_size,
        "--num-data-workers": run.workers,
        "--grpc-workers": run.streams,
        "--iterations": ENDLESS,
    }
    words = [str(word) for option in options.items() for word in option]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "BENCHMARK_RUN": run.as_json()}
    process = subprocess.Popen(
        [sys.executable, "train_data.py", *words],
        cwd=code,
        env=environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not listens() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        yield
    finally:
        # Its own end is a kill -9 of one process; its workers would stay.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def listens() -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), timeout=1):
        return True
    return False


def main() -> None:
    run, example = Run.here(), Path(os.environ["AWS_EXAMPLE"])
    if listens():
        raise SystemExit(f"port {PORT} is taken, which the example cannot change")
    paths = [str(STANDIN), str(STANDIN.parent)]
    with tempfile.TemporaryDirectory() as folder:
        code = copy_of(example, Path(folder))
        sys.path[:0] = [str(code), *paths]
        os.environ["BENCHMARK_RUN"] = run.as_json()
        import torch
        from train_dnn import RemoteDataset

        torch.set_num_threads(1)
        remote = RemoteDataset("127.0.0.1", run.batch_size, ENDLESS)
        with data_host_of(run, code, paths):
            measure(run, torch.utils.data.DataLoader(remote, batch_size=None, num_workers=run.streams))


if __name__ == "__main__":
    main()
