"""The trial of many topics: 100 pipelines made by REST, watched by Prometheus, and one topic broken in five ways.

Each breakage has to be found from the metrics' alerts, mended by what the messages say, and at the end no record may be missing
or in a table twice. `make many-topics`; needs `prometheus` on the PATH.
"""
