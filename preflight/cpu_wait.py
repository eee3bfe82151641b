"""How long a process wanted to run and had no CPU: on a busy machine that is no hang.

Documentation/scheduler/sched-stats.rst: nanoseconds on a CPU, nanoseconds for which it was ready
and waited for one, slices. A process that was stopped (SIGSTOP, a frozen cgroup), or that sleeps in
a lock or a driver, does not wait in this sense.
"""

from __future__ import annotations

OWN = "/proc/self/schedstat"


def cpu_wait(path: str = OWN) -> float:
    """Seconds so far of the main thread of a process; 0 where the kernel does not count them, or
    where it is gone."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return int(file.read(100).split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def ready_since(pid: int) -> int | None:
    """What tells whether a process that is ready to run still waits for a CPU: nanoseconds that its
    main thread has been on one, which stand still meanwhile. None where it is not ready."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state = file.read(400).rpartition(")")[2].split()[0]
        with open(f"/proc/{pid}/schedstat", encoding="ascii", errors="replace") as file:
            return int(file.read(100).split()[0]) if state == "R" else None
    except (OSError, ValueError, IndexError):
        return None
