"""Settings from flags, environment and preflight.toml, each with where it came from."""
