"""Takes secrets out of environment values before they leave a machine, and bounds them. Pure.

Redacting too much costs a detail, too little a password: in doubt it goes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from preflight.sanitize import LIMIT, clip

T = TypeVar("T")

HIDDEN = "***"

WINDOW = 8192
"""Characters in which tokens are looked for; what lies beyond is cut anyway."""

# Patterns are compiled when first used: importing this must cost next to nothing. Quantifiers are
# bounded: a value may be hostile.

# in names of variables, options and headers; the words of a tokenizer are no secrets, PWD is a
# folder
WORDS = (
    r"token(?!iz)|secret|passw|passphrase|credential|authorization|signature|cookie|webhook|"
    r"connection_?string|(?<![a-z])(?:auth|pass|jwt|dsn)(?![a-z])|(?<=[_-])(?:pwd(?![a-z])|pat(?!\w))"
)
# in the name of a variable; InfiniBand's partition key is no secret
SECRET_NAME = rf"(?i){WORDS}|(?:^|[^A-Z])(?!PKEYS?(?![A-Z]))[A-Z]*KEY"
# a variable that says where a secret is
PLACE_NAME = r"(?i)(?:FILE|PATH|DIR|FOLDER|HOME|SOCK)$"
# name=value inside a value, as in a URL's query or an option
SECRET_PART = rf"(?i)([\w-]{{0,40}}(?:{WORDS}|key)[\w-]{{0,40}}=)[^\s&;,]+"
# `Authorization: Basic …`, `X-Api-Key: …`: a header to its end; and what goes by its scheme
SECRET_HEADER = (
    r"(?im)\b((?:proxy-)?authorization|(?:set-)?cookie|[\w-]{0,40}-(?:key|token|secret|password))"
    r"\s{0,4}:[^\n\"']+"
)
SECRET_SCHEME = r"(?i)\b(bearer\s{1,4})[\w.~+/=-]{8,}"
# tokens that are known by their first letters: Hugging Face, GitHub, OpenAI, Slack, AWS, JWT
SECRET_SHAPE = r"(?a)\b(?:hf_|gh[pousr]_|github_pat_|sk-|xox[abp]-|AKIA|eyJ)[\w.-]{16,}"
# what SECRET_PART and SECRET_SHAPE need to match at all: most environments compile no pattern
SECRET_SIGNS = (
    *("token", "secret", "passw", "passphrase", "credential", "auth", "signature", "cookie", "key"),
    *("webhook", "connection", "jwt", "dsn", "pass", "pat=", "pwd", "bearer"),
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "sk-", "xox", "akia", "eyj"),
)
USERS = ("-u", "--user")
"""Options that take `user:password`."""
SECRET_LEAST = 8
"""Characters of a secret that is looked for elsewhere: less might be anything."""
NAMED_LEAST = 6
"""The same of one whose variable says that it is one."""


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
    text = re.sub(SECRET_HEADER, rf"\1: {HIDDEN}", value[:WINDOW])
    text = re.sub(SECRET_SCHEME, rf"\1{HIDDEN}", text)
    text = re.sub(SECRET_PART, rf"\1{HIDDEN}", text)
    text = re.sub(SECRET_SHAPE, HIDDEN, text)
    return clip(text if len(value) <= WINDOW else text + "…", limit)


def command_line(words: Sequence[str]) -> list[str]:
    """A command line as it may be shown and stored: `--api-key X` as `--api-key=X` without X, as
    well as `-p X` and `-u user:X`."""
    return [
        HIDDEN if _takes_secret(flag, word) else redact("", word)
        for flag, word in zip(["", *words], words, strict=False)
    ]


def _takes_secret(flag: str, word: str) -> bool:
    if not flag.startswith("-") or "=" in flag or not word:
        return False
    if flag in USERS:
        return ":" in word
    # a password; a number is a port
    return secret(flag) or (flag == "-p" and not word.isdigit())


def secrets(environ: Mapping[str, str], words: Sequence[str] = ()) -> tuple[str, ...]:
    """What must not stand anywhere: values of variables that are secret by name, and in others the
    user and password of a URL, and tokens; the same of the words of a command line. Longest first,
    for without()."""
    found: set[str] = set()
    named: set[str] = set()
    typed = list(zip(["", *words], words, strict=False))
    for flag, word in typed:
        if _takes_secret(flag, word):
            named |= _spellings(word[:WINDOW])
            if flag in USERS:
                named |= _spellings(word[:WINDOW].partition(":")[2])
    for name, value in (*environ.items(), *(("", word) for _, word in typed)):
        if secret(name) and not re.search(PLACE_NAME, name[-WINDOW:]):
            named |= _spellings(value[:WINDOW])
        at, scheme = value.rfind("@"), value.find("://")
        if 0 <= scheme < at:
            found |= {value[scheme + 3 : at], value[scheme + 3 : at].partition(":")[2]}
        elif 0 <= value.find(":") < at and "/" not in value[:at]:
            found |= {value[:at], value[:at].partition(":")[2]}
        head = value[:WINDOW].lower()
        if any(sign in head for sign in SECRET_SIGNS):
            parts = re.finditer(SECRET_PART, value[:WINDOW])
            found |= {part[0][len(part[1]) :] for part in parts}
            headers = re.finditer(SECRET_HEADER, value[:WINDOW])
            for header in headers:
                words_of = header[0].partition(":")[2].split()
                found |= {" ".join(words_of), *words_of[-1:]}
            found |= {shape[0] for shape in re.finditer(SECRET_SHAPE, value[:WINDOW])}
    named |= {text for text in found if len(text) >= SECRET_LEAST}
    return tuple(sorted(named, key=len, reverse=True))


def _spellings(value: str) -> set[str]:
    """A secret as it may stand in a text: whole, each of its lines, as repr() or a URL has it. None
    where it is a word or a number like any other."""
    if value.isdigit() or (value.isalpha() and value.islower()):
        return set()
    from urllib.parse import quote

    spelt = {value, value.strip(), repr(value)[1:-1], quote(value, safe=""), *value.splitlines()}
    return {text for text in spelt if len(text) >= NAMED_LEAST}


def without(data: T, hidden: Iterable[str]) -> T:
    """The same data, JSON or dataclasses, with `***` for each of these texts wherever it stands.
    Whatever has none of them stays the same object, and what many have in common stays one."""
    texts = tuple(hidden)
    return _without(data, texts, {}) if texts else data


def _without(data: Any, texts: tuple[str, ...], known: dict[int, Any]) -> Any:
    """`known`: what has become of an object, by its id()."""
    if isinstance(data, Enum):
        return data
    if isinstance(data, str):
        for text in texts:
            data = data.replace(text, HIDDEN)
            # what was cut within it
            at = data.rfind(text[:SECRET_LEAST])
            if at >= 0 and text.startswith(data[at:].rstrip("…")):
                data = data[:at] + HIDDEN
        return data
    if isinstance(data, (int, float, type(None))):
        return data
    if id(data) not in known:
        known[id(data)] = _made_without(data, texts, known)
    return known[id(data)]


def _made_without(data: Any, texts: tuple[str, ...], known: dict[int, Any]) -> Any:
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        values = {name: getattr(data, name) for name in data.__dataclass_fields__}
        made = {name: _without(value, texts, known) for name, value in values.items()}
        changed = {name: one for name, one in made.items() if one is not values[name]}
        return dataclasses.replace(data, **changed) if changed else data
    if isinstance(data, Mapping):
        pairs = [(_without(k, texts, known), _without(v, texts, known)) for k, v in data.items()]
        before = zip(pairs, data.items(), strict=True)
        return data if all(k is a and v is b for (k, v), (a, b) in before) else dict(pairs)
    if isinstance(data, (tuple, list)):
        items = type(data)(_without(item, texts, known) for item in data)
        return data if all(a is b for a, b in zip(items, data, strict=True)) else items
    return data
