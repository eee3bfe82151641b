"""As sitecustomize.py: reading torch takes 21 s, as from a file system that is far and busy."""

import sys
import time


class Slow:
    """Found before all others, it finds nothing, slowly."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch":
            time.sleep(21)


sys.meta_path.insert(0, Slow)
