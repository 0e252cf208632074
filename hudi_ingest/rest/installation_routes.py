"""The whole installation: what is wrong with it, and what to do."""

from __future__ import annotations

import logging

from fastapi import APIRouter

from hudi_ingest.examination import examine
from hudi_ingest.rest.models import Examination
from hudi_ingest.rest.named import HomeOf

ROUTES = APIRouter(tags=["installation"])
_logger = logging.getLogger(__name__)


@ROUTES.get("/doctor", summary="Examine the installation")
def get_doctor(home: HomeOf) -> Examination:
    """Machine, ledger, engine, Dagster and every pipeline, as this server sees them, with what to do. Changes nothing. The answer is
    200 whatever is found: look at `state`."""
    return Examination.model_validate(examine(home, _logger.info).to_dict())
