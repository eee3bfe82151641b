"""Watching the user's own command while it runs: what is put into its processes, what looks at them
from outside, and what is made of it. `hook`, `inside` and `recorder` run in the user's
interpreters."""
