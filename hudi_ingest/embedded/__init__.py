"""Java, jars, child processes and a single-node Kafka broker for machines that have none of them set up."""
