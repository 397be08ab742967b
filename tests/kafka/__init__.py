"""Real servers for tests: a Kafka broker, a schema registry, Java's own clients."""
