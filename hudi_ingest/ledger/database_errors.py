"""Translates the errors of the ledger's database into hudi_ingest's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, OperationalError

from hudi_ingest.exceptions import EnvironmentProblem, LedgerUnreachable

# PostgreSQL's error codes.
_UNDEFINED_TABLE = "42P01"
_INSUFFICIENT_PRIVILEGE = "42501"
_INVALID_SCHEMA_NAME = "3F000"


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Translate errors of the database, and of the disk that its file or locks are on; `where` names the ledger.

    Raises LedgerUnreachable, and EnvironmentProblem when the file is not a database.
    """
    try:
        yield
    except DBAPIError as error:
        translation = _translation(error, where)
        if translation is error:
            raise
        raise translation from error
    except OSError as error:
        raise _unreachable(f"{where}: {error}") from error


def _translation(error: DBAPIError, where: str) -> Exception:
    """Translate a database error into ours; return a programming error as it is."""
    code = getattr(error.orig, "pgcode", None)
    # PostgreSQL's messages have several lines.
    message = f"{where}: {' '.join(str(error.orig).split())}"
    if isinstance(error, (OperationalError, InterfaceError)) or code == _UNDEFINED_TABLE:
        return _unreachable(message)
    if code in (_INSUFFICIENT_PRIVILEGE, _INVALID_SCHEMA_NAME):
        return EnvironmentProblem(
            f"{message}. The ledger's user needs a schema in its search_path, with USAGE and CREATE on it: run "
            "`CREATE SCHEMA hudi_ingest AUTHORIZATION <user>` and add ?options=-csearch_path%3Dhudi_ingest to "
            "HUDI_INGEST_LEDGER_URL."
        )
    if type(error) is DatabaseError:
        return EnvironmentProblem(
            f"{message}. The file is damaged or not a ledger. Move it aside: the Hudi tables are the source of truth, and "
            "a new ledger is created when it is opened again."
        )
    return error


def _unreachable(message: str) -> LedgerUnreachable:
    return LedgerUnreachable(
        f"{message}. The Hudi table is not affected. Try again; if the error persists, check that the database is "
        "running, has free space, and is the one that HUDI_INGEST_LEDGER_URL should name. A wiped ledger is "
        "recreated when it is opened again."
    )
