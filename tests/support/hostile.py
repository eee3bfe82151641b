"""What was once said by a peer, or stood in a report, and ended the one who read it."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

BIG = "1" + "0" * 400
DEEP = "[" * 600 + "]" * 600

WORDS: dict[str, str] = {
    "a value that is no number": '{"seen":["host.limits","n1",{"value":NaN}]}',
    "a value beyond a float": '{"seen":["host.limits","n1",{"value":1e999}]}',
    "a value 600 deep": '{"seen":["host.limits","n1",{"value":DEEP}]}',
    "seconds in words": '{"seen":["host.limits","n1",{"value":1,"seconds":"nan"}]}',
    "seconds of 400 digits": '{"seen":["host.limits","n1",{"value":1,"seconds":BIG}]}',
    "a mark at no time": '{"seen":["host.limits","n1",{"value":1,"marks":[["a","nan"]]}]}',
    "an absence in words": (
        '{"seen":["host.limits","n1",{"missing":{"cause":"timed_out","seconds":"inf"}}]}'
    ),
    "a digest 600 deep": '{"seen":["host.limits","n1",{"digest":DEEP}]}',
    "a clock of 400 digits": '{"beat":"x","t":1,"clock":[BIG,1]}',
    "a clock that is none": '{"beat":"x","t":1,"clock":[NaN,Infinity]}',
    "a time 600 deep": '{"beat":"x","t":DEEP}',
    "a time that is a document": '{"beat":"x","t":{"a":[1,2]}}',
    "told: no number": '{"said":["world.gloo",1,"x",NaN,null]}',
    "told: 600 deep": '{"said":["world.gloo",1,"x",DEEP,null]}',
    "told to nobody": '{"said":["world.gloo",1,"x",1,["a"]]}',
    "a value that nobody wanted, 600 deep": '{"value":["a",DEEP]}',
}
WORDS = {name: line.replace("DEEP", DEEP).replace("BIG", BIG) for name, line in WORDS.items()}
"""Lines of a guest, in the meeting; it is lost by them, and nobody else is."""

SURROGATES: dict[str, str] = {
    "a mark": r'{"beat":"\ud800","t":1}',
    "an absence": r'{"seen":["a.b","n1",{"missing":{"cause":"crashed","detail":"\udcff"}}]}',
    "a check": r'{"seen":["\ud800","n1",{"value":1}]}',
    "a goodbye": r'{"bye":"\udfff"}',
}
"""Lines of a guest that are taken, and printed."""

SCALARS = st.sampled_from(
    [
        *(None, True, 0, -1, 1 << 63, 1 << 127, 1 << 128, 10**400, 0.5, -0.0, 1e308),
        *(float("nan"), float("inf"), "nan", "-inf", "1e999", "", "é", "\ud800", "a\0b", "n0/0"),
        *("\x1b[2J", "x" * 3000, "\u202e", "{port}", "1" * 5000, [], {}, [[]], {"": {}}),
    ]
)
VALUES = st.recursive(
    SCALARS | st.text(max_size=6) | st.floats() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=10,
)


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """A document of ours with something else in one or two places."""
    made = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 2))):
        inside, key = {"": made}, ""
        holder: Any = inside
        for _ in range(draw(st.integers(0, 8))):
            one = holder[key]
            if isinstance(one, dict) and one:
                holder, key = one, draw(st.sampled_from(sorted(one)))
            elif isinstance(one, list) and one:
                holder, key = one, draw(st.integers(0, len(one) - 1))
            else:
                break
        holder[key] = deepcopy(draw(VALUES))  # the next change may go into it
        made = inside[""]
    return made


def text_of(document: Any) -> bytes:
    """As somebody would write it who does not care: NaN, and halves of letters."""
    return json.dumps(document).encode()


@st.composite
def damaged(draw: st.DrawFn, line: bytes) -> bytes:
    """A line with other bytes in some places, or cut off."""
    data = bytearray(line)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=6))
    return bytes(data[: draw(st.integers(len(data) // 2, len(data)))])
