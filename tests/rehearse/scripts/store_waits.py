"""Ranks wait for keys of the job's store: `prefix` rank 0 has set it under another prefix and is at
the barrier, `counts` rank 0 waits for one rank more than there are (as in pytorch#53840), `unset`
nobody sets it. Healthy: rank 0 `downloads` or `computes` first, or the wait is `limited`."""

import datetime
import hashlib
import socket
import sys
import time

import elsewhere
import planted
import torch
import torch.distributed as dist


def download() -> None:
    with socket.create_connection(("127.0.0.1", elsewhere.serve("gives", 0.25))) as sock:
        while sock.recv(1 << 16):
            pass


def compute() -> None:
    until = time.monotonic() + 12
    while time.monotonic() < until:
        hashlib.sha256(bytes(1 << 20)).digest()


def main() -> None:
    how = sys.argv[1]
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    rank, world = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(torch.ones(4))
    if how == "prefix":
        planted.now()
        if rank == 0:
            dist.PrefixStore("data", store).set("ready", "1")
        else:
            dist.PrefixStore("cache", store).wait(["ready"])  # <- here
    elif how == "counts":
        store.set(f"done/{rank}", "1")
        if rank == 0:
            planted.now()
            store.wait([f"done/{n}" for n in range(world + 1)])  # <- here
    elif how == "unset":
        planted.now()
        store.get("run/name")  # <- here
    elif how == "limited":
        try:
            store.wait(["resume/step"], datetime.timedelta(seconds=12))
        except (RuntimeError, dist.DistStoreError):
            print("starts from the beginning")
    elif rank == 0:
        (download if how == "downloads" else compute)()
        store.set("ready", "1")
    else:
        store.wait(["ready"])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
