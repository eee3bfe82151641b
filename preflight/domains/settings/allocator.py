"""What torch's caching allocator refuses in PYTORCH_CUDA_ALLOC_CONF, whatever the release.

Its grammar is `key:value,key:value`, blanks are skipped (c10/core/AllocatorConfig.h). A key that
only some releases know is not judged here: host.software asks the torch that is installed.
"""

from __future__ import annotations

import re

SWITCHES = frozenset(
    (
        "expandable_segments",
        "release_lock_on_cudamalloc",
        "pinned_use_cuda_host_register",
        "pinned_use_background_threads",
        "graph_capture_record_stream_reuse",
        "throw_on_cudamalloc_oom",
    )
)
SIZES = ("max_split_size_mb", "max_non_split_rounding_mb")
SMALLEST_SIZE = 20
"""MiB; the allocator's own large blocks are no smaller."""
BACKENDS = ("native", "cudaMallocAsync", "hipMallocAsync", "async")
GARBAGE = "garbage_collection_threshold"
FORM = "key:value,key:value"


def refused_because(value: str) -> str:
    """Why torch refuses this value at the start of CUDA or at import; empty where it takes it, or
    where that depends on the release."""
    # the brackets of roundup_power2_divisions hold commas and colons of their own
    text = re.sub(r"\[[^\]]*\]", "", re.sub(r"\s", "", value))
    options = filter(None, text.split(","))
    return next(filter(None, map(_option_refused_because, options)), "")


def _option_refused_because(option: str) -> str:
    key, colon, value = option.partition(":")
    if option[0] in "\"'":
        return "quotes are taken as part of the name"
    if not colon:
        name, sign, _ = option.partition("=")
        return f"'=' where ':' belongs, after {name}" if sign else f"{key} has no value"
    if key in SWITCHES and value not in ("True", "False"):
        return f"{key} is {value!r}, and only True and False are known"
    if key in SIZES:
        number = re.match(r"[0-9]{1,18}", value)
        if not number:
            return f"{key} is not a number of MiB: {value!r}"
        if int(number[0]) < SMALLEST_SIZE:
            return f"{key} is {number[0]}, and {SMALLEST_SIZE} is the smallest"
    if key == "backend" and value not in BACKENDS:
        return f"backend is {value!r}, and only native and cudaMallocAsync are known"
    if key == GARBAGE and not _is_share(value):
        return f"{key} is {value!r}, and belongs between 0 and 1"
    return ""


def _is_share(text: str) -> bool:
    number = re.match(r"[0-9]{1,9}(\.[0-9]{0,18})?|\.[0-9]{1,18}", text)
    return bool(number and 0 < float(number[0]) < 1)
