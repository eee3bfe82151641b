"""Makes .venv-cuda for tests/rehearse/test_cuda_wheel.py: the torch of the tests as `pip install
torch` gives it to most people, with CUDA in it. 5 GB; a minute where the index is near.

    python tools/cuda_wheel.py FOLDER     does nothing where it has been made

Where it can't be had (no room, no such wheel on the index) FOLDER/why says so, and the tests are
skipped with that.
"""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

from compatibility import Environment, installed  # noqa: E402  it lies beside this file


def main(folder: Path) -> None:
    torch = importlib.metadata.version("torch").partition("+")[0]
    wanted = Environment(torch, "cuda", ".".join(platform.python_version_tuple()[:2]))
    stamp = folder / "made"
    if stamp.exists() and stamp.read_text() == wanted.name:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    why = installed(wanted, folder)
    if why:
        shutil.rmtree(folder)
        folder.mkdir()
        print(f"no CUDA wheel: {why}", file=sys.stderr)
    (folder / "why" if why else stamp).write_text(why or wanted.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
