"""`hudi-ingest new`, before it asks a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import Home
from hudi_ingest.operations.new_pipeline import new_file

pytestmark = pytest.mark.fast


def test_problems_name_the_arguments_and_no_line_of_a_file_that_nobody_has(tmp_path: Path) -> None:
    home = Home.from_environment({"HUDI_INGEST_HOME": str(tmp_path)})
    given = ["security.protocol=SASL_SSL", "security.sasl_mechanism=PLAIN", "security.username=me"]
    given += ["security.password=${NO_SUCH_PASSWORD}"]
    with pytest.raises(ConfigError) as refused:
        new_file("payments", home, "${NO_SUCH_BROKER}", "${NO_SUCH_REGISTRY}", settings_given=given)
    starts = sorted(problem.partition(": ")[0] for problem in refused.value.problems)
    assert starts == ["--bootstrap-servers", "--schema-registry", "--source security.password"]
    assert "line" not in str(refused.value)
