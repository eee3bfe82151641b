"""Rank 0 logs in to a service that tracks experiments before it joins, and that says nothing
(s-JoL/Open-Llama#47); with `healthy` it does not wait for ever."""

import os
import socket
import sys
import urllib.request

import planted
import torch
import torch.distributed as dist


def main() -> None:
    if os.environ["RANK"] == "0":
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}/login"
            if "healthy" in sys.argv:
                try:
                    urllib.request.urlopen(url, timeout=3.0)
                except OSError as error:
                    print("offline:", error)
            else:
                planted.now()
                urllib.request.urlopen(url).read()  # <- here
    dist.init_process_group("gloo")
    for _ in range(20):
        dist.all_reduce(torch.ones(1000))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
