"""How NCCL and c10d parse a parameter, and the GPUs whose board has what some of them are about."""

from __future__ import annotations

import re

from preflight.frozen import dataclass

# boards on which NVLink connects every GPU with every other one, by the driver's names
NVLINKED = re.compile(r"SXM|80GB HBM3|H200$|[HB][38]00$|H20$|B200|GB[23]00")


def strtoll(text: str) -> tuple[int, str]:
    """The number that C's strtoll(text, NULL, 0) sees, and what it leaves unread."""
    found = re.match(r"\s*[+-]?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", text)
    if not found:
        return 0, text
    digits = found[0].strip()
    sign, digits = (-1, digits[1:]) if digits[0] == "-" else (1, digits.removeprefix("+"))
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    return sign * int(digits[:40], base), text[found.end() :]


def switched_on(value: str) -> bool:
    """Whether NCCL takes a flag's value for on."""
    return strtoll(value)[0] != 0


def c10d_bool(value: str) -> bool | None:
    """getCvarBool: None is where it raises."""
    word = value.lower()
    if word in ("y", "yes", "1", "t", "true"):
        return True
    return False if word in ("n", "no", "0", "f", "false") else None


@dataclass(frozen=True, slots=True)
class NameList:
    """A list of devices as NCCL parses it: `[^][=]name[:port],…` (parseStringList and matchIfList,
    src/misc/utils.cc). Both signs count once, for the whole list; without `=` a name is a prefix,
    so that mlx5_1 takes mlx5_10 too. Port None: any."""

    entries: tuple[tuple[str, int | None], ...] = ()
    negated: bool = False
    exact: bool = False

    def admits(self, device: str, port: int | None = None) -> bool:
        """Whether NCCL would take a device by this list; an empty one admits all."""
        matched = not self.entries or any(
            (device == name if self.exact else device.startswith(name))
            and (port is None or number in (None, port))
            for name, number in self.entries
        )
        return matched != self.negated

    def means(self, device: str, port: int | None = None) -> bool:
        """Whether the list has this very name, so that it is taken not only by its prefix."""
        return not self.negated and any(
            device == name and (port is None or number in (None, port))
            for name, number in self.entries
        )


def name_list(text: str, most: int) -> NameList:
    """The list in a value, cut after so many names."""
    rest = text.removeprefix("^")
    entries: list[tuple[str, int | None]] = []
    for part in rest.removeprefix("=").split(","):
        name, colon, port = part.partition(":")
        if name:
            number = re.match(r"\s*[0-9]{1,4}", port)  # atoi: what is not a number is port 0
            entries.append((name, (int(number[0]) if number else 0) if colon else None))
    return NameList(tuple(entries[:most]), negated=rest != text, exact=rest.startswith("="))
