"""Bad records that are kept: files of them beside the table's timeline, and the list that says which of them count.

Each write task keeps its bad records in a file of its own. A commit with bad records writes a manifest first, which lists
its files and names the manifest before it, and its checkpoint names that manifest. So a dead letter is there exactly if the
newest checkpoint leads to it, and it appears and goes in the same step as the commit's rows; see decision 10.
"""
