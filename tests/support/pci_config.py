"""The configuration space of a PCI bridge with ACS, as /sys shows it to root."""

from __future__ import annotations

from preflight.domains import pci


def capability(number: int, then: int, control: int = 0) -> bytes:
    """The head of an extended capability, and the words of ACS."""
    head = number | 1 << 16 | then << 20
    return head.to_bytes(4, "little") + (0x5F | control << 16).to_bytes(4, "little")


def config(control: int | None) -> bytes:
    """All of it, the ACS capability the second in the list; None: it has none."""
    space = bytearray(pci.CONFIG_SIZE)
    space[0x100:0x108] = capability(0x0001, 0x148 if control is not None else 0)
    if control is not None:
        space[0x148:0x150] = capability(pci.ACS, 0, control)
    return bytes(space)
