"""preflight: why a distributed PyTorch job would hang or crawl on this cluster."""

__version__ = "0.1.0"
