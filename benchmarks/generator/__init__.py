"""The load generator: roles that run in processes of their own, with prebuilt buffers and raw sockets."""
