"""The controller: live brokers, topics, leaders, configs, and the store that keeps them."""
