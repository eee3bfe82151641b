"""One agent's run: which checks, in which order, observed by which worker."""
