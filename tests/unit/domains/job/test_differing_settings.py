"""Settings of the ranks of a job that have to be the same, and are not."""

from __future__ import annotations

import pytest

from preflight.domains.job.differing_settings import differing_settings

NCCL, GLOO = {"nccl"}, {"gloo"}
TREE = {"NCCL_ALGO": "Tree"}


@pytest.mark.parametrize(
    ("settings", "backends", "odd"),
    [
        ((TREE, TREE), NCCL, None),
        ((TREE, {}, {}), NCCL, (0,)),
        ((TREE, {}), NCCL, (0, 1)),
        ((TREE, {}), GLOO, None),  # nobody reads it
        (({"NCCL_ALGO": "Ring,Tree"}, {"NCCL_ALGO": "tree,ring"}), NCCL, None),
        (({"NCCL_BUFFSIZE": "4194304"}, {}), NCCL, None),  # the default
        (({"NCCL_SOCKET_IFNAME": "eth0"}, {"NCCL_SOCKET_IFNAME": "eth1"}), NCCL, None),
        (({"NCCL_HOSTID": "a"}, {"NCCL_HOSTID": "b"}), NCCL, None),
        (({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, {"TORCH_DISTRIBUTED_DEBUG": "OFF"}), GLOO, (0, 1)),
        (({"TORCH_DISTRIBUTED_DEBUG": "INFO"}, {}), GLOO, None),
        (({"GLOO_DEVICE_TRANSPORT": "TCP_TLS"}, {}), GLOO, (0, 1)),
        (({"GLOO_DEVICE_TRANSPORT": "TCP_TLS"}, {}), NCCL, None),
        (({"no such": "x"}, {}), NCCL, None),
        (({}, {}), NCCL, None),
        ((), NCCL, None),
    ],
)
def test_who_has_another_one(
    settings: tuple[dict[str, str], ...], backends: set[str], odd: tuple[int, ...] | None
) -> None:
    found = differing_settings(dict(enumerate(settings)), backends)
    assert [one.odd for one in found] == ([] if odd is None else [odd])
    assert all(one.tie == (len(settings) == 2) for one in found)


def test_the_fewest_are_shown_first() -> None:
    (found,) = differing_settings({0: {}, 1: {}, 2: TREE, 3: {}}, NCCL)
    assert found.text == "NCCL_ALGO is 'Tree' on rank 2, not set on ranks 0-1,3"
    every = {rank: {"NCCL_ALGO": f"a{rank}"} for rank in range(9)}
    (found,) = differing_settings(every, NCCL)
    assert (found.text.count(" on rank "), found.tie, len(found.odd)) == (4, True, 9)


def test_values_are_hostile() -> None:
    (found,) = differing_settings({0: {"NCCL_NET": "x\x1b[31m\n" * 50}, 1: {}, 2: {}}, NCCL)
    assert "\x1b" not in found.text
    assert "\n" not in found.text
    assert len(found.text) < 150
