"""The local machine: the home folder, log files, process identity, and the variables that a running stack sets.

Imports nothing of ours. Public: `folder.Home`.
"""
