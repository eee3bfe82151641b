"""The agents of a job meet over TCP: one coordinator, members, a protocol of JSON lines."""
