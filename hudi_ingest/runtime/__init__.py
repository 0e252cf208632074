"""What Spark needs on any machine: a Java, and the jars of Hudi, Kafka and Avro that pyspark does not bring."""
