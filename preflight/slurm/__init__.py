"""What SLURM's daemons call: prolog, task prolog, health check, epilog; and the scripts for them.

Here a wrong answer costs a rack. A hook drains for what is surely this node's own fault and for
nothing else: never for a setting of the job, never because it could not look, never for a fault of
ours. Whoever calls it gets an answer within 8 seconds.
"""
