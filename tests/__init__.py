"""Tests of what spans several modules or processes; those of one module lie beside it."""
