"""Report files that are compressed: written by their name (.gz, .zst), read by their first bytes.

zstd is in the standard library from Python 3.14 on, otherwise in the package zstandard, which an
image need not have: then this is told in one line.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
NAMES = (".gz", ".zst")
CLAIM = re.compile(rb'"world"\s*:\s*\{.{0,4096}?"size"\s*:\s*(\d{1,7})\b', re.DOTALL)
DAMAGED = (OSError, EOFError, zlib.error, ValueError)
"""What reading raises where a file can't be read, or is no whole one."""


class NoLibrary(Exception):
    """What would compress or unpack it is not installed."""


def packed(path: str, parts: Iterable[bytes]) -> Iterator[bytes]:
    """What comes in parts as the file of this name holds it, in parts; NoLibrary at once."""
    if path.endswith(".gz"):
        # as gzip has it, without a time
        return _through(zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS), parts)
    if path.endswith(".zst"):
        compressor = _zstd().ZstdCompressor()
        ours = hasattr(compressor, "compressobj")  # of the package zstandard
        return _through(compressor.compressobj() if ours else compressor, parts)
    return iter(parts)


def _through(compressor: Any, parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        if made := compressor.compress(part):
            yield made
    yield compressor.flush()


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
