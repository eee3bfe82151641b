"""Helpers of the tests, and stand-ins for what this machine lacks."""
