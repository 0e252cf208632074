"""This machine: the home folder, log files, which process a pid means, and the variables that a running stack sets.

Imports nothing of ours. Public: `folder.Home`.
"""
