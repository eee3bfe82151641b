"""Settings of NCCL, torch and Gloo on which all ranks of a job have to agree, and which differ.
Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from preflight.domains.settings.agreement import effective, fatal_if_different
from preflight.frozen import dataclass
from preflight.humanize import rank_list
from preflight.inference import consensus
from preflight.sanitize import quoted

READERS = {"NCCL_": "nccl", "TORCH_NCCL_": "nccl", "GLOO_": "gloo", "TORCH_GLOO_": "gloo"}
"""How names begin that only one backend reads."""
SHOWN, LENGTH = 4, 40
"""Values that are shown of a setting, and characters of one."""


@dataclass(frozen=True, slots=True)
class DifferingSetting:
    """A variable that has not one meaning on all ranks.

    values  as it is set -> on which ranks; empty: not set
    odd     ranks that have another one than most; all where no value has a majority
    """

    name: str
    values: Mapping[str, tuple[int, ...]]
    odd: tuple[int, ...]
    tie: bool

    @property
    def text(self) -> str:
        """`NCCL_ALGO is 'Tree' on rank 1, not set on ranks 0,2-3`."""
        fewest = sorted(self.values.items(), key=lambda held: len(held[1]))
        said = [
            f"{quoted(value, LENGTH) if value else 'not set'} on {rank_list(ranks)}"
            for value, ranks in fewest[:SHOWN]
        ]
        return f"{self.name} is {', '.join(said)}"


def differing_settings(
    settings: Mapping[int, Mapping[str, str]], backends: Collection[str]
) -> tuple[DifferingSetting, ...]:
    """Of rank -> name -> value; `backends` are those that the ranks use."""
    found = []
    for name in sorted({n for of in settings.values() for n in of} & fatal_if_different()):
        unread = [begins for begins, by in READERS.items() if by not in backends]
        if name.startswith(tuple(unread)):
            continue
        held = {rank: of.get(name, "") for rank, of in settings.items()}
        meant = {rank: effective(name, value) for rank, value in held.items()}
        agreed = consensus({str(rank): value for rank, value in meant.items()})
        if not agreed.odd:
            continue
        values: dict[str, tuple[int, ...]] = {}
        for value in dict.fromkeys(meant.values()):
            ranks = tuple(rank for rank in meant if meant[rank] == value)
            values[held[ranks[0]]] = ranks
        odd = sorted(int(rank) for ranks in agreed.odd.values() for rank in ranks)
        found.append(DifferingSetting(name, values, tuple(odd), agreed.tie))
    return tuple(found)
