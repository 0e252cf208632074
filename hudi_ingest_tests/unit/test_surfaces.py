"""Whatever users, their scripts and their stored state depend on changes only on purpose."""

from __future__ import annotations

import pytest

from hudi_ingest_tests.support import surfaces


@pytest.mark.parametrize("name", surfaces.SURFACES)
def test_a_surface_is_as_its_file_says(name: str) -> None:
    kept = surfaces.FOLDER.joinpath(name).read_text(encoding="utf-8")
    assert surfaces.text_of(name) == kept, "if users may meet this change, run `make docs` and say so in the commit"
