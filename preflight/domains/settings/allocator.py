"""What torch's caching allocator refuses in PYTORCH_CUDA_ALLOC_CONF, whatever the release.

Its grammar is `key:value,key:value`, blanks are skipped (c10/core/AllocatorConfig.h). A key that
only some releases know is not judged here, nor one that a later release may bring: host.software
asks the torch that is installed. Only a near miss of a key is sure to be none.
"""

from __future__ import annotations

import re

from preflight.domains.settings.variables import SLIPS_MOST, slips

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
DIVISIONS = "roundup_power2_divisions"
THREADS = "pinned_num_register_threads"
THREADS_MOST = 128
GARBAGE = "garbage_collection_threshold"
KEYS = (
    *SWITCHES,
    *SIZES,
    *(GARBAGE, DIVISIONS, THREADS, "backend", "large_segment_size_mb"),
    *("per_process_memory_fraction", "pinned_reserve_segment_size_mb", "pinned_free_catch_all"),
    *("release_lock_on_hipmalloc", "pinned_use_hip_host_register", "pinned_use_host_register"),
    *("expandable_segments_reserve", "expandable_segments_reserve_by_class"),
    "roundup_bypass_threshold_mb",
)
"""Every key that some release of torch knows, from 1.12 to the source of 2.14."""
BACKENDS = ("native", "cudaMallocAsync", "hipMallocAsync", "async")
FORM = "key:value,key:value"


def refused_because(value: str) -> str:
    """Why torch refuses this value at the start of CUDA or at import; empty where it takes it, or
    where that depends on the release."""
    text = re.sub(r"\s", "", value)
    # brackets hold commas and colons of their own
    options = filter(None, re.sub(r"\[[^\]]*\]", "", text).split(","))
    why = next(filter(None, map(_option_refused_because, options)), "")
    lists = re.findall(rf"(?:^|,){DIVISIONS}:\[([^\]]*)\]", text)
    return why or next(filter(None, map(_divisions_refused_because, lists)), "")


def _option_refused_because(option: str) -> str:
    key, colon, value = option.partition(":")
    if option[0] in "\"'":
        return "quotes are taken as part of the name"
    if not colon:
        name, sign, _ = option.partition("=")
        return f"'=' where ':' belongs, after {name}" if sign else f"{key} has no value"
    if key not in KEYS:
        near = (k for k in KEYS if k == f"{key}_mb" or slips(key, k) <= SLIPS_MOST)
        return "".join(f"{key} is not a key that torch knows; {k} is" for k in [*near][:1])
    if ":" in value:
        return f"{key} has {value!r}, where a comma belongs between two settings"
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
    number = re.match(r"[0-9]{1,18}", value)
    # without a value here there is one in brackets
    if key == DIVISIONS and value and not (number and _is_power_of_two(int(number[0]))):
        return f"{key} is {value!r}, and no power of 2"
    if (
        key == THREADS
        and number
        and not (_is_power_of_two(int(number[0])) and int(number[0]) <= THREADS_MOST)
    ):
        return f"{key} is {number[0]}, and no power of 2 up to {THREADS_MOST}"
    return ""


def _divisions_refused_because(listed: str) -> str:
    """`256:1,512:2,>:4`: sizes in MiB, each with its divisions, where 0 is none."""
    for pair in filter(None, listed.split(",")):
        size, _, divisions = pair.partition(":")
        for text, free in ((size, ">"), (divisions, "0")):
            number = re.match(r"[0-9]{1,18}", text)
            if text != free and number and not _is_power_of_two(int(number[0])):
                return f"{DIVISIONS} has {number[0]} in {pair}, and no power of 2"
    return ""


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _is_share(text: str) -> bool:
    number = re.match(r"[0-9]{1,9}(\.[0-9]{0,18})?|\.[0-9]{1,18}", text)
    return bool(number and 0 < float(number[0]) < 1)
