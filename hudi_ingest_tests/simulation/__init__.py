"""The protocol's own code over models of all that it uses, in schedules drawn from a seed. `make simulate`."""
