"""The producer: interceptors, serializers, partitioner, accumulator, sender, in this order."""
