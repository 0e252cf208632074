"""One transaction: plan, begin, write, commit or roll back.

Imports `kafka`, `hudi`, `ledger`, `spark`, `pipeline`, `records` and `model`. Public: `run.run_transaction`; also exported by `hudi_ingest`.
"""
