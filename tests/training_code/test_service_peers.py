"""What peers send that are no training process of the job: each is refused or bounded, and the service goes on."""

from __future__ import annotations

import contextlib
import json
import random
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import serving  # noqa: F401, which finds the training code
import torch
from data_service.protocol import MAX_SENT, Connection, Frame, Kind
from hosts_and_trainers import Serve, addresses, numbers, serve
from serving import LENGTH, BatchReader, BatchServer, DataServiceError, Numbers

__all__ = ["serve"]
EVERYTHING = list(range(LENGTH))
HEADER = struct.Struct("<BIIQd")  # kind, request, bytes of the text, bytes of the payload, busy seconds
HELLO, WELCOME, REFUSED, REQUEST, PONG = 1, 2, 3, 4, 9
WHO: dict[str, Any] = {
    "version": 2, "job": "job", "rank": 0, "ranks": 2, "homes": [0, 1], "reader": "me", "host": "algo-1", "plan": None,
}  # fmt: skip


def frame(kind: int, text: object = None, *, payload_bytes: int = 0, text_bytes: int | None = None) -> bytes:
    said = text if isinstance(text, bytes) else json.dumps(text).encode()
    return HEADER.pack(kind, 0, len(said) if text_bytes is None else text_bytes, payload_bytes, 0.0) + said


def connected(server: BatchServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port))


def answers(peer: socket.socket) -> Iterator[tuple[int, bytes]]:
    """The kinds and texts of what comes until the connection ends."""
    with peer.makefile("rb") as file, contextlib.suppress(ConnectionResetError):
        while header := file.read(HEADER.size):
            kind, _, text_bytes, payload_bytes, _ = HEADER.unpack(header)
            yield kind, file.read(text_bytes)
            file.read(payload_bytes)


MALFORMED = {
    "no frame": b"GET / HTTP/1.1\r\nHost: algo-1\r\n\r\n",
    "of an unknown kind": frame(77, {}),
    "a payload of 10 GB": frame(HELLO, WHO, payload_bytes=10 * 10**9),
    "a text of 4 GB": frame(HELLO, WHO, text_bytes=2**32 - 1),
    "no JSON": frame(HELLO, b"\xff\xfe"),
    "no object": frame(HELLO, [1, 2]),
    "a part of HELLO": frame(HELLO, {"version": 2, "job": "job"}),
    "a rank that is no number": frame(HELLO, WHO | {"rank": "first"}),
    "a request before HELLO": frame(REQUEST, [[0, 0, None, 0, 8]]),
    "a batch that there is not": frame(HELLO, WHO) + frame(REQUEST, [[0, 0, None, LENGTH, 8]]),
    "a request with three values": frame(HELLO, WHO) + frame(REQUEST, [[0, 0, 0]]),
    "a request with text": frame(HELLO, WHO) + frame(REQUEST, [["a", "b", None, "c", 8]]),
    "what only data hosts send": frame(HELLO, WHO) + frame(PONG, {}),
}


def test_malformed_frames_end_their_own_connection_only(serve: Serve) -> None:
    [server] = serve()
    served_by = server.pid
    for name, sent in MALFORMED.items():
        with connected(server) as peer:
            peer.sendall(sent)
            kinds = [kind for kind, _ in answers(peer)]  # returns where the server has ended the connection
            assert kinds == [WELCOME] * sent.count(b'"reader"') or WELCOME not in kinds, name
    with BatchReader(addresses([server]), job="job", rank=1, ranks=2) as reader:
        assert len(numbers(reader)) == LENGTH // 2
    assert server.pid == served_by


def test_bytes_at_random_end_their_own_connection_only(serve: Serve) -> None:
    [server] = serve()
    served_by, dice = server.pid, random.Random(0)
    for _ in range(200):
        with connected(server) as peer, contextlib.suppress(ConnectionError):
            peer.sendall(frame(HELLO, WHO) + dice.randbytes(dice.randrange(1, 200)))
    with BatchReader(addresses([server]), job="job", rank=1, ranks=2) as reader:
        assert len(numbers(reader)) == LENGTH // 2
    assert server.pid == served_by


def test_five_hundred_connections_that_say_nothing_hold_up_no_rank(serve: Serve) -> None:
    [server] = serve()
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(connected(server))
        with BatchReader(addresses([server]), job="job") as reader:
            assert sorted(numbers(reader)) == EVERYTHING
            open_there = psutil.Process(server.pid).net_connections("tcp")
            assert sum(one.status == psutil.CONN_ESTABLISHED for one in open_there) <= 130


def test_a_peer_of_another_job_learns_nothing_but_that(serve: Serve) -> None:
    [server] = serve()
    with connected(server) as peer:
        peer.sendall(frame(HELLO, WHO | {"job": "another"}) + frame(REQUEST, [[0, 0, None, 0, 8]]))
        assert list(answers(peer)) == [(REFUSED, b"this data host serves another training job")]


def test_a_peer_of_another_version_is_told_both(serve: Serve) -> None:
    [server] = serve()
    with connected(server) as peer:
        peer.sendall(frame(HELLO, WHO | {"version": 3}))
        assert list(answers(peer)) == [(REFUSED, b"this data host has version 2 of the protocol, got 3")]


def test_a_peer_that_reads_nothing_holds_up_no_other(serve: Serve) -> None:
    [server] = serve(dataset=Numbers(side=512))
    with connected(server) as slow:
        slow.sendall(frame(HELLO, WHO) + frame(REQUEST, [[n, 0, None, 8 * n, 8] for n in range(0, 24, 2)]))
        with BatchReader(addresses([server]), job="job", rank=1, ranks=2) as reader:
            assert len(numbers(reader)) == LENGTH // 2


def test_a_peer_that_requests_without_end_is_disconnected(serve: Serve) -> None:
    [server] = serve(dataset=Numbers(LENGTH, seconds=60))
    with connected(server) as greedy:
        greedy.sendall(frame(HELLO, WHO))
        with contextlib.suppress(ConnectionError):
            for _ in range(10):
                greedy.sendall(frame(REQUEST, [[n, 0, None, 0, 8] for n in range(1000)]))
        assert [kind for kind, _ in answers(greedy)] == [WELCOME]


@pytest.mark.soak  # waits for a time-out
def test_a_data_host_that_announces_ten_gigabytes_is_an_error_that_names_the_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(DataServiceError) as raised:
        reader_on(listener)
    assert "a payload of at most 8589934592 bytes, got kind 5 with 0 and 10000000000" in str(raised.value)


def reader_on(listener: socket.socket) -> None:
    """A reader of a data host that answers HELLO with the announcement of a batch of 10 GB."""

    def answer() -> None:
        with listener.accept()[0] as peer:
            peer.recv(4096)
            peer.sendall(frame(5, b"", payload_bytes=10 * 10**9))
            peer.recv(4096)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        BatchReader([f"127.0.0.1:{listener.getsockname()[1]}"], job="job").close()
    finally:
        listener.close()
        thread.join()


def test_a_connection_keeps_the_congestion_control_that_it_has_unless_that_is_bbr() -> None:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    for before in allowed:  # to every process
        with socket.create_server(("127.0.0.1", 0)) as listener, selectors.DefaultSelector() as selector:
            sock = socket.create_connection(listener.getsockname())
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, before.encode())
            connection = Connection(sock, selector, take=print, ended=print)
            used = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
            assert used == before if not before.startswith("bbr") else used in ("cubic", "reno")
            connection.close()


# -- Large payloads


def test_others_have_their_turn_while_a_large_payload_is_sent() -> None:
    came: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener, selectors.DefaultSelector() as selector:
        sock = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
        connection = Connection(sock, selector, take=print, ended=print)
        reading = threading.Thread(target=lambda: came.extend(iter(lambda: peer.recv(2**20), b"")), daemon=True)
        reading.start()
        connection.send(Kind.BATCH, {}, payload=bytes(3 * MAX_SENT))
        turns = 0
        while connection_sends(selector, sock) or not turns:
            connection.flush()
            turns += 1
        connection.close()
        reading.join()
        peer.close()
    assert sum(map(len, came)) == HEADER.size + 2 + 3 * MAX_SENT
    assert turns >= 4


def connection_sends(selector: selectors.BaseSelector, sock: socket.socket) -> bool:
    return bool(selector.get_key(sock).events & selectors.EVENT_WRITE)


def test_a_large_payload_is_received_in_whatever_parts_it_comes() -> None:
    taken: list[Frame] = []
    payload = bytes(range(256)) * 2**14  # 4 MiB
    with socket.create_server(("127.0.0.1", 0)) as listener, selectors.DefaultSelector() as selector:
        peer = socket.create_connection(listener.getsockname())
        sock, _ = listener.accept()
        allocate = partial(torch.empty, dtype=torch.uint8)
        connection = Connection(sock, selector, taken.append, ended=print, allocate=allocate)
        peer.sendall(HEADER.pack(Kind.BATCH, 0, 0, len(payload), 0.0))
        for begin in range(0, len(payload), 2**18):
            peer.sendall(payload[begin : begin + 2**18])
            [(key, events)] = selector.select(60)  # else the event loop waits for more than there is
            key.data(events)
        while not taken:
            [(key, events)] = selector.select(60)
            key.data(events)
        connection.close()
        peer.close()
    assert taken[0].payload is not None
    assert taken[0].payload.numpy().tobytes() == payload
