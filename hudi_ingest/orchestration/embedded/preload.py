"""Imported only for its effect, once, by the server that runs are forked from: it rehearses a run.

multiprocessing takes a list of modules that its fork server imports before it forks, and offers no other way to have that process do
anything. So this module is the last of that list (`run_processes.IMPORTED_BY_RUNS`), and nothing else may import it.
"""

from hudi_ingest.orchestration.embedded.rehearsal import rehearse

rehearse()
