"""Takes secrets out of environment values before they leave a machine, and bounds them. Pure.

Redacting too much costs a detail, too little a password: in doubt it goes.
"""

from __future__ import annotations

import re

HIDDEN = "***"

LIMIT = 256
"""Characters kept of a value: longer than any host name that is one."""

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


def clip(text: str, limit: int = LIMIT) -> str:
    """At most `limit` characters, and no bytes that UTF-8 has no word for (a variable's value may
    be any bytes; os.environ then holds lone surrogates)."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut.encode("utf-8", "backslashreplace").decode()


def quoted(value: str, limit: int = 80) -> str:
    """repr() of a value, so that blanks and line ends show; cut to `limit` characters."""
    text = repr(clip(value, limit * 2))
    return text if len(text) <= limit else text[: limit - 1] + "…"
