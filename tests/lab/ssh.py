"""Real sshd on machines of the lab, and a caller that they let in without a question."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.host import ENVIRONMENT, Host, missing
from lab.running import Running

UP_SECONDS = 20.0
SSHD = "/usr/sbin/sshd"

SERVER = """HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
PidFile none
PrintMotd no
"""
CLIENT = """IdentityFile {folder}/user
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""


def keys(folder: Path) -> None:
    """The keys of all hosts and of the user, and how both sides are configured."""
    for name in ("host", "user"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(argv, env=ENVIRONMENT, check=True, timeout=20)
    (folder / "sshd_config").write_text(SERVER.format(folder=folder))
    (folder / "ssh_config").write_text(CLIENT.format(folder=folder))


def lets_in(host: Host, folder: Path) -> Running:
    """Start sshd there, and wait until it listens; end() lets nobody in any more."""
    host.sh("mkdir -p -m 755 /run/sshd")
    daemon = host.begin([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")])
    until = time.monotonic() + UP_SECONDS
    while not host.sh("ss -Hltn 'sport = :22'").strip():
        if daemon.over or time.monotonic() > until:
            raise RuntimeError(f"sshd did not come up: {daemon.ended()}")
        time.sleep(0.02)
    return daemon


def calls(host: Host, folder: Path) -> None:
    """Whoever calls from there does so as the user of these keys."""
    host.sh(f"cp {folder / 'ssh_config'} /etc/ssh/ssh_config")


@contextmanager
def closed(host: Host, daemon: Running, folder: Path) -> Iterator[None]:
    """Nobody is let in there for a while."""
    daemon.end()
    try:
        yield
    finally:
        lets_in(host, folder)


def lacking() -> str:
    """Why there can be none here; empty when there can."""
    return missing(SSHD, "ssh", "ssh-keygen", "ss")
