"""`python -m hudi_ingest.cli`."""

from hudi_ingest.cli.main import main

main()
