"""What users see of a fault, and which findings explain it: `explain TEXT` and `diagnose`. Pure.

The messages of torch, NCCL and SLURM that the checks themselves quote, in "Seen as" and in `means`,
are what is looked for: who writes a finding well has made it searchable. Those of known_messages.py
go before them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import zip_longest

from preflight.frozen import dataclass
from preflight.humanize import parties, plural
from preflight.model import FindingType
from preflight.registry import Catalogue, Loaded
from preflight.render.known_messages import MESSAGES, UNKNOWN_EXCEPTION, Message, MessageKind
from preflight.render.layout import wrapped
from preflight.sanitize import legible

QUOTED = (re.compile(r"(?<!\w)'([^']{6,})'(?!\w)"), re.compile(r'"([^"]{6,})"'))
PART = re.compile(r"…|\{\w+\}|<[^>]*>|\d+")
"""What differs from message to message within a quoted one."""

VAGUE = frozenset(
    {
        *("cuda error", "hip error", "unknown error", "internal error", "wrong type"),
        *("torch.distributed", "init_process_group", "out of memory", "permission denied"),
        *("no such file or directory", "connection refused", "clients joined"),
    }
)
"""Quoted, and said by programs of so many things that they explain nothing alone."""

RANK = re.compile(
    r"^\s*\[?(?:rank|default)?\s?(\d{1,6})\]?\s?:|\[rank\s?(\d{1,6})\]|\brank (\d{1,6})\b|"
    r"^srun: error: \S+ task (\d{1,6}):",
    re.IGNORECASE,
)
"""Who says a line: torchrun's `[rank3]:`, `[default3]:`, `[3]:` of `srun --label`, srun's task, or
its words."""

OF_A_LOST_PEER = re.compile(
    r"closed by (?:remote )?peer|remote process exited|likely closed"
    r"|failed \(exitcode: \d|destroy_process_group\(\) was not called",
    re.IGNORECASE,
)
"""What the others and the launcher say once a rank is gone, and what it says itself as it goes: of
a log that holds anything else, that is more likely the cause."""

BEGUN = "Traceback (most recent call last)"
RAISED = re.compile(
    r"(?:\[?(?:rank|default)?\s?\d{1,6}\]?\s?:\s?)?([A-Za-z_][\w.]*(?:Error|Exception))(:|$)"
)
"""A traceback's first line; and its last one, with the exception, behind who says it."""

WORD = re.compile(r"[a-z0-9_]+")
MOST = 10
"""Candidates of a search, and kinds of lines of a log, that are shown."""

NAMED = 5
"""Findings that a line of a log may be of, by name; more are counted."""

LINE = 4000
"""Characters of a line of a log that are looked at."""

FORMS = 4096
"""Lines that are no message, with 0 for each digit: NCCL's INFO lines are of a few forms."""
DIGIT = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Symptom:
    """A message, as a pattern, and the findings (check id, code) that it may be seen of; code is
    empty where the check as a whole quotes it. known: what is known of it beyond that."""

    words: str
    pattern: re.Pattern[str]
    part: str
    findings: tuple[tuple[str, str], ...]
    known: Message | None = None

    def matches(self, text: str, lowered: str) -> bool:
        """Whether a line holds it; `part`, letters that have to be there, is found faster."""
        return self.part in lowered and self.pattern.search(text) is not None

    @property
    def length(self) -> int:
        """Letters that have to be there."""
        return len(PART.sub("", self.words))


def symptoms(catalogue: Catalogue) -> tuple[Symptom, ...]:
    """All that the checks quote, the longest first."""
    found: dict[str, list[tuple[str, str]]] = {}
    spelled: dict[str, str] = {}
    for loaded in catalogue:
        for code, kind in loaded.module.FINDINGS.items():
            for words in _quoted(kind.means):
                spelled.setdefault(_key(words), words)
                found.setdefault(_key(words), []).append((loaded.id, code))
        for words in _quoted(loaded.sections.get("Seen as", "")):
            spelled.setdefault(_key(words), words)
            found.setdefault(_key(words), []).append((loaded.id, ""))
    made = (_symptom(spelled[key], of) for key, of in found.items())
    return (*_known(), *sorted(made, key=lambda symptom: -symptom.length))


def _places(message: Message) -> Iterable[tuple[str, str]]:
    for place in message.findings:
        check, _, code = place.partition(":")
        yield check, code


@cache
def _known() -> tuple[Symptom, ...]:
    """The messages of known_messages.py, in their order: special ones stand before general ones."""
    made = []
    for message in MESSAGES:
        findings = tuple(_places(message))
        for words in message.words:
            parts = [part.strip() for part in words.split("…")]
            # -9 at the end is not to match -99
            pattern = r".{0,200}?".join(map(re.escape, parts)) + r"(?!\d)" * words[-1].isdigit()
            part = max(parts, key=len).lower()
            made.append(Symptom(words, re.compile(pattern, re.IGNORECASE), part, findings, message))
    return tuple(made)


def _symptom(words: str, findings: Sequence[tuple[str, str]]) -> Symptom:
    part = max((p.strip().lower() for p in PART.split(words)), key=len)
    return Symptom(words, _pattern(words), part, tuple(findings))


def _key(words: str) -> str:
    return PART.sub("#", words).lower()


def _quoted(text: str) -> Iterable[str]:
    for quotes in QUOTED:
        for words in quotes.findall(text):
            plain = words.strip(" .:…")
            if plain.lower() not in VAGUE and (" " in plain or plain.isupper() or "_" in plain):
                yield plain


def _pattern(words: str) -> re.Pattern[str]:
    parts = (re.escape(part.strip()) for part in PART.split(words))
    between = (r"\d+" if found.isdigit() else r".{1,80}?" for found in PART.findall(words))
    text = next(parts)
    for gap, part in zip(between, parts, strict=True):
        text += rf"\s?{gap}\s?{part}"
    return re.compile(text, re.IGNORECASE)


# --- explain TEXT ---


def known_message(text: str) -> Message | None:
    """What is known of a message, which may have several lines: of its first error, else of what
    follows from one."""
    lines = text.splitlines()[: MOST * MOST]
    found = [known for line in lines if (known := _known_line(line)) is not None]
    if not found:  # or one that was broken into lines
        return _known_line(" ".join(lines))
    return min(found, key=lambda message: list(MessageKind).index(message.kind))


def _known_line(line: str) -> Message | None:
    text = line[:LINE]
    lowered = text.lower()
    return next((symptom.known for symptom in _known() if symptom.matches(text, lowered)), None)


def search(catalogue: Catalogue, text: str) -> list[tuple[Loaded, str]]:
    """The findings that fit a message or words best, the best first. A check whose name has a
    word of them is one, with an empty code. Words count only where no message is known."""
    if (message := known_message(text)) is not None:
        return [(catalogue.checks[check], code) for check, code in _places(message)]
    quoted: dict[tuple[str, str], float] = {}
    for symptom in symptoms(catalogue):
        if symptom.pattern.search(text) or (
            len(text) > 7 and text.lower() in symptom.words.lower()
        ):
            for place in symptom.findings:
                more = symptom.length * (2 if place[1] else 1)
                quoted[place] = max(quoted.get(place, 0.0), more)
    scores = quoted or _by_words(catalogue, text)
    places = sorted(scores, key=lambda place: -scores[place])
    least = scores[places[0]] / 4 if places else 0.0
    return [(catalogue.checks[c], code) for c, code in places if scores[c, code] >= least][:MOST]


def _by_words(catalogue: Catalogue, text: str) -> dict[tuple[str, str], float]:
    """How well each finding fits the words of a text: rare ones count more."""
    entries = {
        (loaded.id, code): _words_of(loaded, code, kind)
        for loaded in catalogue
        for code, kind in [("", None), *loaded.module.FINDINGS.items()]
    }
    common = Counter(word for words in entries.values() for word in words)
    wanted = list(dict.fromkeys(WORD.findall(text.lower())))
    scores: dict[tuple[str, str], float] = {}
    for entry, words in entries.items():
        score = 0.0
        for word in wanted:
            alike = [w for w in words if w == word or (len(word) > 3 and w.startswith(word))]
            best = max((words[w] for w in alike), default=0.0)
            score += best * math.log(1 + len(entries) / (1 + common[word]))
        if score:
            scores[entry] = score
    return scores


def _words_of(loaded: Loaded, code: str, kind: FindingType | None) -> dict[str, float]:
    """Each word of an entry, with what it weighs there."""
    if kind is None:
        texts = {loaded.id: 6.0, loaded.question: 2.0, loaded.sections.get("Seen as", ""): 2.0}
    else:
        names = " ".join((code, *kind.was))
        texts = {names: 6.0, kind.headline: 3.0, kind.cause: 3.0, kind.means: 3.0, kind.text: 1.0}
    weights: dict[str, float] = {}
    for text, weight in texts.items():
        for word in WORD.findall(text.lower()):
            weights[word] = max(weight, weights.get(word, 0.0))
    return weights


SAID_LATER = "said because something else has failed before"
KINDS = {
    MessageKind.ERROR: "",
    MessageKind.FOLLOWS: SAID_LATER,
    MessageKind.HARMLESS: "harmless by itself",
}


def candidates(
    found: Sequence[tuple[Loaded, str]], message: Message | None, text: str, width: int
) -> str:
    """What `explain` prints where a text is neither an id nor a code."""
    lines = []
    if message is not None:
        for label, told in _known_of(message):
            lines += _beside(label, told, width)
        if found:
            lines += ["", " could be, the most likely first"]
    else:
        quoted = legible(text, longest=60)
        lines += [f"{plural(len(found), 'candidate')} for {quoted!r}, the best first", ""]
    for loaded, code in found:
        name = f"{loaded.id}:{code}" if code else loaded.id
        told = loaded.module.FINDINGS[code].cause if code else loaded.question
        lines.append(f" {name}")
        lines += [f"   {part}" for part in wrapped(told, width - 3)]
        lines.append(f"   preflight {_next(((loaded.id, code),))[0]}")
    if found:
        lines += ["", " More: preflight explain NAME"]
    return "".join(f"{line}\n" for line in lines)


def candidates_as_data(
    found: Sequence[tuple[Loaded, str]], message: Message | None
) -> Mapping[str, object]:
    """The same for programs. `kind`, `means` and `do` are null where no message is known and the
    findings were searched for by words."""
    return {
        **_known_as_data(message),
        "findings": [
            {
                "check": loaded.id,
                "code": code,
                "cause": loaded.module.FINDINGS[code].cause if code else loaded.question,
                "next": _commands(((loaded.id, code),)),
            }
            for loaded, code in found
        ],
    }


def _known_as_data(message: Message | None) -> Mapping[str, object]:
    if message is None:
        return {"kind": None, "means": None, "do": None}
    return {"kind": str(message.kind), "means": message.means, "do": message.do or None}


def _known_of(message: Message) -> Iterable[tuple[str, str]]:
    """What is known of a message, each with its label."""
    if KINDS[message.kind]:
        yield "this is", KINDS[message.kind]
    yield "means", message.means
    if message.do:
        yield "do", message.do


def _beside(label: str, text: str, width: int) -> list[str]:
    """A text with its label to the left of its first line."""
    parts = zip_longest([label], wrapped(text, width - 14), fillvalue="")
    return [f"   {label:<10} {part}" for label, part in parts]


# --- diagnose ---


@dataclass(frozen=True, slots=True)
class SeenLine:
    """A line of a log that is known: its number, who says it (None: it does not tell), how many
    lines there are of this kind."""

    number: int
    text: str
    rank: int | None
    message: str
    findings: tuple[tuple[str, str], ...]
    known: Message | None = None
    count: int = 1

    @property
    def later(self) -> bool:
        """Whether it is said once something else has failed."""
        if self.known is not None:
            return self.known.kind is MessageKind.FOLLOWS
        return OF_A_LOST_PEER.search(self.text) is not None

    @property
    def harmless(self) -> bool:
        return self.known is not None and self.known.kind is MessageKind.HARMLESS

    @property
    def checks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(check for check, _ in self.findings))


def known_lines(log: str, catalogue: Catalogue) -> list[SeenLine]:
    """The first line of each kind, in the order of the log. A line is of the kind of the known
    message that is in it; else of the longest one that a check quotes, and what quotes a part of it
    may be meant as well. The end of a traceback is a kind of its own."""
    table = symptoms(catalogue)
    first: dict[str, SeenLine] = {}
    tracing: set[int | None] = set()
    numbered = tuple(symptom for symptom in table if DIGIT.search(symptom.words))
    unknown: set[str] = set()
    for number, line in enumerate(log.splitlines(), 1):
        text = line[:LINE]
        lowered = text.lower()
        if BEGUN in text:
            tracing.add(_rank(text))
        form = DIGIT.sub("0", text)
        possible = numbered if form in unknown else table
        matching = [symptom for symptom in possible if symptom.matches(text, lowered)]
        if not matching and len(unknown) < FORMS:
            unknown.add(form)
        if not matching and _rank(text) in tracing and (raised := RAISED.match(text)):
            matching = [_uncaught(raised[1])]
        if not matching:
            continue
        message, known = matching[0].words, matching[0].known
        kind = message if known in (None, UNKNOWN_EXCEPTION) else known.means
        if (old := first.get(kind)) is not None:
            first[kind] = replace(old, count=old.count + 1)
            continue
        listed = [matching[0]] if known is not None else matching
        findings = tuple(dict.fromkeys(place for s in listed for place in s.findings))
        first[kind] = SeenLine(number, text.strip(), _rank(text), message, findings, known)
    return sorted(first.values(), key=lambda seen: seen.number)


def _uncaught(name: str) -> Symptom:
    return Symptom(name, RAISED, "", tuple(_places(UNKNOWN_EXCEPTION)), UNKNOWN_EXCEPTION)


def _rank(line: str) -> int | None:
    found = RANK.search(line)
    return int(next(filter(None, found.groups()))) if found else None


def diagnosis(seen: Sequence[SeenLine], name: str, lines: int, width: int) -> str:
    """What `diagnose` prints: never more than that something was seen in the log."""
    if not seen:
        return (
            f"{legible(name)}: none of {plural(lines, 'line')} is a message that preflight knows\n"
        )
    known = sum(one.count for one in seen)
    made = [f"{legible(name)}: {known} of {plural(lines, 'line')} known, seen in the log", ""]
    harmless = [one for one in seen if one.harmless]
    later = [one for one in seen if one.later]
    if len(later) + len(harmless) < len(seen):  # else they are all there is
        seen = [one for one in seen if one not in later and one not in harmless]
    elif later:
        seen, later = later, []
    else:
        harmless = []
    for one in seen[:MOST]:
        who = f" · rank {one.rank}" if one.rank is not None else ""
        more = f" · {plural(one.count, 'line')} like it" if one.count > 1 else ""
        made.append(f" line {one.number}{who}{more}")
        made += [f"   {part}" for part in wrapped(legible(one.text, longest=240), width - 3)]
        for label, told in _known_of(one.known) if one.known is not None else ():
            made += _beside(label, told, width)
        if one.findings:
            made += _beside("could be", _names(one), width)
            for label, command in zip_longest(["run next"], _next(one.findings), fillvalue=""):
                made.append(f"   {label:<10} preflight {command}")
    if len(seen) > MOST:
        made += ["", f" {plural(len(seen) - MOST, 'more kind')} of lines"]
    for ones, why in (
        (later, f"{SAID_LATER}, so most likely consequences"),
        (harmless, "harmless"),
    ):
        if ones:
            numbers = ", ".join(str(one.number) for one in ones[:MOST])
            said = f"line {numbers}" if len(ones) == 1 else f"lines {numbers}"
            made += ["", *wrapped(f" {said}: {why}", width)]
    return "".join(f"{line}\n" for line in made)


def _names(seen: SeenLine) -> str:
    """The findings by name, or the checks where only these quote the message."""
    codes = [f"{check}:{code}" for check, code in seen.findings if code]
    return parties(codes or list(seen.checks), NAMED)


def _next(findings: Sequence[tuple[str, str]]) -> list[str]:
    """The commands that test them; none where there are none. What a job does wrong is seen while
    it runs: that comes first where most of them are such."""
    checks = tuple(dict.fromkeys(check for check, _ in findings))
    named = [check for check, code in findings if code] or checks
    ours = [check for check in checks if not check.startswith("job.")]
    rehearsed = ["rehearse -- CMD"] if len(ours) < len(checks) else []
    tested = [f"run --only {','.join(ours)}"] if ours else []
    job_first = 2 * sum(check.startswith("job.") for check in named) > len(named)
    return [*rehearsed, *tested] if job_first else tested or rehearsed


def _commands(findings: Sequence[tuple[str, str]]) -> list[str]:
    return [f"preflight {command}" for command in _next(findings)]


def as_data(seen: Sequence[SeenLine]) -> list[Mapping[str, object]]:
    """The same for programs. `later`: said once something else has failed."""
    return [
        {
            "line": one.number,
            "count": one.count,
            "rank": one.rank,
            "text": one.text,
            "message": one.message,
            "later": one.later,
            **_known_as_data(one.known),
            "findings": [{"check": check, "code": code} for check, code in one.findings],
            "next": _commands(one.findings) if one.findings else [],
        }
        for one in seen
    ]
