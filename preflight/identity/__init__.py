"""Who this process is in the job: launcher, ranks, nodes and addresses, each with its source."""
