"""The benchmark suite: mx_rec beside its peers, through its public API. `make bench`; docs/benchmarks.md explains."""
