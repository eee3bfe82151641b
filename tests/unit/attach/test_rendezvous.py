"""What launchers were told, and what their stores tell."""

from __future__ import annotations

import base64
import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from preflight.attach.rendezvous import participants
from preflight.identity.launcher_options import launcher_options
from preflight.rehearsal.store_client import NoStore, read_keys

PYTHON = "/usr/bin/python3"


def options(line: str, **environ: str) -> tuple[int, str, str, str, int] | None:
    found = launcher_options(line.split(), environ)
    return found and (found.least, found.backend, found.place, found.run_id, found.rank)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            f"{PYTHON} /v/bin/torchrun --nnodes 2 --node_rank=1 --master_addr=gpu1 t.py --nnodes 9",
            (2, "static", "gpu1:29500", "none", 1),
        ),
        (
            f"{PYTHON} -m torch.distributed.run --nnodes=2:4 --rdzv-backend c10d "
            "--rdzv-endpoint [fe80::1]:7 --rdzv-id 9 -m pkg",
            (2, "c10d", "[fe80::1]:7", "9", 0),
        ),
        ("torchrun --nnodes=1:4 --rdzv-endpoint gpu1 t.py", (4, "static", "gpu1:29500", "none", 0)),
        ("torchrun --standalone --nnodes 2 t.py", (2, "c10d", "localhost:0", "", 0)),
        ("torchrun --standalone --nnodes 1:4 t.py", (1, "c10d", "localhost:0", "", 0)),
        (
            "torchrun --standalone --rdzv-backend static --rdzv-endpoint gpu1:7 --rdzv-id 9 t.py",
            (1, "c10d", "localhost:0", "", 0),
        ),
        (
            f"{PYTHON} /v/bin/accelerate launch --multi_gpu --num_machines 2 --machine_rank 1 "
            "--main_process_ip gpu1 --main_process_port 5 t.py",
            (2, "static", "gpu1:5", "none", 1),
        ),
        (f"{PYTHON} train.py torchrun --nnodes 2", None),
        ("bash run.sh", None),
        ("", None),
    ],
)
def test_launchers_are_known_by_their_command(
    line: str, expected: tuple[int, str, str, str, int] | None
) -> None:
    assert options(line) == expected


def test_what_the_environment_says_counts_where_the_command_is_silent() -> None:
    told = options("torchrun --nnodes 3 t.py", PET_NNODES="2", PET_MASTER_ADDR="gpu7")
    assert told == (3, "static", "gpu7:29500", "none", 0)


@pytest.mark.parametrize(
    ("said", "alone"), [("1", True), (" 1 ", True), ("0", False), ("00", False), ("", False)]
)
def test_a_variable_stands_for_standalone_too(said: str, alone: bool) -> None:
    found = launcher_options(["torchrun", "--nnodes", "2", "t.py"], {"PET_STANDALONE": said})
    assert found is not None
    assert (found.alone, found.least) == (alone, 2)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("torchrun --node-rank 0 t.py", ("torchrun", "--node-rank", "1", "t.py")),
        ("torchrun --node_rank=0 t.py", ("torchrun", "--node_rank=1", "t.py")),
        ("torchrun t.py", ("torchrun", "--node-rank", "1", "t.py")),
    ],
)
def test_the_same_command_for_another_node(line: str, other: tuple[str, ...]) -> None:
    found = launcher_options(line.split(), {})
    assert found is not None
    assert found.started_as(1) == other


class Node:
    """As torchrun's _NodeDesc."""

    def __init__(self, addr: str) -> None:
        self.addr, self.pid, self.local_id = addr, 7, 0


class State:
    """As torchrun's _RendezvousState."""

    def __init__(self, complete: bool, *nodes: Node) -> None:
        self.round, self.complete, self.deadline, self.closed = 0, complete, None, False
        self.participants = {node: i for i, node in enumerate(nodes[:2])}
        self.wait_list = set(nodes[2:])
        self.redundancy_list: set[Node] = set()
        self.last_heartbeats = dict.fromkeys(nodes)


@pytest.mark.parametrize("protocol", [4, 5])
def test_who_is_in_a_rendezvous_is_read_without_loading_it(protocol: int) -> None:
    nodes = [Node(name) for name in ("gpu1", "gpu2", "gpu3")]
    for complete in (True, False):
        state = pickle.dumps(State(complete, *nodes), protocol)
        assert participants(base64.b64encode(state)) == (("gpu1", "gpu2"), complete)


@pytest.mark.parametrize(
    "state", [b"", b"Y2FuaW1hZGFt", b"%%", base64.b64encode(b"\x80\x04h\xff.")]
)
def test_a_state_may_be_anything(state: bytes) -> None:
    assert participants(state) == ((), False)


@contextmanager
def answering(*answers: bytes) -> Iterator[int]:
    """Somebody who listens, and sends this to the first that comes."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            line, _ = door.accept()
            with line:
                for answer in answers:
                    line.recv(4096)
                    line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(door.getsockname()[1])
        thread.join()


def test_keys_that_are_there_are_read() -> None:
    number = struct.pack("<Q", 1)
    with answering(struct.pack("<Q", 5), b"\0\1", number + b"2") as port:
        assert read_keys(("127.0.0.1", port), ["init/", "other"], 20) == {
            "init/": b"2",
            "other": None,
        }


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ((b"HTTP/1.1 400 Bad",), "no TCPStore"),
        ((b"",), "closes the connection"),
        ((struct.pack("<Q", 5), b"\0", struct.pack("<Q", 1 << 40)), "bytes"),
    ],
)
def test_what_listens_there_may_be_anything(answers: tuple[bytes, ...], why: str) -> None:
    with answering(*answers) as port, pytest.raises(NoStore, match=why):
        read_keys(("127.0.0.1", port), ["init/"], 20)


def test_nobody_there_is_said_in_errnos_word() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = int(door.getsockname()[1])
    with pytest.raises(NoStore, match="ECONNREFUSED"):
        read_keys(("127.0.0.1", port), ["init/"], 20)
