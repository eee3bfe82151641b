"""Report files that are compressed: written by their name (.gz, .zst), read by their first bytes.

zstd is in the standard library from Python 3.14 on, otherwise in the package zstandard, which an
image need not have: then this is told in one line.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import zlib
from collections.abc import Iterator
from typing import Any

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
NAMES = (".gz", ".zst")
CLAIM = re.compile(rb'"world"\s*:\s*\{.{0,4096}?"size"\s*:\s*(\d{1,7})\b', re.DOTALL)
DAMAGED = (OSError, EOFError, zlib.error, ValueError)
"""What reading raises where a file can't be read, or is no whole one."""


class NoLibrary(Exception):
    """What would compress or unpack it is not installed."""


def packed(path: str, text: str) -> bytes:
    """A text as the file of this name holds it; NoLibrary."""
    data = text.encode()
    if path.endswith(".gz"):
        import gzip

        return gzip.compress(data, 6, mtime=0)
    if path.endswith(".zst"):
        library = _zstd()
        if library.__name__ == "zstandard":
            return bytes(library.ZstdCompressor().compress(data))
        return bytes(library.compress(data))
    return data


@contextlib.contextmanager
def unpacked(file: Any) -> Iterator[Any]:
    """What a file that was opened for reading says, unpacked as it is read."""
    begins = file.peek(4)[:4]
    if begins.startswith(GZIP):
        import gzip

        with gzip.GzipFile(fileobj=file) as stream:
            yield stream
    elif begins == ZSTD:
        library = _zstd()
        ours = library.__name__ == "zstandard"
        try:
            yield library.ZstdDecompressor().stream_reader(file) if ours else library.open(file)
        except library.ZstdError as error:
            raise ValueError(str(error)) from None
    else:
        yield file


def _zstd() -> Any:
    for name in ("compression.zstd", "zstandard"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise NoLibrary(
        "needs the package zstandard (pip install zstandard) or Python 3.14; .gz needs neither"
    )


def ranks_claimed(data: bytes) -> int:
    """The ranks of the job that the beginning of a report speaks of; 0 where it does not."""
    found = CLAIM.search(data[: 1 << 20])
    return int(found[1]) if found else 0
