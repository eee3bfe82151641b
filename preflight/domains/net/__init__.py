"""The network of a job: names, interfaces, ports, TCP and RDMA; what is measured between nodes, and
which node or link that points at."""
