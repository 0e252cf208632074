"""Compiled loops work wherever their cache can be, and nothing imports them where they are not needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.fast

WITHOUT_A_FOLDER = """
from numba.core.caching import CacheImpl
CacheImpl._locator_classes = []
from hudi_ingest.records.compiled import compiled

@compiled("int64(int64)")
def doubled(number):
    return 2 * number

assert doubled(21) == 42 and doubled.stats.cache_path is None
"""


def test_without_a_folder_for_its_cache_each_process_compiles_for_itself() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_A_FOLDER], check=True, timeout=300)


def test_only_workers_wait_for_the_compiler_and_for_pandas() -> None:
    modules = ["cli.app", "transaction.write.job", "transaction.run", "orchestration.definitions"]
    code = (
        "import importlib, sys\n"
        "for module in sys.argv[1:]:\n"
        "    importlib.import_module(f'hudi_ingest.{module}')\n"
        "    print(module, 'numba' in sys.modules or 'pandas' in sys.modules)\n"
        "from hudi_ingest.pipeline.sections.source import is_match\n"
        "assert is_match('shop_.+', 'shop_orders') and 'pandas' not in sys.modules"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, *modules], capture_output=True, text=True, check=True, timeout=300
    )
    assert answer.stdout.splitlines() == [f"{module} False" for module in modules]
