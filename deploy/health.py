#!/usr/bin/env python3
"""Whether a process of Dagster's answers, for health checks: exit code 0 if it does.

    health code-server /var/lib/dagster/code.sock    or HOST:PORT
    health daemon                                    by its heartbeats in PostgreSQL

As Dagster's `grpc-health-check` and `liveness-check`, which take 1.3 and 2.1 s of CPU, because they import Dagster; this takes a tenth.
"""

from __future__ import annotations

import os
import sys

SECONDS = 10
TOLERANCE_SECONDS = 1800
"""Dagster's own: a daemon's heartbeat waits for what it is doing."""
DAEMONS = ["SENSOR", "BACKFILL", "SCHEDULER", "QUEUED_RUN_COORDINATOR", "MONITORING"]
"""Those that the instance in dagster.yaml needs; the daemon that looks after automation conditions has no work here."""
HEARTBEATS = """
    SELECT count(*) FROM daemon_heartbeats
    WHERE daemon_type = ANY(%s) AND timestamp > now() AT TIME ZONE 'utc' - make_interval(secs => %s)
"""


def code_server(address: str) -> str:
    """Return what is wrong, "" if nothing is."""
    import grpc

    with grpc.insecure_channel(f"unix:{address}" if address.startswith("/") else address) as channel:
        try:
            # HealthCheckRequest(service="DagsterApi"), and a HealthCheckResponse whose status is SERVING.
            answer = channel.unary_unary("/grpc.health.v1.Health/Check")(b"\n\nDagsterApi", timeout=SECONDS)
        except grpc.RpcError as error:
            return f"{address}: {error.code().name}"
    return "" if answer == b"\x08\x01" else f"{address} does not serve"


def daemon() -> str:
    """Return what is wrong, "" if nothing is."""
    import psycopg2

    names = {"host": "POSTGRES_HOST", "port": "POSTGRES_PORT", "user": "POSTGRES_USER", "dbname": "POSTGRES_DB"}
    where = {key: os.environ[name] for key, name in names.items() if os.environ.get(name)}
    try:
        connection = psycopg2.connect(connect_timeout=SECONDS, **where)
        try:
            with connection.cursor() as cursor:
                cursor.execute(HEARTBEATS, (DAEMONS, TOLERANCE_SECONDS))
                (alive,) = cursor.fetchone()
        finally:
            connection.close()
    except psycopg2.Error as error:
        return f"PostgreSQL: {str(error).strip()}"
    return "" if alive == len(DAEMONS) else f"{alive} of {len(DAEMONS)} daemons have a heartbeat"


if __name__ == "__main__":
    sys.exit((daemon() if sys.argv[1] == "daemon" else code_server(sys.argv[2])) or 0)
