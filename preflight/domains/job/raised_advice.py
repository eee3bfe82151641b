"""What to do about an exception whose line only shows it: a file that another rank has not written
yet, a limit that something else has used up. Pure."""

from __future__ import annotations

import re

APPEARS_WHOLE = (
    "write it under another name and os.replace it, and let the other ranks read it after a barrier"
)
ADVICE = (
    (
        r"failed finding central directory|unexpected EOF, expected|invalid magic number|"
        r"MetadataIncompleteBuffer|HeaderTooLarge|InvalidHeaderDeserialization",
        f"the file is not whole: {APPEARS_WHOLE}",
    ),
    (
        r"Too many open files|received 0 items of ancdata",
        "clone what is kept of batches of DataLoader workers, each tensor of which holds a file "
        "open, or use torch.multiprocessing.set_sharing_strategy with file_system, or raise "
        "ulimit -n",
    ),
    (
        r"FileExistsError",
        "another rank may have made it, so use exist_ok=True, or let one rank make it and the "
        "others wait at a barrier",
    ),
    (r"Cannot re-initialize CUDA in forked subprocess", "start the process with the method spawn"),
    (
        r"found at least two devices",
        "call torch.cuda.set_device with LOCAL_RANK first, and use that device in each .to",
    ),
    (
        r"Attempting to deserialize object on (?:a )?CUDA device",
        "call torch.load with map_location=cpu, since the checkpoint names a GPU that is not here",
    ),
)
"""Of the first whose pattern is in the exception."""
PARTLY = (
    (
        r"FileNotFoundError|JSONDecodeError: Expecting value|EOFError: Ran out of input",
        f"if another rank makes that file, {APPEARS_WHOLE}, on a file system that all nodes share",
    ),
)
"""The same where only some ranks have raised it: the others have read that file."""


def what_to_fix(text: str, line: str, *, partly: bool) -> str:
    """The line of an exception `text`, with what is to be done there where that is known; `partly`:
    not all ranks have raised it."""
    known = (*ADVICE, *PARTLY) if partly else ADVICE
    advice = next((said for pattern, said in known if re.search(pattern, text)), "")
    return f"{line}: {advice}" if advice else line
