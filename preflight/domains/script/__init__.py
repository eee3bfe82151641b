"""A linter for distributed training scripts: reads the script as text and finds collectives that
only some ranks reach, and other known pitfalls. Serves job.script."""
