"""Base files and log files: their names, their bytes, and which rows are in which."""
