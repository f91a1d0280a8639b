"""The workloads, one module per family. `registry` knows them all."""
