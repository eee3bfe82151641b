"""The words that no text of preflight has, for the tests that read its texts."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

PER = (
    r"(CPUs?|files?|threads?|ranks?|process(es)?|bytes|task|steps?|one) a "
    r"(rank|node|second|process)"
)

STRANGE = re.compile(
    r"\b(mend(s|ed|ing)?|anew|knock(s|ed)?|slip of the pen|without a word|brak(es|ed)|worn|twins?|"
    r"odd one|sought|whom|by halves|stands? still|the own|own name|told|for ever|seldom|unwell|"
    r"is no (number|interface|port|address|file|name|JSON)|look-ups?|time-outs?|hand(s|ed)? out|"
    r"typing error|is asked for|cycle its power|for want of|or else|" + PER + r")\b"
    r"|\b(stands?|lies)\b(?!-)",
    re.IGNORECASE,
)
"""What nobody types into a search: a word of another place or time, or another order of words."""

IN_CODE = re.compile(r"\b(told|whom|twins?|stands?|lies)\b", re.IGNORECASE)
"""Words that an explanation of code may have: they are English, and nobody searches there."""

GIVEN = ("power brake",)
"""Names that others have given: NVML's reasons to throttle."""


def strange_word(text: str) -> str:
    """The first of these words in a text; empty where it has none."""
    for name in GIVEN:
        text = text.replace(name, "")
    found = STRANGE.search(text)
    return found[0] if found else ""


def explained(source: str) -> Iterator[tuple[int, str]]:
    """What explains code to its reader: the first paragraph of each docstring, and each comment,
    with its line."""
    for node in ast.walk(ast.parse(source)):
        documented = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, " ".join(text.partition("\n\n")[0].split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
