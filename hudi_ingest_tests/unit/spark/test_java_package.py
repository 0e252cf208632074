"""Names of Java classes are made without asking a JVM: none listens here."""

from __future__ import annotations

from py4j.java_gateway import GatewayParameters, JavaClass, JavaGateway

from hudi_ingest.spark.driver_jvm import JavaPackage


def test_a_class_is_named_without_a_call() -> None:
    root = JavaPackage(JavaGateway(gateway_parameters=GatewayParameters(port=1)))
    named = root.java.util.Properties
    assert type(named) is JavaClass
    assert named._fqn == "java.util.Properties"
    nested = getattr(root.org.apache.hudi.common.table.timeline, "HoodieInstant$State")
    assert nested._fqn == "org.apache.hudi.common.table.timeline.HoodieInstant$State"
