"""The settings of NCCL, torch and Gloo: which names are known, how their values are parsed, and
what the environment and the nccl.conf files of a machine set."""
