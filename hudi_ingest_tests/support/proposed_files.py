"""The files that `hudi-ingest new` proposes, read back."""

from __future__ import annotations

from typing import Any

import yaml

from hudi_ingest.operations.new_pipeline import file_text
from hudi_ingest.operations.proposal import Proposal


def written(proposal: Proposal) -> dict[str, Any]:
    """The settings of the proposed file."""
    source = {"bootstrap_servers": "broker:9092", "topics": ["t"], **proposal.source}
    settings = {
        "name": "t",
        "source": source,
        "table": {"base_path": "/data/t", **proposal.table},
        **({"transforms": proposal.transforms} if proposal.transforms else {}),
        **proposal.other,
    }
    found: dict[str, Any] = yaml.safe_load(file_text(settings, proposal))
    return found
