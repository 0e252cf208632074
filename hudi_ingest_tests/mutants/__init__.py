"""Small faults put into the product on purpose, each of which a fast test or the simulation must find: `make mutants`."""
