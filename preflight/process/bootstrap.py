"""The first that a fork server's interpreter runs, as a file: ours, or the job's, which may be any.

No module is taken from this folder, from the working directory (`-P` is Python 3.11's) or from what
is installed beside preflight, which is for another Python: only preflight itself comes from there.
Any Python 3 can read this file, so that `preflight` can say which one it needs.
"""

import sys


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    import os
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    beside = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    spec = PathFinder.find_spec("preflight", [beside])
    assert spec is not None
    assert spec.loader is not None
    sys.modules["preflight"] = package = module_from_spec(spec)
    spec.loader.exec_module(package)
    from preflight.process import worker

    worker.main()


if __name__ == "__main__":
    main()
