"""Lines of a stream that comes in pieces: what is no whole line yet is kept, and not copied again
for every byte that comes."""

from __future__ import annotations


class LineBuffer:
    """`add` takes what has come and returns the lines that are whole now."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = bytearray()

    def __len__(self) -> int:
        """Bytes of the line that is not whole yet."""
        return len(self._rest)

    def add(self, data: bytes) -> list[bytes]:
        first, *others = data.split(b"\n")
        self._rest += first
        if not others:
            return []
        whole = [bytes(self._rest), *others[:-1]]
        self._rest = bytearray(others[-1])
        return whole

    def clear(self) -> None:
        self._rest = bytearray()
