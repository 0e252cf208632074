"""The frozen records that cross the rooms: offsets, plans, checkpoints, transactions, reports.

Imports the standard library only. Public: all of it.
"""
