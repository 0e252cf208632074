"""A real ZooKeeper server of one node, from the jars that PySpark brings, on the loopback interface only."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from hudi_ingest.local.processes import LOOPBACK, ProcessRecord, free_port, start, stop, wait_until
from hudi_ingest.spark.java import find_java


@dataclass
class ZooKeeperServer:
    """`home` keeps what the server has, so that it can be stopped and started again."""

    home: Path
    port: int = field(default_factory=free_port)
    record: ProcessRecord | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        settings = self.home / "zoo.cfg"
        settings.write_text(
            f"dataDir={self.home / 'data'}\nclientPort={self.port}\nclientPortAddress={LOOPBACK}\n"
            "admin.enableServer=false\n4lw.commands.whitelist=srvr\n"
        )
        jars = Path(pyspark.__file__).parent / "jars"
        command = [str(find_java()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
        self.record = start(
            "zookeeper",
            [*command, "org.apache.zookeeper.server.ZooKeeperServerMain", str(settings)],
            log=self.home / "zookeeper.log",
            env=os.environ,
        )
        wait_until(
            lambda: "Mode: standalone" in self.ask("srvr"),
            what="ZooKeeper answers",
            timeout_seconds=240,
            records_to_watch=[self.record],
        )

    def stop(self) -> None:
        if self.record is not None:
            stop([self.record])
            self.record = None

    def connections(self) -> int:
        """How many clients are connected now."""
        found = re.search(r"Connections: (\d+)", self.ask("srvr"))
        assert found is not None
        return int(found[1]) - 1  # the one that asks

    def ask(self, command: str) -> str:
        """The answer to one of ZooKeeper's four-letter commands; "" when there is none."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=60) as connection:
                connection.sendall(command.encode())
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            return ""
