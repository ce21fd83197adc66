"""A script of a user's own, which knows only what SageMaker documents. It does what the hyperparameter `do` names."""

import argparse
import json
import os
import pathlib
import signal
import socket
import sys
import time

arguments = argparse.ArgumentParser()
arguments.add_argument("--do", default="report")
options = arguments.parse_args()

HOST = os.environ["SM_CURRENT_HOST"]
CHECKPOINTS = pathlib.Path("/opt/ml/checkpoints")


def report():
    """Everything that this host can see of its job, beside the model."""
    resources = json.loads(pathlib.Path("/opt/ml/input/config/resourceconfig.json").read_text())
    seen = {
        "sm": {name: value for name, value in os.environ.items() if name.startswith("SM_")},
        "torchrun": {name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR") if name in os.environ},
        "host name": socket.gethostname(),
        "addresses": {host: socket.gethostbyname(host) for host in resources["hosts"]},
        "resources": resources,
        "data": sorted(str(path) for path in pathlib.Path("/opt/ml/input/data").rglob("*") if path.is_file()),
    }
    if "RANK" in os.environ:
        import torch
        import torch.distributed

        os.environ.setdefault("GLOO_SOCKET_IFNAME", os.environ["SM_NETWORK_INTERFACE_NAME"])
        torch.distributed.init_process_group("gloo")
        total = torch.ones(1)
        torch.distributed.all_reduce(total)
        seen["sum over ranks"] = total.item()
        torch.distributed.destroy_process_group()
    folder = pathlib.Path("/opt/ml/model")
    folder.joinpath(f"{HOST}-{os.environ.get('RANK', 'plain')}.json").write_text(json.dumps(seen))


def listen():
    """Listen on one fixed port of all addresses, and wait until each host of this job, and only they, have said hello."""
    hosts = json.loads(os.environ["SM_HOSTS"])
    server = socket.create_server(("0.0.0.0", 7000))
    for host in hosts:
        while True:
            try:
                with socket.create_connection((host, 7000), timeout=5) as connection:
                    connection.sendall(os.environ["TRAINING_JOB_NAME"].encode())
                break
            except OSError:
                time.sleep(0.2)
    heard = []
    for _ in hosts:
        connection, _ = server.accept()
        with connection:
            heard.append(connection.makefile().read())
    print(f"heard {json.dumps(heard)}", flush=True)
    assert set(heard) == {os.environ["TRAINING_JOB_NAME"]}, heard


def wait():
    """Run until told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("waiting", flush=True)
    while True:  # a signal before a pause would be handled after it, which is never
        time.sleep(0.1)


def keep():
    """Tell which checkpoints are there, and leave one."""
    found = sorted(path.name for path in CHECKPOINTS.glob("*")) if CHECKPOINTS.is_dir() else []
    print(f"found {json.dumps(found)}", flush=True)
    CHECKPOINTS.mkdir(exist_ok=True)
    CHECKPOINTS.joinpath(f"of-{os.environ['TRAINING_JOB_NAME']}").write_text("a checkpoint")


def fail():
    raise ValueError("the digits are missing")


{"report": report, "listen": listen, "wait": wait, "keep": keep, "fail": fail}[options.do]()
