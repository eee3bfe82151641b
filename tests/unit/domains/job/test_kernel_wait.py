"""What a process waits for in the kernel."""

from __future__ import annotations

import pytest

from preflight.domains.job import kernel_wait
from preflight.domains.job.record import ChildProcess


@pytest.mark.parametrize(
    ("state", "wchan", "remote"),
    [
        ("D", "nfs_wait_on_request", True),
        ("S", "request_wait_answer", True),
        ("D", "rpc_wait_bit_killable", True),
        ("D", "folio_wait_bit_common", False),
        ("D", "", False),
        ("S", "folio_wait_bit_common", None),
        ("S", "futex_do_wait", None),
        ("D", "nvidia_ioctl", None),
        ("S", "locks_lock_inode_wait", None),
        ("D", "flock_lock_inode_wait", None),
        ("S", "hrtimer_nanosleep", None),
        ("", "", None),
    ],
)
def test_what_is_a_file_system(state: str, wchan: str, remote: bool | None) -> None:
    found = kernel_wait.blocking_storage(state, wchan)
    assert (found.remote if found is not None else None) == remote
    child = kernel_wait.blocking_storage(
        "S", "futex_do_wait", (ChildProcess(1, "w", state, wchan),)
    )
    assert (child.remote if child is not None else None) == remote
