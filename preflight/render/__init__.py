"""One file a format: a pure function from Report to text; none decides the exit code."""
