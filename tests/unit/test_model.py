"""Keys of observations: a peer or a report may call them anything."""

from __future__ import annotations

import pytest

from preflight.model import place_of


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("n1", ("n1", None)),
        ("n1/7", ("n1", 7)),
        ("a/b/7", ("a/b", 7)),
        ("/7", ("", 7)),
        ("n1/", ("n1/", None)),
        ("n1/-1", ("n1/-1", None)),
        ("n1/²", ("n1/²", None)),
        ("n1/" + "9" * 5000, ("n1/" + "9" * 5000, None)),
    ],
)
def test_the_rank_of_a_key_is_a_number_of_a_rank(key: str, place: tuple[str, int | None]) -> None:
    assert place_of(key) == place
