"""All ranks are in the same all-reduce, and what reaches rank 1 is dropped, as by a firewall."""

import ctypes
import os
import socket

import planted
import torch
import torch.distributed as dist

SO_ATTACH_FILTER = 26
DROP_ALL = (ctypes.c_uint64 * 1)(0x06)  # one BPF instruction: ret 0


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def cut_off() -> None:
    """The store's connections too, which are as dead as the rest."""
    program = Program(1, ctypes.addressof(DROP_ALL))
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            end = socket.socket(fileno=os.dup(number))
            if end.family in (socket.AF_INET, socket.AF_INET6):
                end.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(program))
        except OSError:
            continue


dist.init_process_group("gloo")
for step in range(200):
    if dist.get_rank() == 1 and step == 20:
        planted.now()
        cut_off()
    dist.all_reduce(torch.ones(64))  # <- here
dist.destroy_process_group()
