#!/usr/bin/env bash
# engine-and-ops MEMORY: the Spark engine, and the code server in whose child processes Dagster's ops run.
#
# Ops find the engine by a file in HUDI_INGEST_HOME, check its process id and talk to it on 127.0.0.1: both must share a
# filesystem, a pid namespace and a network namespace, which a single container provides. When either ends, so does
# the container, and Docker restarts both.
set -u
# Job control: without it, background processes ignore SIGINT, and Dagster then ignores SIGTERM too.
set -m

hudi-ingest engine --memory "$1" &
engine=$!
# On the volume that the webserver and the daemon share rather than on a port: Dagster's code server has no login, so anyone
# who reaches it could start runs.
dagster code-server start --socket /var/lib/dagster/code.sock -m hudi_ingest.orchestration.definitions --location-name hudi_ingest &
code_server=$!

end() {
    kill -TERM "$engine" "$code_server" 2>/dev/null
}
trap end TERM INT

wait -n "$engine" "$code_server"
status=$?
end
wait
exit "$status"
