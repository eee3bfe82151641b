"""The C sources of the lab as shared libraries, built once a test process."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


@functools.cache
def built(source: str, name: str) -> Path:
    """The library of this name, made of a source beside this file, in a folder of its own that
    everybody may read."""
    if not shutil.which("gcc"):
        import pytest  # a lab in a program of its own has no use for it

        why = f"no gcc here: {source} can't be built"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="preflight-library-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    target = folder / name
    options = ["-shared", "-fPIC", "-O1", "-Wall", f"-Wl,-soname,{name}"]
    subprocess.run(["gcc", *options, "-o", str(target), str(HERE / source)], check=True, timeout=60)
    return target
