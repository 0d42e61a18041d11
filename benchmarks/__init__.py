"""Named end-to-end scenarios, through the public API only. Run all: `make bench`."""
