"""Takes secrets out of environment values before they leave a machine, and bounds them. Pure.

Redacting too much costs a detail, too little a password: in doubt it goes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from preflight.sanitize import LIMIT, clip

T = TypeVar("T")

HIDDEN = "***"

WINDOW = 8192
"""Characters in which tokens are looked for; what lies beyond is cut anyway."""

# Patterns are compiled when first used: importing this must cost next to nothing. Quantifiers are
# bounded: a value may be hostile.

# in the name of a variable; the words of a tokenizer and InfiniBand's partition key are no secrets
SECRET_NAME = (
    r"(?i)TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|"
    r"(?:^|[^A-Z])(?!PKEYS?(?![A-Z]))[A-Z]*KEY"
)
# name=value inside a value, as in a URL's query or an option
SECRET_PART = r"(?i)([\w-]{0,40}(?:token|secret|passw(?:or)?d|key|signature)[\w-]{0,40}=)[^\s&;,]+"
# tokens that are known by their first letters: Hugging Face, GitHub, OpenAI, Slack, AWS, JWT
SECRET_SHAPE = r"(?a)\b(?:hf_|gh[pousr]_|github_pat_|sk-|xox[abp]-|AKIA|eyJ)[\w.-]{16,}"
# what SECRET_PART and SECRET_SHAPE need to match at all: most environments compile no pattern
SECRET_SIGNS = (
    *("token", "secret", "passw", "key", "signature"),
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "sk-", "xox", "akia", "eyj"),
)
SECRET_LEAST = 8
"""Characters of a secret that is looked for elsewhere: less might be anything."""


def secret(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return re.search(SECRET_NAME, name[:WINDOW]) is not None


def redact(name: str, value: str, limit: int = LIMIT) -> str:
    """`value` as it may be shown and stored: `***` for a secret variable, without a URL's user and
    password, without tokens, at most `limit` characters (then ending in `…`), and printable in
    UTF-8 whatever bytes it held."""
    if not value:
        return ""
    if secret(name):
        return HIDDEN
    # the whole value is searched: a cut before the @ would leave half a password in
    at, scheme = value.rfind("@"), value.find("://")
    if 0 <= scheme < at:
        value = value[: scheme + 3] + HIDDEN + value[at:]
    elif 0 <= value.find(":") < at:
        value = HIDDEN + value[at:]
    text = re.sub(SECRET_PART, rf"\1{HIDDEN}", value[:WINDOW])
    text = re.sub(SECRET_SHAPE, HIDDEN, text)
    return clip(text if len(value) <= WINDOW else text + "…", limit)


def secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What stands in values of variables whose names give no warning: the user and password of a
    URL, tokens. Longest first, for without()."""
    found: set[str] = set()
    for value in environ.values():
        at, scheme = value.rfind("@"), value.find("://")
        if 0 <= scheme < at:
            found |= {value[scheme + 3 : at], value[scheme + 3 : at].partition(":")[2]}
        elif 0 <= value.find(":") < at and "/" not in value[:at]:
            found |= {value[:at], value[:at].partition(":")[2]}
        head = value[:WINDOW].lower()
        if any(sign in head for sign in SECRET_SIGNS):
            parts = re.finditer(SECRET_PART, value[:WINDOW])
            found |= {part[0][len(part[1]) :] for part in parts}
            found |= {shape[0] for shape in re.finditer(SECRET_SHAPE, value[:WINDOW])}
    return tuple(sorted((s for s in found if len(s) >= SECRET_LEAST), key=len, reverse=True))


def without(data: T, hidden: Iterable[str]) -> T:
    """The same data, JSON or dataclasses, with `***` for each of these texts wherever it stands."""
    texts = tuple(hidden)
    return _without(data, texts) if texts else data


def _without(data: Any, texts: tuple[str, ...]) -> Any:
    if isinstance(data, Enum):
        return data
    if isinstance(data, str):
        for text in texts:
            data = data.replace(text, HIDDEN)
        return data
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        fields = dataclasses.fields(data)
        return dataclasses.replace(
            data, **{f.name: _without(getattr(data, f.name), texts) for f in fields}
        )
    if isinstance(data, Mapping):
        return {_without(k, texts): _without(v, texts) for k, v in data.items()}
    if isinstance(data, (tuple, list)):
        return type(data)(_without(item, texts) for item in data)
    return data
