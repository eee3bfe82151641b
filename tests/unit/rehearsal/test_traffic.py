"""Bytes over TCP and through files, of this very process."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Collection

import pytest

from preflight.rehearsal import traffic
from preflight.rehearsal.history import Moved
from preflight.rehearsal.traffic import Traffic

needs_diag = pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="no netlink here")


def moved(stores: Collection[int] = ()) -> tuple[Moved, int]:
    """What is counted of 5,000 bytes over a connection, and the port that they go to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as one, server.accept()[0] as other:
            count, me = Traffic(), [(os.getpid(), ())]
            count.look(me, ())
            one.sendall(bytes(5000))
            time.sleep(0.05)
            assert len(other.recv(5000, socket.MSG_WAITALL)) == 5000
            count.look(me, [*stores, *([port] if stores else [])])
            return count.of(os.getpid()), port


@needs_diag
def test_bytes_of_a_connection() -> None:
    if not traffic.connections():
        pytest.skip("the kernel tells nothing of connections here")
    seen, port = moved()
    assert 10_000 <= seen.net < 20_000  # both ends are ours
    assert seen.peer.startswith("127.0.0.1:")
    assert seen.below == 0
    assert port


@needs_diag
def test_the_jobs_own_store_does_not_count() -> None:
    assert moved(stores=[1])[0].net == 0


def test_bytes_of_files() -> None:
    count, me = Traffic(), [(os.getpid(), ())]
    count.look(me, ())
    with tempfile.TemporaryFile() as file:
        file.write(bytes(300_000))
    count.look(me, ())
    if traffic.file_bytes(os.getpid()):
        assert count.of(os.getpid()).files >= 300_000


def test_a_process_that_is_gone_has_moved_nothing() -> None:
    count = Traffic()
    count.look([(1 << 22, (1 << 22,))], ())
    assert count.of(1 << 22).net == 0
    assert traffic.sockets_of(1 << 22) == frozenset()


def test_half_a_message_of_the_kernel_is_none() -> None:
    assert traffic._connection(b"\0" * 40, socket.AF_INET) is None
    assert traffic._connection(b"\0" * 72 + b"\1\0\2\0", socket.AF_INET) is not None
