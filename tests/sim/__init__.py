"""A simulator of the hub's consensus core: whole clusters in one process, all chance by one seed."""
