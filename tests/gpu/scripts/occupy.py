"""Another program on a GPU: python occupy.py INDEX (take|leave) BYTES [busy]

Takes so many bytes of its memory, or all but so many; `busy` makes it compute all the while. It
says `ready` when that is so, and ends when its stdin does."""

import os
import sys
import threading

import torch

GIB, LEAST = 1 << 30, 2 << 20


def main() -> None:
    index, what, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    torch.cuda.set_device(index)
    square = torch.ones(4096, 4096, device="cuda")
    product = square @ square  # cuBLAS takes its share before the rest is taken
    torch.cuda.synchronize()
    left = torch.cuda.mem_get_info()[0] - count if what == "leave" else count
    kept = []
    while left >= LEAST:
        step = min(left, GIB) // LEAST * LEAST
        kept.append(torch.empty(step, dtype=torch.uint8, device="cuda"))
        left -= step
    print("ready", flush=True)
    while "busy" in sys.argv[4:]:
        for _ in range(50):
            torch.mm(square, square, out=product)
        torch.cuda.synchronize()
    threading.Event().wait()


main()
