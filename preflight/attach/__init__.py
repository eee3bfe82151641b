"""`preflight attach`: looks at a job that already runs, from outside, through torch's worker
server, py-spy and NCCL's RAS service."""
