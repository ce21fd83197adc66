"""The simulation of benchmarks/scale.py beside real data hosts and ranks: connections, and batches in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import serving  # noqa: F401, which finds the training code
from hosts_and_trainers import Serve, addresses, connections_to, eventually, serve
from serving import BatchReader

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from simulation import Setup, Simulation

__all__ = ["serve"]
SCALE = Path(__file__).parents[2] / "benchmarks" / "scale.py"


def simulated(hosts: int, ranks: int, **options: Any) -> Setup:
    return Setup(hosts, ranks, **{"prepare": 0.001, "workers": 1, "ranks_of_machine": 1} | options)


@pytest.mark.parametrize(("hosts", "ranks"), [(3, 1), (3, 2), (2, 3)])
def test_ranks_have_as_many_connections_as_simulated(serve: Serve, hosts: int, ranks: int) -> None:
    servers = serve(hosts)
    expected = Simulation(simulated(hosts, ranks, ranks_of_machine=ranks)).run()
    readers = [BatchReader(addresses(servers), job="job", rank=rank, ranks=ranks, epochs=1) for rank in range(ranks)]
    try:
        for reader in readers:
            next(reader.epoch(0))
        eventually(lambda: len(connections_to(servers)) == expected.rank_connections)
    finally:
        for reader in readers:
            reader.close()


def test_a_rank_that_stops_has_as_many_batches_in_memory_as_simulated(serve: Serve) -> None:
    servers = addresses(serve(2))
    with BatchReader(servers, job="job") as reader:
        next(iter(reader))
        size = reader.batch_bytes
    expected = Simulation(simulated(2, 1, batch_bytes=size, look_ahead=6 * size)).run()
    assert expected.rank_batches == 6
    with BatchReader(servers, job="job", look_ahead=6 * size, epochs=1) as reader:
        batches = iter(reader)
        next(batches)
        eventually(lambda: reader.ready == 6)
        assert reader.in_flight == 0


@pytest.mark.parametrize("gbit", [25, 100])
def test_64_ranks_and_64_hosts_keep_to_their_budget_and_reach_the_limit(gbit: int) -> None:
    setup = Setup(64, 64, prepare=0.08, gbit=gbit)
    found, limit = Simulation(setup).run(), min(setup.limits.values())
    assert (found.host_connections, found.rank_connections) == (2, 2 * setup.ranks_of_machine)
    assert found.rank_batches * setup.ranks_of_machine * setup.batch_bytes <= setup.look_ahead
    assert 0.9 <= found.rate / limit <= 1.1


@pytest.mark.soak
def test_8_hosts_and_4_ranks_are_as_fast_as_simulated() -> None:
    subprocess.run([sys.executable, SCALE, "--real", "8", "4"], check=True)
