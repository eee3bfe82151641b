"""Who divides the samples of a DataLoader among the ranks: its samplers, wrappers around them, and
the dataset itself, which may be a rank's own part already. Two of them one after the other leave
most of the samples out.

Of a dataset only what lies at hand is read: indices, file names, where a tensor begins in its
storage. No sample is made, and no random number is drawn; an error here is swallowed. Loaded from
its text beside preflight_responder.py into the user's Python, any from 3.8 on: the standard library
only.
"""

import heapq
import itertools
import os
import struct
import sys
import zlib

LOADERS, DEPTH, LAYERS = 16, 12, 6
"""Loops over a DataLoader that are kept; objects that are looked at of one; what is known of a
dataset and of those inside."""
MARKS, READ, NUMBERS = 32, 1 << 16, 1 << 21
"""Samples that are kept of a dataset, the same ones of equal datasets; how many it may have, and
of indices alone, which torch goes through."""
TEXT = 60


def look(iterator, place, steps):
    """What is kept of a pass that begins, `steps` having been made; None: nobody divides its
    samples."""
    sharers = sharers_of(iterator)
    if not sharers:
        return None
    layers = list(itertools.islice(layers_of(iterator._dataset), LAYERS))
    frame = place()
    return {"frame": frame, "steps": steps, "trains": False, "sharers": sharers, "layers": layers}


# --- who divides ---


def sharers_of(iterator):
    """Class, number of parts and which of them, from the outside to the inside."""
    sampler = sys.modules["torch.utils.data.sampler"].Sampler
    found, seen = [], []
    rest = [getattr(iterator, "_index_sampler", None), getattr(iterator, "_dataset", None)]
    while rest and len(seen) < DEPTH:
        one = rest.pop(0)
        if one is None or any(one is other for other in seen):
            continue
        seen.append(one)
        parts = parts_of(one, sampler)
        if parts is not None and parts[0] > 1:
            found.append([type(one).__name__[:TEXT], *parts])
        known = vars_of(one)
        rest += [known.get(n) for n in ("batch_sampler", "sampler", "_sampler", "dataset")]
    return found


def parts_of(one, sampler):
    """Of torch's samplers and their like, of Accelerate's and transformers' wrappers, of a stream
    of Hugging Face's datasets."""
    known = vars_of(one)
    pair = None
    if type(one).__name__ in ("BatchSamplerShard", "IterableDatasetShard"):
        pair = known.get("num_processes"), known.get("process_index")
    elif isinstance(one, sampler):
        pair = known.get("num_replicas"), known.get("rank")
    elif known.get("_distributed") is not None:
        divided = known["_distributed"]
        pair = getattr(divided, "world_size", None), getattr(divided, "rank", None)
    whole = pair is not None and all(isinstance(number, int) for number in pair)
    return [int(number) for number in pair] if whole else None


# --- whose samples they are ---


def layers_of(dataset, depth=4):
    """What tells whether ranks have the same dataset: of itself, then of those that it holds."""
    torch = sys.modules["torch"]
    known = vars_of(dataset)
    kind = type(dataset).__name__[:TEXT]
    if isinstance(dataset, (list, tuple, range)):
        yield from known_only(kind, len(dataset), 0, dataset)
    elif "_fingerprint" in known and "_data" in known:
        yield from table(dataset, kind)
    elif "indices" in known and "dataset" in known:
        indices = known["indices"]
        yield from known_only(kind, len(indices), len(known["dataset"]), indices)
    else:
        length = length_of(dataset)
        values = [*known.get("tensors", ())[:1], *known.values()]
        for value in values:
            if isinstance(value, torch.Tensor):
                yield from view(torch, kind, length, value)
            elif is_named(value) and length in (len(value), None):
                yield from known_only(kind, len(value), 0, value)
    if depth:
        for value in list(known.values()):
            if isinstance(value, torch.utils.data.Dataset) or "_fingerprint" in vars_of(value):
                yield from layers_of(value, depth - 1)


def vars_of(one):
    return getattr(one, "__dict__", {})


def length_of(dataset):
    """None of a stream; one that wraps it may have a method for that all the same."""
    try:
        return len(dataset)
    except TypeError:
        return None


def layer(kind, length, of, marks=(), first=0, last=0, step=0, order=0):
    return {
        "kind": kind,
        "length": length,
        "of": of,
        "marks": list(marks),
        "span": [first, last, step],
        "order": order,
    }


def known_only(kind, length, of, values):
    """Of a range where it begins and ends; of indices and names a few, the same of equal ones."""
    if isinstance(values, range) and values:
        low, high = sorted((values[0], values[-1]))
        yield layer(kind, length, of, (), low, high, abs(values.step))
        return
    if hasattr(values, "tolist"):
        values = values.tolist() if length <= NUMBERS else ()
    if READ < length <= NUMBERS and len(values) == length and type(values[0]) is int:
        yield from many(kind, length, of, values)
    if not 0 < length <= READ or len(values) != length:
        return
    names = [name_of(value) for value in values]
    if None not in names:
        marks = [mark_of(name) for name in names]
        order = zlib.crc32(struct.pack("%dI" % length, *marks))
        yield layer(kind, length, of, heapq.nsmallest(MARKS, set(marks)), order=order)


def many(kind, length, of, values):
    """The same of many indices, in C."""
    torch = sys.modules["torch"]
    modes = getattr(torch.utils._python_dispatch, "_disable_current_modes", torch.no_grad)
    with torch._C.DisableTorchFunction(), torch.no_grad(), modes():
        numbers = torch.tensor(values, dtype=torch.int64, device="cpu")
        marks = numbers.mul(2654435761).remainder(1 << 32)
        least = marks.topk(min(2 * MARKS, length), largest=False).values.tolist()
        order = int(marks.mul(torch.arange(length).mul(2654435761).add(1)).sum()) % (1 << 32)
    yield layer(kind, length, of, sorted(set(least))[:MARKS], order=order)


def is_named(values):
    """Whether it is a range or a list of names: numbers of a program's own may be anything."""
    if isinstance(values, range):
        return True
    return (
        isinstance(values, (list, tuple)) and bool(values) and isinstance(name_of(values[0]), str)
    )


def name_of(value):
    """What a sample is called: its number, or the name of its file, wherever a rank has that."""
    for _ in range(3):
        if isinstance(value, dict):
            value = next((v for v in value.values() if isinstance(v, str)), None)
        elif isinstance(value, (list, tuple)):
            value = value[0] if value else None
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return value.rpartition("/")[2]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def mark_of(name):
    if isinstance(name, str):
        return zlib.crc32(name.encode("utf-8", "replace"))
    return name * 2654435761 % (1 << 32)  # spreads neighbours over all numbers


def view(torch, kind, length, tensor):
    """Of rows of a larger tensor which ones they are."""
    if not tensor.dim() or tensor.shape[0] != length or length == 1 or tensor.is_meta:
        return
    if tensor.layout is not torch.strided:
        return
    whole = tensor.untyped_storage().nbytes() // tensor.element_size()
    first, step = tensor.storage_offset(), tensor.stride(0)
    if whole >= 2 * tensor.numel() and step:
        yield layer(kind, length, whole, (), first, first + (length - 1) * step, step)


def table(dataset, kind):
    """A table of Hugging Face's: a fingerprint of what was made of it, and how long the whole split
    was; equal parts of it have other fingerprints."""
    splits = getattr(getattr(dataset, "info", None), "splits", None) or {}
    name = str(getattr(dataset, "split", "")).partition("[")[0]
    whole = getattr(splits.get(name), "num_examples", 0) if hasattr(splits, "get") else 0
    if isinstance(whole, int) and whole > len(dataset):
        marks = [zlib.crc32(str(dataset._fingerprint).encode())]
        yield layer("table", len(dataset), whole, marks)
    rows = getattr(dataset, "_indices", None)
    if rows is not None and len(dataset) <= NUMBERS:  # what shuffle(), select() and the like leave
        yield from known_only(kind, len(dataset), len(dataset._data), rows.column(0).to_pylist())
