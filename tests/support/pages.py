"""HTML reports as a browser has them: Debian's Chromium, driven by playwright."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import axe_core_python
import pytest

from preflight.render.html import embedded

AXE = Path(axe_core_python.__file__).parent / "axe.min.js"
LONG_TASKS = """
window.tasks = [];
new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((e) => e.duration)))
    .observe({type: "longtask", buffered: true});
"""


def bare(page: str) -> str:
    """A page without what a golden need not show: style, script, the packed report, which another
    zlib packs in another way."""
    page = re.sub(r"(<style>).*?(</style>)", r"\1\2", page, flags=re.DOTALL)
    page = re.sub(r"sha256-[A-Za-z0-9+/=]+", "sha256-", page)
    page = embedded.BLOCK.sub("", page)
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window. A test that can't have it says so."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium: make debian")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # a container has no user namespaces to make a sandbox of; the pages are ours
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()
