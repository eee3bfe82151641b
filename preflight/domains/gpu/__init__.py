"""GPUs of NVIDIA and AMD: health, links, copies and compute, and the libraries behind them."""
