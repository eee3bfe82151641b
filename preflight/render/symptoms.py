"""What users see of a fault, and which findings explain it: `explain TEXT` and `diagnose`. Pure.

The messages of torch, NCCL and SLURM that the checks themselves quote, in "Seen as" and in `means`,
are what is looked for: who writes a finding well has made it searchable.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from preflight.frozen import dataclass
from preflight.humanize import parties, plural
from preflight.model import FindingType
from preflight.registry import Catalogue, Loaded
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

WORD = re.compile(r"[a-z0-9_]+")
MOST = 10
"""Candidates of a search, and kinds of lines of a log, that are shown."""

NAMED = 5
"""Findings that a line of a log may be of, by name; more are counted."""

LINE = 4000
"""Characters of a line of a log that are looked at."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """A message, as a pattern, and the findings (check id, code) that it may be seen of; code is
    empty where the check as a whole quotes it."""

    words: str
    pattern: re.Pattern[str]
    part: str
    findings: tuple[tuple[str, str], ...]

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
    return tuple(sorted(made, key=lambda symptom: -symptom.length))


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


def search(catalogue: Catalogue, text: str) -> list[tuple[Loaded, str]]:
    """The findings that fit a message or words best, the best first. A check whose name has a
    word of them is one, with an empty code."""
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
    for symptom in symptoms(catalogue):
        if symptom.pattern.search(text) or (
            len(text) > 7 and text.lower() in symptom.words.lower()
        ):
            for place in symptom.findings:
                scores[place] = scores.get(place, 0.0) + 20.0 * (2 if place[1] else 1)
    places = sorted(scores, key=lambda place: -scores[place])
    least = scores[places[0]] / 4 if places else 0.0
    return [(catalogue.checks[c], code) for c, code in places if scores[c, code] >= least][:MOST]


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


def candidates(found: Sequence[tuple[Loaded, str]], text: str, width: int) -> str:
    """What `explain` prints where a text is neither an id nor a code."""
    lines = [
        f"{plural(len(found), 'candidate')} for {legible(text, longest=60)!r}, the best first",
        "",
    ]
    for loaded, code in found:
        name = f"{loaded.id}:{code}" if code else loaded.id
        told = loaded.module.FINDINGS[code].cause if code else loaded.question
        lines.append(f" {name}")
        lines += [f"   {part}" for part in wrapped(told, width - 3)]
        lines.append(f"   preflight run --only {loaded.id}")
    lines += ["", " More: preflight explain NAME"]
    return "".join(f"{line}\n" for line in lines)


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
    count: int = 1

    @property
    def checks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(check for check, _ in self.findings))


def known_lines(log: str, catalogue: Catalogue) -> list[SeenLine]:
    """The first line of each kind, in the order of the log. A line is of the kind of the longest
    message that is in it; what quotes a part of it may be meant as well."""
    table = symptoms(catalogue)
    first: dict[str, SeenLine] = {}
    for number, line in enumerate(log.splitlines(), 1):
        text = line[:LINE]
        lowered = text.lower()
        matching = [symptom for symptom in table if symptom.matches(text, lowered)]
        if not matching:
            continue
        message = matching[0].words
        if (old := first.get(message)) is not None:
            first[message] = replace(old, count=old.count + 1)
            continue
        findings = tuple(dict.fromkeys(place for s in matching for place in s.findings))
        first[message] = SeenLine(number, text.strip(), _rank(text), message, findings)
    return sorted(first.values(), key=lambda seen: seen.number)


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
    later = [one for one in seen if OF_A_LOST_PEER.search(one.text)]
    if len(later) < len(seen):
        seen = [one for one in seen if one not in later]
    else:
        later = []
    for one in seen[:MOST]:
        who = f" · rank {one.rank}" if one.rank is not None else ""
        more = f" · {plural(one.count, 'line')} like it" if one.count > 1 else ""
        made.append(f" line {one.number}{who}{more}")
        made += [f"   {part}" for part in wrapped(legible(one.text, longest=240), width - 3)]
        for label, part in zip_longest(
            ["could be"], wrapped(_names(one), width - 14), fillvalue=""
        ):
            made.append(f"   {label:<10} {part}")
        for label, command in zip_longest(["run next"], _next(one), fillvalue=""):
            made.append(f"   {label:<10} preflight {command}")
    if len(seen) > MOST:
        made += ["", f" {plural(len(seen) - MOST, 'more kind')} of lines"]
    if later:
        numbers = ", ".join(str(one.number) for one in later[:MOST])
        said = f"line {numbers}" if len(later) == 1 else f"lines {numbers}"
        made += [
            "",
            *wrapped(f" {said}: said when a rank is gone, so most likely consequences", width),
        ]
    return "".join(f"{line}\n" for line in made)


def _names(seen: SeenLine) -> str:
    """The findings by name, or the checks where only these quote the message."""
    codes = [f"{check}:{code}" for check, code in seen.findings if code]
    return parties(codes or list(seen.checks), NAMED)


def _next(seen: SeenLine) -> list[str]:
    """The commands that test it. What a job does wrong is seen while it runs: that comes first
    where most that the message is known of is such."""
    named = [check for check, code in seen.findings if code] or seen.checks
    ours = [check for check in seen.checks if not check.startswith("job.")]
    rehearsed = ["rehearse -- CMD"] if len(ours) < len(seen.checks) else []
    tested = [f"run --only {','.join(ours)}"] if ours else []
    job_first = 2 * sum(check.startswith("job.") for check in named) > len(named)
    return [*rehearsed, *tested] if job_first else tested or rehearsed


def as_data(seen: Sequence[SeenLine]) -> list[Mapping[str, object]]:
    """The same for programs."""
    return [
        {
            "line": one.number,
            "count": one.count,
            "rank": one.rank,
            "text": one.text,
            "message": one.message,
            "findings": [{"check": check, "code": code} for check, code in one.findings],
        }
        for one in seen
    ]
