"""Warnings of torch and Lightning that mean that a job trains wrongly or slowly: they come once, in
the midst of what all ranks print. Loaded from its text beside preflight_responder.py into the
user's Python, any from 3.8 on: the standard library only.
"""

import functools
import sys

TEXT = 300
KNOWN = (
    ("that is different to the input size", "loss-broadcast"),
    ("an autograd kernel was not registered to the Autograd key", "gradient-not-passed"),
    ("(when accessing len(dataloader)), but", "dataset-repeated"),
    ("when logging on epoch level in distributed setting", "metric-unsynced"),
    ("Forward order differs across ranks", "forward-order"),
    ("autocast, but the target dtype is not supported", "precision-off"),
    ("is not compatible with the current PyTorch installation", "gpu-unsupported"),
    ("CUDA initialization:", "cuda-unusable"),
)
"""A part of the warning's text, and what it is called here."""


class Warned:
    """What is known in this process. There is one."""

    found = {}  # what it is called -> [that, text, the user's line, times]


def begin():
    """A child by fork has said nothing yet."""
    Warned.found = {}


def follow(place):
    """From now on, of each warning that the program's filters let through. `place`: the user's line
    that is being carried out."""
    warnings = sys.modules.get("warnings")
    show = getattr(warnings, "_showwarnmsg", None)
    if show is None:
        return

    @functools.wraps(show)
    def _showwarnmsg(message, *args, **kwargs):
        try:
            note(str(message.message), place)
        except Exception:
            pass
        return show(message, *args, **kwargs)

    warnings._showwarnmsg = _showwarnmsg


def note(text, place):
    called = next((name for part, name in KNOWN if part in text), "")
    if called in Warned.found:
        Warned.found[called][3] += 1
    elif called:
        Warned.found[called] = [called, text[:TEXT], place(), 1]


def told():
    """All of them, for the record."""
    return list(Warned.found.values())
