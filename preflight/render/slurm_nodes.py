"""The nodes to leave out, as SLURM writes a list of them: for `sbatch --exclude=$(cat FILE)`.

One line, `gpu-b[07,19]`; nothing at all where no node is to be left out.
"""

from __future__ import annotations

from preflight.model import Report
from preflight.nodeset import hostlist


def render(report: Report) -> str:
    """The list and a line's end. A node whose name no node of SLURM can have (`gpu1#2`, the second
    machine of that name) is not in it: with such a name in it, SLURM would refuse all of the list,
    and with a comma or a bracket it would name others."""
    names = hostlist(report.exclude)
    return f"{names}\n" if names else ""
