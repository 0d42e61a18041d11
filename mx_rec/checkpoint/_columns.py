"""The columns of a table on disk, as native/checkpoint/layout.h names them; all others are slots of its optimizer."""

# What there must be of a row; with the keys that lost theirs, in a delta.
ROWS = ("key", "embedding", "deleted")
# One int64 for each row, in the order of `key`, and the largest that is possible (native/table/history.h). Readers,
# merging, verification and tools walk this list.
NUMBERS = {"last_step": 2**32 - 1}
# What a table says as a whole, each in a form of its own.
OTHERS = ("table_2_threshold", "history_record", "admission_filter")
ALL = (*ROWS, *NUMBERS, *OTHERS)
# Written by the original, if RECORD_KEY_COUNT=1, and read by nobody.
ORIGINAL_ONLY = ("key_count_map",)
