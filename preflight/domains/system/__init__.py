"""The node's operating system: directories, file systems, containers, inventory."""
