"""How ranks find each other: attempts to connect, arrivals, and who is absent and why."""
