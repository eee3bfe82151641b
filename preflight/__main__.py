"""`python -m preflight` equals `preflight`."""

from preflight.cli import main

main()
