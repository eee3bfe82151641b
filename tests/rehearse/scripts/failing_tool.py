"""No torch at all, and it fails."""

import sys

import planted

print("converting", flush=True)
planted.now()
sys.exit("cannot convert: no such table")
