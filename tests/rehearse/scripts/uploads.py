"""Rank 0 uploads its checkpoint to a slow store; the others are at the barrier. `thread`: by a
thread of a library's, for which it waits."""

import socket
import sys
import threading

import elsewhere
import torch
import torch.distributed as dist


def upload(data: bytes, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 0:
        args = (bytes(9 << 20), elsewhere.serve("takes", 0.1))
        if sys.argv[1] == "thread":
            work = threading.Thread(target=upload, args=args)
            work.start()
            work.join()
        else:
            upload(*args)
    dist.barrier()
    dist.destroy_process_group()
