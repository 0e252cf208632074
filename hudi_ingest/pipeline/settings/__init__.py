"""Settings files in general: YAML with places, references, secrets, and problems as sentences."""
