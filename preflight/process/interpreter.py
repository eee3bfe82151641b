"""Which Python has the job's torch, where preflight's own has none (pipx, uv tool). Asked by the
process that is to become it: search paths may lie on a file system that does not answer.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys

SEARCH = "search"
"""In place of an interpreter that somebody has named."""
NAMED, ON_PATH = "--python", " on PATH"
"""Who names the interpreter, in the report: the user, or what follows a program's name."""
HEAD = 1024
"""Bytes of a script that are read for its interpreter."""
NAMES = ("torchrun", "python", "python3")


def job_python(wanted: str, module: str, root: bool) -> tuple[str, str]:
    """The interpreter to become, empty for this one, and a note for the report: who names it, or
    why it is not taken. Nothing that only lies on PATH is run as root: it may be anybody's."""
    if wanted != SEARCH:
        return shutil.which(wanted) or wanted, NAMED
    if importlib.util.find_spec(module) is not None:
        return "", ""
    for name in NAMES:
        path = shutil.which(name)
        python = interpreter_of(path) if path and name == "torchrun" else path
        if python and os.path.abspath(python) != sys.executable:
            if root:
                return "", f"root runs no Python that is only on PATH: --python {python}"
            return os.path.abspath(python), name + ON_PATH
    return "", ""


def interpreter_of(script: str) -> str:
    """The Python of a script's first line; also where that line would have been too long, and
    installers write one of a shell. Empty where it can't be told."""
    try:
        file = os.open(script, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            first, _, rest = os.read(file, HEAD).decode(errors="replace").partition("\n")
        finally:
            os.close(file)
    except OSError:
        return ""
    words = first[2:].split() if first.startswith("#!") else []
    if words and words[0].endswith("/env"):
        words = [shutil.which(w) or "" for w in words[1:] if not w.startswith("-")]
    if words and os.path.basename(words[0]).startswith("python"):
        return words[0]
    by_shell = re.match(r"""'''exec' (["']?)(/[^"'\n]+?)\1 "\$0\"""", rest)
    return by_shell[2] if words and by_shell else ""
