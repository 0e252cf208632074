"""A former name of `embedded.webserver`, which deployments start with `python -m`."""

import sys

from hudi_ingest.orchestration.embedded.webserver import main

if __name__ == "__main__":
    main(sys.argv[1:])
