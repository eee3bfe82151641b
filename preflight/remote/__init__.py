"""One run from one place: agents are started by srun or ssh, their reports collected and merged.

launch.py starts and waits, launch_worker.py speaks with srun and ssh, agent.py is what they start,
protocol.py the lines between them, collect.py the one report of all.
"""
