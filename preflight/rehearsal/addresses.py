"""Whether the job's store is where ranks wait for each other. Only in a worker."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from preflight.rehearsal.store_client import NOT_A_STORE, NoStore, read_keys

SECONDS = 2.0
"""For one address; a resolver may take as long again."""
MOST = 8


def unreached(words: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], str]:
    """(host, port) of calls of init_process_group -> why no store is reached there; those where one
    is are not in it, and those of which nothing is known in time."""
    places = {
        (host, port)
        for word in words
        if isinstance(host := word.get("host"), str)
        and type(port := word.get("port")) is int
        and host
        and 0 < port < 1 << 16
    }
    found: dict[tuple[str, int], str] = {}
    tries = [
        threading.Thread(target=_try, args=(place, found), daemon=True)
        for place in sorted(places)[:MOST]
    ]
    for one in tries:
        one.start()
    until = time.monotonic() + 2 * SECONDS
    for one in tries:
        one.join(max(0.0, until - time.monotonic()))
    return dict(found)


def _try(place: tuple[str, int], found: dict[tuple[str, int], str]) -> None:
    try:
        socket.create_connection(place, SECONDS).close()
        read_keys(place, (), SECONDS)
    except NoStore as why:
        # one that is slow or stopped is there
        if str(why) == NOT_A_STORE:
            found[place] = f"{why}: a proxy, or another program"
    except TimeoutError:
        found[place] = f"no answer within {SECONDS:g} s"
    except socket.gaierror:
        found[place] = "no such host name"
    except OSError as error:
        found[place] = os.strerror(error.errno) if error.errno else str(error)[:80]
    except (ValueError, UnicodeError):
        found[place] = "not a host name"
