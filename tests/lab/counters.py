"""Stands in for a card's own counter, where a lab has virtual cards: one of so many packets of the
interface is counted as damaged.

    counters.py INTERFACE COUNTER PARTS
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    interface, counter, parts = sys.argv[1], sys.argv[2], int(sys.argv[3])
    folder = Path(f"/sys/class/net/{interface}/statistics")
    shown = Path(f".lab-{counter}").absolute()
    shown.write_text("7\n")
    subprocess.run(["mount", "--bind", str(shown), str(folder / counter)], check=True)
    print("ready", flush=True)
    while True:
        packets = int((folder / "rx_packets").read_text())
        shown.write_text(f"{7 + packets // parts}\n")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
