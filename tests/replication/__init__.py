"""Groups that several nodes have: real stores on fake disks, in one thread, by seed."""
