"""What is needed to start a rehearsal while the one before it still waits."""

from __future__ import annotations

from collections.abc import Generator

import pytest

NEXT = pytest.StashKey[pytest.Item | None]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    item.config.stash[NEXT] = nextitem
    return (yield)


@pytest.fixture
def following(request: pytest.FixtureRequest) -> pytest.Item | None:
    """The test that this process runs next."""
    return request.config.stash.get(NEXT, None)
