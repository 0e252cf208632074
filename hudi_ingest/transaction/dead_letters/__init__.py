"""Bad records that are kept: their files beside the table's timeline, and the list that says which of them count.

Each write task keeps its bad records in its own file. A commit with bad records first writes a manifest that lists its
files and names the previous manifest, and its checkpoint names that manifest. So a dead letter exists exactly if the
newest checkpoint leads to it, and it appears and disappears in the same step as the commit's rows; see decision 10.
"""
