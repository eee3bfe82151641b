"""By what call the main thread waits for a GPU: native code has no frame, so that its caller's code
has to tell. Loaded from its text beside preflight_responder.py into the user's Python, any from 3.8
on: the standard library only.
"""

import dis
import os
import sys
import time

CODES = 64
"""Functions of which is kept what they call."""
CALLS = {
    "CALL": (2, 0),
    "PRECALL": (2, 0),
    "CALL_KW": (2, 1),
    "CALL_METHOD": (2, 0),
    "CALL_FUNCTION": (1, 0),
    "CALL_FUNCTION_KW": (1, 1),
}
"""Instructions that call, and how much lies below the arguments and above them: what is called, and
the names of some of them. Python 3.11 may do all of it in the first of two, PRECALL."""
COPYING = (".to", ".cuda")
"""Methods of a tensor that may copy it to a GPU, which waits for all that this GPU still has to
do. Whatever their arguments are: pageable memory waits with non_blocking=True, too."""
CONVERTING = ("float", "int", "bool")
TESTING = ("TO_BOOL", "UNARY_NOT", "POP_JUMP_IF", "POP_JUMP_FORWARD_IF", "JUMP_IF")
"""How instructions begin that ask whether something is true."""
TEST = "test"
AGAIN, MOMENT = 2, 0.001
"""How often, and after how many seconds, it is looked whether a thread still stands there: one that
goes round in Python code would come by again, or waits for a CPU."""
SILENT = ("CACHE", "NOP", "EXTENDED_ARG", "RESUME")


class Known:
    """Of this process. There is one."""

    code = {}  # code -> offset -> what may wait there


def method_called(frame, thread):
    """`item` where the innermost function is at `loss.item()`; `float` where it converts what makes
    it wait, which is a tensor, and `test` where it asks whether that is true. `thread`: its number,
    as the kernel has it."""
    if frame is None:
        return ""
    if frame.f_code not in Known.code:
        if len(Known.code) >= CODES:
            Known.code.clear()
        Known.code[frame.f_code] = dict(waits_in(frame.f_code))
    at = frame.f_lasti
    called = Known.code[frame.f_code].get(at, "")
    if called not in CONVERTING and called != TEST:
        return called
    for _ in range(AGAIN):
        if waits_for_us(thread) or frame.f_lasti != at:
            return ""
        time.sleep(MOMENT)
    return "" if waits_for_us(thread) or frame.f_lasti != at else called


def waits_for_us(thread):
    """Whether a thread may be in the middle of Python code, which goes on when the thread that asks
    gives the interpreter back: until then it sleeps on a futex. What is in native code does not. To
    open a file as Python does would give the interpreter back."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is None:
        return True
    library = ctypes.PyDLL(None)
    state = read_held(ctypes, library, b"/proc/self/task/%d/stat" % thread)
    where = read_held(ctypes, library, b"/proc/self/task/%d/wchan" % thread)
    state = state.rpartition(b")")[2].strip()[:1]
    return state != b"R" and (state == b"" or where in (b"", b"0") or where.startswith(b"futex"))


def read_held(ctypes, library, path):
    """The beginning of a file of the kernel's, read without letting another thread run."""
    text = ctypes.create_string_buffer(512)
    file = library.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if file < 0:
        return b""
    library.read(file, text, len(text) - 1)
    library.close(file)
    return text.value


def waits_in(code):
    """Where methods are called without arguments, or tensors are copied, and where there is what
    waits for nothing but a tensor: (offset, name). From Python 3.11 on a call has a cache behind
    it, and a frame may stand at the end of that."""
    held, found, since = [], "", 0
    for one in dis.get_instructions(code):
        if one.opname in SILENT:
            continue
        if found:
            yield from ((offset, found) for offset in range(since, one.offset, 2))
        found, since = may_wait(one, held), one.offset
        settle(one, held)


def may_wait(one, held):
    """What this instruction may wait by; `held`: by what names the values on the stack came."""
    if one.opname.startswith(TESTING):
        return TEST
    if one.opname == "COMPARE_OP" and one.argrepr.startswith("bool("):  # from Python 3.13 on
        return TEST
    if one.opname not in CALLS:
        return ""
    (below, above), given = CALLS[one.opname], one.arg or 0
    depth = below + given + above
    if len(held) < depth:
        return ""
    called = held[len(held) - depth :][:below]
    copied = [name[1:] for name in called if name in COPYING]
    if copied or given > 1 or above:
        return copied[0] if copied else ""
    if given:
        return next((name for name in called if name in CONVERTING), "")
    return next((name[1:] for name in called if name[:1] == "."), "")


def settle(one, held):
    """What is on the stack after an instruction."""
    name, effect = one.opname, effect_of(one)
    if effect is None:
        return
    if name in ("LOAD_METHOD", "LOAD_ATTR"):
        del held[-1:]
        held += ["." + str(one.argval)] * (effect + 1)
    elif effect > 0:
        held += [str(one.argval) if name in ("LOAD_GLOBAL", "LOAD_NAME") else ""] * effect
    else:
        del held[max(0, len(held) + effect - 1) :]
        held.append("")


def effect_of(one):
    """By how much the stack grows; None where what follows does it."""
    if one.opname == "PRECALL":
        return None
    if one.opname == "CALL":  # with what 3.11 says of PRECALL
        return -1 - one.arg
    argument = one.arg if one.opcode >= dis.HAVE_ARGUMENT else None
    try:
        return dis.stack_effect(one.opcode, argument, jump=False)
    except ValueError:  # one that is there only while it runs
        return 0
