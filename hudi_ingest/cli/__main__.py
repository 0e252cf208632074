"""`python -m hudi_ingest.cli`."""

from hudi_ingest.cli import main

main()
