"""Whether somebody listens where ranks wait."""

from __future__ import annotations

import socket

from preflight.rehearsal.addresses import unreached


def test_where_somebody_listens_and_where_nobody_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as other:
            nobody = other.getsockname()[1]
        words = [
            *({"host": "127.0.0.1", "port": p} for p in (port, nobody, port)),
            {"host": "", "port": port},
            {"host": "127.0.0.1", "port": "22"},
            {"host": ["x"], "port": 22},
            {"host": "a" * 300, "port": 22},
            {},
        ]
        found = unreached(words)
    assert found.pop(("a" * 300, 22))
    assert found == {("127.0.0.1", nobody): "Connection refused"}
