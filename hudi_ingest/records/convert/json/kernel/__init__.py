"""JSON records -> the buffers of Arrow columns, in one compiled pass over their bytes.

`records` has the pass. numba compiles it when it is imported: about 6 s the first time on a machine, 0.03 s from numba's
cache (`kept_code`), without numba itself. So only `json_fast` imports it, when there are enough records, and the process that
forks Spark's Python workers, when it is in the cache. The machine code is the same for every schema, because the schema is data:
the table of `nodes`. `columns` has the buffers; these two do without numba.

The code works on raw addresses. Why it stays inside the buffers:

- It may read up to 64 bytes past a record; `json_fast` copies the records at the end of a buffer that has no such margin.
  Each step starts before the record's end and reads less than 64 bytes past it. Bytes past the end cannot change the
  outcome: a record counts only if its last bracket and white space end exactly where the record ends.
- It writes a value only after it has checked that level's capacity, and a text only after it has checked for room for the
  rest of the record. If there is no room it stops; `json_fast` makes room and continues with that record.
"""
