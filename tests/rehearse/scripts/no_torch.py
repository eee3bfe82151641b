"""A command that has nothing to do with torch; it says what it was given."""

import sys

print(len(sys.argv), sys.stdin.read(), flush=True)
print("a warning of its own", file=sys.stderr, flush=True)
