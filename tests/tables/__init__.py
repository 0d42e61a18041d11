"""What a table does: lookups, first values, admission, eviction, rows on disk."""
