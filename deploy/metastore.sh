#!/usr/bin/env bash
# metastore ADDRESS PORT FOLDER: a Hive metastore from the jars in the pyspark package, with its Derby database in FOLDER.
#
# For a first try. For more, use a metastore on a database server, and set `catalog.uris` to it.
set -eu
jars() {
    python -c "
from hudi_ingest.spark import jars
print(f'{jars.pyspark_jars()}/*', *jars.s3_jars(lambda line: None), sep=':')"
}
source="$(dirname "$(readlink -f "$0")")/Metastore.java"
mkdir -p "$3"
cat > "$3/hive-site.xml" <<END
<configuration>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:;databaseName=$3/catalog;create=true</value></property>
<property><name>hive.metastore.warehouse.dir</name><value>$3/warehouse</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
<property><name>hive.async.log.enabled</name><value>false</value></property>
<property><name>fs.s3a.endpoint</name><value>${S3_ENDPOINT:-}</value></property>
<property><name>fs.s3a.path.style.access</name><value>true</value></property>
</configuration>
END
cd "$3"
# It looks at the location of each new table, so it needs what reaches S3, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
exec java -Xmx256m -cp "$3:$(jars)" org.codehaus.janino.SimpleCompiler "$source" Metastore "$1" "$2"
