"""The one reader of the nccl.conf files, and a variable of NCCL as NCCL finds it.

NCCL looks into the environment, then into the file of NCCL_CONF_FILE or ~/.nccl.conf, then into
/etc/nccl.conf; the first that has a name counts (src/misc/param.cc). A line is split at its first
`=` and nothing is trimmed.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping

from preflight.frozen import dataclass
from preflight.host import Host
from preflight.model import Fact

VALUE_KEPT = 1024
"""What NCCL itself keeps of a line's value."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A setting and where it stands: line `line` of `file`, or the environment when `file` is
    empty. name is what is left of the first `=`; `assigned` is False where a line has none."""

    name: str
    value: str
    file: str = ""
    line: int = 0
    assigned: bool = True

    @property
    def place(self) -> str:
        return f"{self.file} line {self.line}" if self.file else "environment"


def conf_lines(host: Host) -> Iterator[Variable]:
    """Every line of the files that is no comment, in the order in which NCCL takes them."""
    home = host.environ.get("HOME", "")
    own = host.environ.get("NCCL_CONF_FILE") or (home and f"{home}/.nccl.conf")
    for path in (own, "/etc/nccl.conf"):
        # a relative path is relative to wherever the ranks will run
        if not path.startswith("/") or _unreadable(host, path):
            continue
        for number, line in enumerate((host.read_or_none(path) or "").split("\n"), 1):
            name, sign, value = line.partition("=")
            if not line.startswith("#"):
                yield Variable(name, value, path, number, bool(sign))


def conf_problem(host: Host) -> str:
    """Why the file of NCCL_CONF_FILE can't be read; empty when it can, or is not set."""
    named = host.environ.get("NCCL_CONF_FILE", "")
    if not named.startswith("/"):
        return "~ is not expanded" if named.startswith("~") else ""
    return _read_problem(host, named)


FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
"""Variables that name a file which NCCL reads at its start."""
BEGINNINGS = (
    ("<?", "an XML declaration"),
    ("<!", "a document type"),
    ("\t", "a tab"),
    ("version https://git-lfs", "a pointer of Git LFS"),
)
"""Of files that NCCL's parser refuses. The text itself is never kept: a job may name any file, and
root reads it in a prolog."""
OTHER_BEGINNING = "text, not an XML element"


def file_problems(host: Host) -> Mapping[str, str]:
    """Those of `FILES` whose file can't be read, each with the reason."""
    problems = ((name, _read_problem(host, path)) for name, path in _named_files(host))
    return {name: why for name, why in problems if why}


def file_flaws(host: Host) -> Mapping[str, str]:
    """Those of `FILES` whose file can be read, but begins with what NCCL's parser ends at, and with
    what: it knows elements and comments only, no declaration (xmlGetNode of graph/xml.cc)."""
    found = {}
    for name, path in _named_files(host):
        text = "" if _unreadable(host, path) else host.read_or_none(path) or ""
        begins = text.lstrip(" \n\r")
        if begins and not re.match("<([A-Za-z]|!--)", begins):
            known = (what for start, what in BEGINNINGS if begins.startswith(start))
            found[name] = next(known, OTHER_BEGINNING)
    return found


GRAPH_GPU = re.compile(r'<gpu\s[^<>]{0,200}?\bdev="(\d{1,3})"')


def graph_gpus(host: Host) -> int:
    """Of how many GPUs the channels of NCCL_GRAPH_FILE speak, by the highest number there; 0 where
    there is no such file, or nothing of a GPU in it (ncclTopoGetChannelFromXml of
    graph/search.cc)."""
    path = nccl_setting(host, "NCCL_GRAPH_FILE")
    if not path.startswith("/") or _unreadable(host, path):
        return 0
    numbers = GRAPH_GPU.findall(host.read_or_none(path) or "")
    return max((int(number) + 1 for number in numbers), default=0)


def _named_files(host: Host) -> Iterator[tuple[str, str]]:
    named = ((name, nccl_setting(host, name)) for name in FILES)
    # a relative path is relative to wherever the ranks will run
    return ((name, path) for name, path in named if path.startswith("/"))


def _read_problem(host: Host, path: str) -> str:
    why = _unreadable(host, path)
    return why or ("not readable" if host.read_or_none(path) is None else "")


def _unreadable(host: Host, path: str) -> str:
    """Why there is no regular file to read at a path; reading a FIFO would never end."""
    try:
        mode = host.path(path).stat().st_mode
    except OSError as error:
        return error.strerror or "no such file"
    except ValueError:
        return "embedded null byte"
    return "" if stat.S_ISREG(mode) else "no regular file"


def log_folder_missing(host: Host) -> str:
    """The folder of NCCL_DEBUG_FILE, where it is not there; of a path whose folders are named by
    %h or %p the one above those (ncclDebugInit of src/debug.cc)."""
    folder = nccl_setting(host, "NCCL_DEBUG_FILE").partition("%")[0].rpartition("/")[0]
    return folder if folder.startswith("/") and not host.exists(folder) else ""


def nccl_variables(host: Host) -> Mapping[str, Fact]:
    """Every NCCL_* variable that is set, each with its source: `env` or a file."""
    found = {n: Fact(v, "env") for n, v in host.environ.items() if n.startswith("NCCL_")}
    for line in conf_lines(host):
        if line.assigned and line.name.startswith("NCCL_"):
            name, value = line.name[: VALUE_KEPT - 1], line.value[: VALUE_KEPT - 1]
            found.setdefault(name, Fact(value, line.file))
    return found


def nccl_setting(host: Host, name: str) -> str:
    """The value of one NCCL_* variable; empty where it is not set."""
    fact = nccl_variables(host).get(name)
    return (fact.value if fact else "")[:VALUE_KEPT].encode(errors="replace").decode()
