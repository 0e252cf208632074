"""What `hudi-ingest doctor` looks at, a module for each part of an installation. Nothing here changes anything."""

from __future__ import annotations
