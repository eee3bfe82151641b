"""Where reports go: the terminal, files (by workers: a file system may be dead), exit codes."""
