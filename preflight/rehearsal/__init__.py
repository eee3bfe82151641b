"""`preflight rehearse`: runs the user's command, samples its ranks while it runs, and records what
each of them did. The files of injected/ run in the user's own interpreters."""
