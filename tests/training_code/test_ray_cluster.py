"""What the hosts of a Ray cluster report to each other, by real connections and with a real script; Ray itself is not started."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from cdk_sagemaker_training import training_code_path

_SPEC = util.spec_from_file_location("ray_cluster", Path(training_code_path()) / "ray_cluster" / "ray_cluster.py")
assert _SPEC is not None
assert _SPEC.loader is not None
ray_cluster = util.module_from_spec(_SPEC)
sys.modules["ray_cluster"] = ray_cluster
_SPEC.loader.exec_module(ray_cluster)

JOB = "arn:aws:sagemaker:us-east-1:123456789012:training-job/digits"
HOSTS = {"algo-1": "data_group", "algo-2": "data_group", "localhost": "dnn_group"}
SECONDS = 60  # until a test that would hang fails
FOREVER = "import signal; print('begun', flush=True); signal.pause()"


def node(host: str = "localhost", job: str = JOB) -> Any:
    return ray_cluster.Node(job, host, HOSTS, "localhost", 4, 0, {"sagemaker_ray_script": "train.py"})


def variables(host: str, group: str) -> dict[str, str]:
    """As the toolkit sets them on a host of a heterogeneous job."""
    groups = {"data_group": {"hosts": ["algo-1", "algo-3"]}, "dnn_group": {"hosts": ["algo-2", "algo-4"]}}
    return {
        "TRAINING_JOB_ARN": JOB,
        "SM_CURRENT_HOST": host,
        "SM_CURRENT_INSTANCE_GROUP": group,
        "SM_INSTANCE_GROUPS_DICT": json.dumps(groups),
        "SM_DISTRIBUTION_INSTANCE_GROUPS": '["dnn_group"]',
        "SM_HOSTS": '["algo-1", "algo-2", "algo-3", "algo-4"]',
        "SM_NUM_CPUS": "8",
        "SM_NUM_GPUS": "1",
        "SM_FRAMEWORK_PARAMS": '{"sagemaker_ray_object_store_memory": 104857600}',
    }


class Cluster:
    """The head's part in threads of this process, and connections of the other hosts."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.workers: dict[str, socket.socket] = {}

    def accepting(self, seconds: float = SECONDS) -> Future[None]:
        return self.pool.submit(ray_cluster.accept, node(), self.listener, seconds, self.workers)

    def connection(self, said: bytes = b"") -> socket.socket:
        made: socket.socket = ray_cluster.connect(self.listener.getsockname(), SECONDS)
        made.settimeout(SECONDS)
        made.sendall(said)
        return made

    def attending(self, host: str, check: Callable[[], object] = lambda: None) -> Future[int]:
        def attend() -> int:
            with self.connection() as head:
                return int(ray_cluster.attend(node(host), head, check))

        return self.pool.submit(attend)

    def running(self, script: str, check: Callable[[], object] = lambda: None) -> Future[int]:
        return self.pool.submit(ray_cluster.run, node(), [sys.executable, "-c", script], self.workers, check)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ThreadPoolExecutor() as pool:
        made = Cluster(pool)
        yield made
        made.listener.close()
        for connection in made.workers.values():
            connection.close()


def hello(host: str, job: str = JOB) -> bytes:
    return json.dumps({"job": job, "host": host}).encode() + b"\n"


def test_the_head_is_the_first_host_of_the_group_that_trains() -> None:
    node = ray_cluster.Node.here(variables("algo-3", "data_group"))
    assert (node.head, node.group, node.others) == ("algo-2", "data_group", {"algo-1", "algo-3", "algo-4"})


def test_without_groups_the_head_is_the_first_host() -> None:
    alone = {"SM_INSTANCE_GROUPS_DICT": "{}", "SM_DISTRIBUTION_INSTANCE_GROUPS": "[]"}
    node = ray_cluster.Node.here({**variables("algo-3", "homogeneousCluster"), **alone})
    assert (node.head, node.group, len(node.others)) == ("algo-1", "homogeneousCluster", 3)


def test_a_node_has_what_the_toolkit_counts_and_its_groups_label_and_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"algo-2": "10.0.0.2", "algo-3": "10.0.0.3"}
    monkeypatch.setattr(socket, "gethostbyname", addresses.__getitem__)
    assert ray_cluster.Node.here(variables("algo-3", "data_group")).start_command() == [
        "ray",
        "start",
        "--address=10.0.0.2:6379",
        "--node-ip-address=10.0.0.3",
        "--num-cpus=8",
        "--num-gpus=1",
        "--labels=group=data_group",
        '--resources={"data_group": 8}',
        "--object-store-memory=104857600",
    ]
    head = ray_cluster.Node.here(variables("algo-2", "dnn_group")).start_command()
    assert head[2:6] == ["--head", "--port=6379", "--include-dashboard=false", "--node-ip-address=10.0.0.2"]


def test_an_image_without_ray_fails_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ray_cluster.ClusterError, match=r"the image has no Ray; install it in the Dockerfile"):
        node().start_ray()


def test_the_scripts_exit_code_is_reported_to_all_hosts(cluster: Cluster) -> None:
    accepted = cluster.accepting()
    others = [cluster.attending("algo-1"), cluster.attending("algo-2")]
    accepted.result(SECONDS)
    assert cluster.running("raise SystemExit(3)").result(SECONDS) == 3
    # A connection that its owner has closed is what `report` waits for.
    reported = cluster.pool.submit(ray_cluster.report, 3, cluster.workers)
    assert [other.result(SECONDS) for other in others] == [3, 3]
    reported.result(SECONDS)


def test_a_script_that_a_signal_ended_has_the_exit_code_of_a_shell(cluster: Cluster) -> None:
    assert cluster.running("import os; os.kill(os.getpid(), 9)").result(SECONDS) == 137


def test_the_script_is_told_the_clusters_address(cluster: Cluster) -> None:
    script = "import os; raise SystemExit(os.environ['RAY_ADDRESS'] != '127.0.0.1:6379')"
    assert cluster.running(script).result(SECONDS) == 0


def test_hosts_that_do_not_join_are_named(cluster: Cluster) -> None:
    named = r"^algo-1 of data_group, algo-2 of data_group did not join the cluster within 0\.1 s$"
    with pytest.raises(ray_cluster.ClusterError, match=named):
        cluster.accepting(0.1).result(SECONDS)


def test_a_head_that_does_not_answer_is_named() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(ray_cluster.ClusterError, match=r"the head 127\.0\.0\.1 did not answer within 0\.1 s"):
            ray_cluster.connect(nobody.getsockname(), 0.1)


@pytest.mark.parametrize(
    "said",
    [
        hello("algo-1", "another job"),
        hello("algo-9"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"[]\n",
        b"x" * 5000,
        hello("localhost"),
    ],
    ids=["another job", "another host", "http", "json", "endless", "the head"],
)
def test_a_stranger_is_disconnected_and_the_hosts_still_join(cluster: Cluster, said: bytes) -> None:
    accepted = cluster.accepting()
    # Reset where what it has said was not read to the end.
    with cluster.connection(said) as stranger, contextlib.suppress(ConnectionResetError):
        assert stranger.recv(100) == b""
    cluster.attending("algo-1")
    cluster.attending("algo-2")
    accepted.result(SECONDS)
    assert {*cluster.workers} == {"algo-1", "algo-2"}
    ray_cluster.report(0, cluster.workers)


def test_a_host_that_is_lost_before_all_have_joined_is_named(cluster: Cluster) -> None:
    accepted = cluster.accepting()
    cluster.connection(hello("algo-1")).close()
    with pytest.raises(ray_cluster.ClusterError, match=r"algo-1 of data_group was lost"):
        accepted.result(SECONDS)


def test_a_host_that_is_lost_ends_the_script_and_is_named(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    accepted = cluster.accepting()
    lost = cluster.connection(hello("algo-1"))
    other = cluster.attending("algo-2")
    accepted.result(SECONDS)
    begun: queue.Queue[object] = queue.Queue()
    running = cluster.running(FOREVER, lambda: begun.put(None))
    begun.get(timeout=SECONDS)
    lost.close()
    # It ends: the script is no more, since `run` waits for it.
    with pytest.raises(ray_cluster.ClusterError, match=r"algo-1 of data_group was lost"):
        running.result(SECONDS)
    ray_cluster.report(1, cluster.workers)
    assert other.result(SECONDS) == 1


def test_a_head_that_is_lost_fails_the_others(cluster: Cluster) -> None:
    accepted = cluster.accepting()
    others = [cluster.attending("algo-1"), cluster.attending("algo-2")]
    accepted.result(SECONDS)
    for connection in cluster.workers.values():
        connection.close()
    for other in others:
        with pytest.raises(ray_cluster.ClusterError, match=r"localhost, the head of the cluster, was lost"):
            other.result(SECONDS)


def no_raylet() -> None:
    raise ray_cluster.ClusterError("Ray's raylet ended")


def test_a_host_whose_raylet_ends_fails_and_is_lost_to_the_head(cluster: Cluster) -> None:
    accepted = cluster.accepting()
    without, other = cluster.attending("algo-1", no_raylet), cluster.attending("algo-2")
    accepted.result(SECONDS)
    with pytest.raises(ray_cluster.ClusterError, match=r"Ray's raylet ended"):
        without.result(SECONDS)
    with pytest.raises(ray_cluster.ClusterError, match=r"algo-1 of data_group was lost"):
        cluster.running(FOREVER).result(SECONDS)
    ray_cluster.report(1, cluster.workers)
    assert other.result(SECONDS) == 1


def test_a_head_whose_raylet_ends_ends_the_script(cluster: Cluster) -> None:
    with pytest.raises(ray_cluster.ClusterError, match=r"Ray's raylet ended"):
        cluster.running(FOREVER, no_raylet).result(SECONDS)


def test_a_container_without_a_raylet_is_one_whose_raylet_has_ended(tmp_path: Path) -> None:
    with pytest.raises(ray_cluster.ClusterError, match=r"Ray's raylet ended on algo-1"):
        ray_cluster.Raylet("algo-1", tmp_path)


def test_a_raylet_that_has_ended_is_noticed(tmp_path: Path) -> None:
    process = tmp_path / "17"
    process.mkdir()
    (process / "comm").write_text("raylet\n")
    (process / "stat").write_text("17 (raylet) S 1 17")
    raylet = ray_cluster.Raylet("algo-1", tmp_path)
    (process / "stat").write_text("17 (raylet) Z 1 17")
    with pytest.raises(ray_cluster.ClusterError, match=r"Ray's raylet ended on algo-1"):
        raylet.check()


def test_connections_find_out_about_a_machine_that_says_nothing_in_half_a_minute(cluster: Cluster) -> None:
    with cluster.connection() as connection:
        options = {name: connection.getsockopt(socket.IPPROTO_TCP, name) for name in ray_cluster.KEEPALIVE}
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    idle, interval, count = options[socket.TCP_KEEPIDLE], options[socket.TCP_KEEPINTVL], options[socket.TCP_KEEPCNT]
    assert idle + interval * count == 30
