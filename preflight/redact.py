"""Takes secrets out of environment values before they leave a machine, and bounds them. Pure.

Redacting too much costs a detail, too little a password: in doubt it goes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from preflight.packed import Packed
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
    r"connection_?string|bearer|mnemonic|session_?id|sshpass|"
    r"(?<![a-z])(?:auth|pass|jwt|dsn|creds?|sas|otp|pw)(?![a-z])|(?<=[a-z]pw)(?![a-z])|"
    r"(?<=[_-])(?:pwd(?![a-z])|pat(?!\w))"
)
# in the name of a variable; InfiniBand's partition key is no secret
SECRET_NAME = rf"(?i){WORDS}|(?:^|[^A-Z])(?!PKEYS?(?![A-Z]))[A-Z]*KEY"
# a variable that says where a secret is
PLACE_NAME = r"(?i)(?:FILE|PATH|DIR|FOLDER|HOME|SOCK)$"
# name=value inside a value, as in a URL's query or an option
QUOTED = r"'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\""
SECRET_PART = (
    rf"(?i)([\w-]{{0,40}}(?:{WORDS}|key|(?<![a-z])sig(?![a-z])|(?<=;)\s?pwd)[\w-]{{0,40}}=)"
    rf"(?:{QUOTED}|[^\s&;,]+)"
)
# what is said otherwise: group 1 stays
SECRET_FORMS = (
    r"(?s)(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----).+?(?=-----END|\Z)",
    # of .netrc
    r"(?i)(\blogin\s{1,4}\S{1,128}\s{1,4}passw\w{0,3}\s{1,4})\S+",
    r"(?i)(\bbearer\s{1,4})[\w.~+/=-]{8,}",
    r"(?i)(\bbasic\s{1,4})(?=[\w+/-]{0,200}[\d=])[\w+/-]{12,}={0,2}",
    # a word of a list, as repr() has it: to its own quote, whatever blanks are in it
    rf"(?i)((?P<quote>['\"])-{{0,2}}[\w-]{{0,40}}(?:{WORDS}|(?:api|access|private)[_-]?key)[\w-]{{0,40}}=)"
    r"(?:(?!(?P=quote))[^\n])+",
    # options within a text
    rf"(?i)((?:^|\s)--?[\w-]{{0,40}}(?:{WORDS}|(?:api|access|private)[_-]?key)[\w-]{{0,20}}"
    rf"\s{{1,4}})(?!-)(?:{QUOTED}|\S+)",
    r"(\s(?:-u|--user)[ =])(?!\d{1,9}:\d{1,9}(?!\S))[^\s:]{1,64}:\S+",
    r"(\bsshpass\s{1,4}-p\s{0,4}|\b(?:mysql\w{0,20}|mariadb\w{0,20})\s[^\n]{0,200}?\s-p(?=\S))\S+",
    # "token": "…", password: …, Password = …
    rf"(?i)([\"'][\w-]{{0,40}}(?:(?:{WORDS}|private_key)[\w-]{{0,20}}|key)[\"']\s{{0,4}}:\s{{0,4}})"
    rf"(?:{QUOTED}|[^\s,}}]+)",
    r"(?i)((?:passw\w{0,3}|passphrase|secret|(?:api|access|private|account)[_-]?key)"
    rf"\s{{0,4}}(?::\s{{0,4}}|\s=\s))(?![*\s])(?:{QUOTED}|[^\s;,]{{4,}})",
    r"(?i)(\btoken\s{0,4}:\s{0,4})(?=\S{0,200}\d)[^\s'\"]{8,}",
    r"(?i)(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/)[\w/-]{8,}",
    r"(?i)(api\.telegram\.org/bot|[?&]code=)[\w:.-]{16,}",
)
# `Authorization: Basic …`, `X-Api-Key: …`: a header to its end; and what goes by its scheme
SECRET_HEADER = (
    r"(?im)\b((?:proxy-)?authorization|(?:set-)?cookie|[\w-]{0,40}-(?:key|token|secret|password))"
    r"\s{0,4}:(?:\s{0,4}digest\b[^\n]+|[^\n\"']+)"
)
# tokens that are known by their first letters: of Hugging Face, GitHub, GitLab, OpenAI, Slack, AWS,
# Google, SendGrid, PyPI, DigitalOcean, NVIDIA, Replicate, Stripe, Vault, age, npm, Databricks; JWT
SECRET_SHAPE = (
    r"(?a)\b(?:(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[a-z]-|xapp-|AKIA|ASIA|AIza|ya29\.|SG\.|"
    r"pypi-|do[opr]_v1_|nvapi-|r8_|[srp]k_(?:live|test)_|hv[sb]\.|AGE-SECRET-KEY-|eyJ)[\w.-]{16,}|"
    r"npm_[A-Za-z0-9]{30,}|dapi[0-9a-f]{32})"
)
# what any of these needs to match at all: most values are compared with no pattern
SECRET_SIGNS = (
    *("token", "secret", "passw", "passphrase", "credential", "auth", "signature", "cookie", "key"),
    *("webhook", "connection", "jwt", "dsn", "pass", "pat=", "pwd", "bearer"),
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "sk-", "xox", "akia", "eyj"),
    *("mnemonic", "session", "creds", "sas", "otp", "pw", "sig=", "-----begin", "basic", "login"),
    *("-u", "--user", "mysql", "mariadb", "hooks.slack", "discord", "telegram", "code=", "glpat-"),
    *("xapp-", "asia", "aiza", "ya29.", "sg.", "pypi-", "_v1_", "nvapi-", "r8_", "k_live_"),
    *("k_test_", "hvs.", "hvb.", "npm_", "dapi"),
)
USERS = ("-u", "--user")
"""Options that take `user:password`."""
KNOWN = 4096
"""Objects without a secret of which that is known for a while."""
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
    if not _may_hold_one(value):
        return clip(value if len(value) <= WINDOW else value[:WINDOW] + "…", limit)
    text = re.sub(SECRET_HEADER, rf"\1: {HIDDEN}", value[:WINDOW])
    for form in (*SECRET_FORMS, SECRET_PART):
        text = re.sub(form, rf"\1{HIDDEN}", text)
    text = re.sub(SECRET_SHAPE, HIDDEN, text)
    return clip(text if len(value) <= WINDOW else text + "…", limit)


def _may_hold_one(value: str) -> bool:
    head = value[:WINDOW].lower()
    return any(sign in head for sign in SECRET_SIGNS)


def command_line(words: Sequence[str]) -> list[str]:
    """A command line as it may be shown and stored: `--api-key X` as `--api-key=X` without X, as
    well as `-p X` and `-u user:X`."""
    shown = []
    for flag, word in zip(["", *words], words, strict=False):
        name, sign, _ = word.partition("=")
        if _takes_secret(flag, word):
            shown.append(HIDDEN)
        elif sign and name.startswith("-") and secret(name):  # whatever blanks are in it
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(redact("", word))
    return shown


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
        option, sign, value = word[:WINDOW].partition("=")
        if sign and option.startswith("-") and secret(option):
            named |= {spelt for part in (value, *value.split()) for spelt in _spellings(part)}
    for name, value in (*environ.items(), *(("", word) for _, word in typed)):
        if secret(name) and not re.search(PLACE_NAME, name[-WINDOW:]):
            named |= _spellings(value[:WINDOW])
        at, scheme = value.rfind("@"), value.find("://")
        if 0 <= scheme < at:
            found |= {value[scheme + 3 : at], value[scheme + 3 : at].partition(":")[2]}
        elif 0 <= value.find(":") < at and "/" not in value[:at]:
            found |= {value[:at], value[:at].partition(":")[2]}
        if _may_hold_one(value):
            for form in (*SECRET_FORMS, SECRET_PART):
                for part in re.finditer(form, value[:WINDOW]):
                    said = part[0][len(part[1]) :].strip("'\"")
                    found |= {said, *said.rpartition(":")[2:], *re.split(r"\s+|\\n", said)}
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
    return _without(data, texts, _Clean()) if texts else data


class _Clean:
    """What has become of objects, by their id(). Of those that stay what they are it is known for a
    while, and so long they are kept, so that no other object can have their id(): those that many
    have in common are met again soon, all others never."""

    __slots__ = ("changed", "same")

    def __init__(self) -> None:
        self.changed: dict[int, Any] = {}
        self.same: dict[int, Any] = {}


def _without(data: Any, texts: tuple[str, ...], known: _Clean) -> Any:
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
    if isinstance(data, (int, float, type(None))) or id(data) in known.same:
        return data
    if id(data) in known.changed:
        return known.changed[id(data)]
    made = _made_without(data, texts, known)
    if made is not data:
        known.changed[id(data)] = made
    else:
        if len(known.same) >= KNOWN:
            known.same.clear()
        known.same[id(data)] = data
    return made


def _made_without(data: Any, texts: tuple[str, ...], known: _Clean) -> Any:
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        changed = {}
        for name in data.__dataclass_fields__:
            value = getattr(data, name)
            made = _without(value, texts, known)
            if made is not value:
                changed[name] = made
        return dataclasses.replace(data, **changed) if changed else data
    if isinstance(data, Packed):
        return _packed_without(data, texts, known)
    if isinstance(data, Mapping):
        for key, value in data.items():
            same = _without(key, texts, known) is key and _without(value, texts, known) is value
            if not same:
                pairs = data.items()
                return {_without(k, texts, known): _without(v, texts, known) for k, v in pairs}
        return data
    if isinstance(data, (tuple, list)):
        if all(_without(item, texts, known) is item for item in data):
            return data
        return type(data)(_without(item, texts, known) for item in data)
    return data


def _packed_without(data: Packed, texts: tuple[str, ...], known: _Clean) -> Any:
    """A value whose form was looked through for another one: only what is its own is looked at."""
    form = data.layout.form.data
    if _without(form, texts, known) is form:
        own = data.own  # leaves, of which nothing becomes known
        if all(_without(leaf, texts, known) is leaf for leaf in own):
            return data
    return _without(data.plain(), texts, _Clean())
