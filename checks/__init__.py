"""One file per check; the file name is the id: net_port.py is net.port."""
