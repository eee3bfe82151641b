"""Random numbers that the program draws between a batch of its DataLoader and the forward of DDP or
FSDP, such as noise or the timesteps of a diffusion: how many, and a number that is equal where the
generators of torch are in the same state. Before the steps at which the models are compared.

What a forward draws is not looked at, since dropout does so, nor what makes the batch. Nothing is
drawn or changed, and an error here is swallowed. Loaded from its text beside
preflight_responder.py into the user's Python, any from 3.8 on: the standard library only.
"""

import struct
import sys
import zlib

LOOKS = 48
WORDS = 624
"""Numbers that the CPU's generator makes at a time."""


class Draws:
    """What is known in this process. There is one.

    before  states of the generators when the latest batch came, in a step that is looked at
    looks   of each: steps before it; what stands for the state on the CPU, and how many numbers it
            has given at least; the same of the GPU, by how much its counter went on
    """

    phases = {}  # what is in preflight_phases.py
    before, looks = None, []


def begin():
    """A child by fork has drawn nothing yet."""
    Draws.before, Draws.looks = None, []


def follow(phases):
    Draws.phases = phases


def batch():
    """A batch has come."""
    Draws.before = None
    if Draws.phases["Phases"].is_due and len(Draws.looks) < LOOKS:
        Draws.before = states()


def forwards():
    """A forward that may have a backward is about to begin, in a step that is looked at."""
    before, Draws.before = Draws.before, None
    if before is None:
        return
    try:
        cpu, gpu = states()
        phases = Draws.phases["Phases"]
        look = [phases.steps - phases.since, stands_for(cpu), given(before[0], cpu), None, 0]
        if gpu is not None and before[1] is not None and gpu[0] == before[1][0]:
            look[3:] = stands_for(gpu), max(0, gpu[1] - before[1][1])
        Draws.looks.append(look)
    except Exception:
        pass


def states():
    """Those of the generators that functions use which are given none: of the CPU 632 numbers, of
    the current GPU its seed and its counter."""
    torch = sys.modules["torch"]
    modes = getattr(torch.utils._python_dispatch, "_disable_current_modes", torch.no_grad)
    with torch._C.DisableTorchFunction(), torch.no_grad(), modes():
        cpu = torch.default_generator.get_state().view(torch.int64).tolist()
        gpu = None
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            number = torch.cuda.current_device()
            gpu = torch.cuda.default_generators[number].get_state().view(torch.int64).tolist()
    return cpu, gpu


def stands_for(state):
    return zlib.crc32(struct.pack("%dq" % len(state), *state))


def given(before, now):
    """How many numbers the CPU's generator has given from one state to another, at least: it counts
    down what is left of those that it has made, in the lower half of the second word."""
    left, then = now[1] & 0xFFFFFFFF, before[1] & 0xFFFFFFFF
    if before[3 : 3 + WORDS] == now[3 : 3 + WORDS]:
        return max(0, then - left)
    return max(0, then - 1) + max(0, WORDS + 1 - left)


def told():
    """All that is known, for the record."""
    return list(Draws.looks)
