"""StrEnum, which Python 3.10 does not have."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum as StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """Members that are texts: where one is printed, its value is."""

        __str__ = str.__str__
