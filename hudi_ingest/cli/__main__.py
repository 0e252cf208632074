"""`python -m hudi_ingest.cli`."""

from hudi_ingest.cli.app import main

main()
