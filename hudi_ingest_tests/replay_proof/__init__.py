"""`make replay-proof`: a range is written anew under live load, twice, while somebody else reads the table all the time.

Orders are ingested by a converter that makes their amounts a hundred times too large. It is corrected, wrongly (a tenth), and
the range is replayed by the command line; then rightly, and replayed by the Dagster job as the UI launches it. Producer and
sensor go on meanwhile. `reader` is a program of its own that shares no code with the writer, `judge` says what its polls may
have seen, and that live transactions had their turns.
"""
