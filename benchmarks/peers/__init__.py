"""The peers: one module each, started as a worker in the peer's own environment. They import nothing else of ours."""
