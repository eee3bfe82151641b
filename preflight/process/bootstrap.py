"""The first that a fork server's interpreter runs, as a file: ours, or the job's, which may be any.

No module is taken from this folder, from the working directory (`-P` is Python 3.11's) or from what
is installed beside preflight, which is for another Python: only preflight itself comes from there.
Any Python 3 can read this file, so that `preflight` can say which one it needs.
"""

import os
import sys

SITE = ("sitecustomize", "usercustomize")
SITES = ("site-packages", "dist-packages")
KEEP = "PREFLIGHT_SITECUSTOMIZE"
"""`keep`: for a site whose own one is what makes torch work."""


def injected(python_path: str) -> bool:
    """Whether a folder of PYTHONPATH has code that runs in every Python: ddtrace and New Relic get
    into all that a pod starts in this way, wrap fork and subprocess, and start threads. It may be
    in an archive, compiled, or come by a .pth file, and older releases of OpenTelemetry's take
    their folder out of PYTHONPATH as they start, but not out of sys.path."""
    if os.environ.get(KEEP) == "keep":
        return False
    from _frozen_importlib_external import PathFinder

    own = {os.path.dirname(os.__file__)}
    folders = [
        folder
        for folder in dict.fromkeys((*python_path.split(os.pathsep), *sys.path))
        # a distribution's or an image's own one, as Debian's for crash reports, is left
        if folder and folder not in own and os.path.basename(folder) not in SITES
    ]
    return any(PathFinder.find_spec(name, folders) is not None for name in SITE)


def start_site(paths: str) -> None:
    """What Python has left out for -S, but for SITE, with the folders that those have added."""
    for name in SITE:
        sys.modules[name] = type(sys)(name)
    import site

    site.main()
    for name in SITE:
        del sys.modules[name]
    sys.path += [path for path in paths.split(os.pathsep) if path not in sys.path]


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    if sys.flags.no_site and len(sys.argv) > 7:
        start_site(sys.argv[7])
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
