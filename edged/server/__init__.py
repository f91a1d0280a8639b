"""Everything that touches sockets: connections, accounts at run time, monitoring."""
