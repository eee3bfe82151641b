"""Commands and advice that several GPU checks give."""

from __future__ import annotations

from preflight.model import Command

KERNEL_LOG = Command("dmesg -T | grep -E 'NVRM|Xid'", "the node, as root")
AMD_KERNEL_LOG = Command("dmesg -T | grep amdgpu", "the node, as root")
REBOOT = Command("systemctl reboot", "the node", "ENDS ALL JOBS THERE")
RESET = Command("nvidia-smi --gpu-reset -i {index}", "the node", "all jobs on that GPU")

NODE_OUT = "take the node out of the job"
"""The way out where a GPU can't be repaired while the job runs."""
