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
