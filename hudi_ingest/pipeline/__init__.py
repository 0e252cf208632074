"""A pipeline file, checked: YAML to a `Pipeline`, with every problem at its place in the file. `engine` does the same for
engine.yaml.

Imports `records`, `home` and `exceptions`. Public: `file.load_pipeline` and `pipeline.Pipeline`, which `hudi_ingest`
exports too, and `folder`.
"""
