"""preflight: why a distributed PyTorch job would hang or crawl on this cluster."""

import sys

if sys.version_info < (3, 10):  # any Python can read this file, but no other
    sys.stderr.write(
        "preflight: Python 3.10 or later is needed, %s is %s\n"
        % (sys.executable, sys.version.split()[0])
    )
    sys.exit(2)

__version__ = "0.1.0"
