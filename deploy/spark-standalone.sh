#!/usr/bin/env bash
# spark-standalone master|worker OPTIONS…: a daemon of a Spark cluster, from the jars in the pyspark package.
set -eu
case ${1:-} in
master) class=master.Master ;;
worker) class=worker.Worker ;;
*) echo "spark-standalone: found '${1:-}', expected master or worker" >&2; exit 2 ;;
esac
shift

SPARK_HOME=$(python -c 'import os, importlib.util as i; print(os.path.dirname(i.find_spec("pyspark").origin))')
export SPARK_HOME
# A pip installation lacks the folders from which a worker would guess it, and its executors would die at once.
export SPARK_SCALA_VERSION=2.12
options=(-Xmx256m -Dspark.worker.cleanup.enabled=true)
for package in java.lang java.nio java.util sun.nio.ch java.net; do
    options+=("--add-opens=java.base/$package=ALL-UNNAMED")
done
exec java "${options[@]}" -cp "$SPARK_HOME/jars/*" "org.apache.spark.deploy.$class" "$@"
