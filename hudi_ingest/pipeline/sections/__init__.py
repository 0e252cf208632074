"""The sections of a pipeline file, a model for each."""
