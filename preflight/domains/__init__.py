"""What checks share: how NCCL, torch and Gloo read their settings, how launchers number ranks, how
names, sockets, places and NVML are asked, and what ranks that work together tell of each other.

Knows the leaves (model, check, host, expect, inference …); nothing of who runs or judges a check.
"""
