"""The command line: flags, commands, and the exit code of each. Nothing imports this package."""
