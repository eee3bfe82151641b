"""Files that are copied into the folder of a rehearsal and loaded by the user's Python, any from
3.8 on. Nothing of preflight imports them."""
