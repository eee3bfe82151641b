"""Collectives: process groups, all-reduce, bus bandwidth, NCCL's log, and who stalls."""
