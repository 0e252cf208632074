#!/usr/bin/env bash
# engine-and-ops MEMORY [PORT]: the Spark engine, and the code server in whose child processes Dagster's ops run.
#
# Ops find the engine by a file in HUDI_INGEST_HOME, check its process id and talk to it on 127.0.0.1: both must share a
# filesystem, a pid namespace and a network namespace, which a single container provides. When either ends, so does
# the container, and Docker or Kubernetes restarts both.
set -u
# Job control: without it, background processes ignore SIGINT, and Dagster then ignores SIGTERM too.
set -m

# Dagster's code server has no login, so anyone who reaches it could start runs: on the volume that the webserver and the daemon
# share rather than on a port, unless something else lets only those two connect (engine.yaml's NetworkPolicy).
listen=(--socket /var/lib/dagster/code.sock)
[ $# -gt 1 ] && listen=(--host 0.0.0.0 --port "$2")

hudi-ingest engine --memory "$1" &
engine=$!
hudi-ingest code-server "${listen[@]}" &
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
