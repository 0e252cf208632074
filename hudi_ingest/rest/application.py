"""The ASGI application: its routes, its OpenAPI document, and what else is mounted beside them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hudi_ingest.home.folder import Home
from hudi_ingest.rest import pipeline_routes, request_routes, state_routes
from hudi_ingest.rest.access import Access, Allowed, Gate
from hudi_ingest.rest.models import PipelineText
from hudi_ingest.rest.problems import MEDIA_TYPE, Problem, answer_errors

API = "/api/v1"
_DESCRIPTION = """Pipelines from Kafka to Apache Hudi: their files, status, requests and dead letters.

The pipeline files are the truth: what is created or changed here is a YAML file in the server's pipelines folder, which
Dagster loads within seconds. Every error is an `application/problem+json`."""


class Health(BaseModel):
    """The server answers."""

    status: str = Field(examples=["ok"])
    version: str = Field(description="Of hudi-ingest.", examples=["0.1.0"])


def app(home: Home, access: Access, allowed: Allowed, mounts: Mapping[str, ASGIApp] | None = None) -> ASGIApp:
    """Build the application for the pipelines of a home. `mounts`: further applications by their paths, such as `/metrics`; they
    are behind the same tokens."""
    api = _api()
    api.state.home = home
    api.state.allowed = allowed
    answer_errors(api)
    for path, mounted in (mounts or {}).items():
        # Not a mount, which would answer /metrics with a redirect to /metrics/.
        api.router.routes.append(Route(path, _Mounted(mounted), include_in_schema=False))
    return Gate(api, access)


def openapi_document() -> dict[str, Any]:
    """The description of the API, as it is served at /openapi.json."""
    return _api().openapi()


def _api() -> FastAPI:
    api = FastAPI(
        title="hudi-ingest",
        version=version("hudi-ingest"),
        description=_DESCRIPTION,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        responses={"default": {"model": Problem, "description": "An error."}},
    )
    api.get(
        "/healthz", tags=["server"], response_model=Health, summary="Whether the server answers", name="get_health"
    )(healthz)
    for routes in (
        pipeline_routes.ROUTES,
        pipeline_routes.TOPICS,
        state_routes.ROUTES,
        request_routes.ROUTES,
        state_routes.TABLE,
        state_routes.INSTALLATION,
    ):
        api.include_router(routes, prefix=API)
    api.openapi = lambda: _openapi(api)  # type: ignore[method-assign]
    return api


class _Mounted:
    """An application as one route; Starlette would take a function for a handler of requests."""

    def __init__(self, mounted: ASGIApp) -> None:
        self._mounted = mounted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._mounted(scope, receive, send)


async def healthz() -> Health:
    """Asks neither Kafka nor a table nor the ledger: a server that answers is not mended by starting it again."""
    return Health(status="ok", version=version("hudi-ingest"))


def _operation_id(route: APIRoute) -> str:
    return route.name


def _openapi(api: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with errors as what they are and the token as a way to authenticate."""
    if api.openapi_schema is None:
        document = get_openapi(
            title=api.title,
            version=api.version,
            description=api.description,
            routes=api.routes,
            openapi_version="3.1.0",
        )
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                for status, answer in operation["responses"].items():
                    if status == "default" or status >= "400":
                        answer["content"] = {MEDIA_TYPE: next(iter(answer["content"].values()))}
        schemas = document["components"]["schemas"]
        schemas["PipelineText"] = PipelineText.model_json_schema()
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        api.openapi_schema = document
    return api.openapi_schema
