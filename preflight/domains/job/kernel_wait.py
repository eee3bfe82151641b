"""What a process waits for, by its state and its place in the kernel. Pure.

The names are those of functions of Linux (/proc/PID/wchan), 5.4 to 6.18.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from preflight.domains.job.record import ChildProcess
from preflight.frozen import dataclass

DISK, STOPPED = "D", "T"

NETWORK_FILES = re.compile(
    r"nfs\d?_|rpc_wait|__rpc_|fuse_|request_wait_answer|ceph_|cifs_|smb2?_|netfs_|p9_|v9fs_"
    r"|afs_|gfs2_|ocfs2_|ll_|cl_sync_io|osc_|ptlrpc_|ldlm_|cxi|orangefs_|beegfs|fhgfs",
)
LOCAL_FILES = re.compile(
    r"folio_wait|wait_on_page|wait_on_buffer|__lock_page|__folio_lock|io_schedule|bit_wait_io"
    r"|blk_|submit_bio_wait|bio_wait|jbd2_|ext4_|xfs_|btrfs_|zfs_|txg_|cv_wait_common"
    r"|balance_dirty_pages|rq_qos_wait|wbt_wait|sync_inodes|filemap_",
)
LOCK = re.compile(r"locks_lock|flock_lock|posix_lock|fcntl_setlk")
PIPE = re.compile(r"(?:anon_)?pipe_(?:read|write|wait)|wait_for_partner|fifo_open")
INPUT = re.compile(r"n_tty_read|wait_woken_tty")
CHILD = re.compile(r"do_wait$|kernel_wait4|do_wait_")
SOCKET = re.compile(r"sk_wait_data|inet_csk_accept|unix_stream_|__skb_wait|tcp_recvmsg|inet_wait")
SLEEP = re.compile(r"hrtimer_nanosleep|do_nanosleep|clock_nanosleep")

WORDS = (
    (LOCK, "waits for the lock of a file"),
    (PIPE, "waits at a pipe or FIFO"),
    (INPUT, "waits for input from the terminal"),
    (CHILD, "waits for a child process"),
    (SOCKET, "waits for an answer from a socket"),
    (SLEEP, "sleeps"),
)


@dataclass(frozen=True, slots=True)
class BlockedOnStorage:
    """A process that a file system holds. `remote`: one that lies on a network or in a daemon."""

    who: str
    wchan: str
    remote: bool

    def __str__(self) -> str:
        return f"{self.who} is in {self.wchan or 'the kernel, state D'}"


def blocking_storage(
    state: str, wchan: str, children: Iterable[ChildProcess] = (), who: str = "it"
) -> BlockedOnStorage | None:
    """The file system that holds a process or one of its children; None when none does. A lock of
    a file is not the fault of its file system."""
    asked = [(who, state, wchan)]
    asked += [(f"its child {p.name} (pid {p.pid})", p.state, p.wchan) for p in children]
    for name, how, where in asked:
        if LOCK.search(where):
            continue
        if NETWORK_FILES.match(where):
            return BlockedOnStorage(name, where, remote=True)
        if how == DISK and (LOCAL_FILES.match(where) or where in ("", "0")):
            return BlockedOnStorage(name, where.strip("0"), remote=False)
    return None


def wait_reason(state: str, wchan: str) -> str:
    """What the kernel says that it waits for, in words; empty when that tells nothing."""
    if state == STOPPED:
        return "is stopped by a signal (state T)"
    return next((words for pattern, words in WORDS if pattern.match(wchan)), "")
