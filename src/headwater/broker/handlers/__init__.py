"""One file per API family; each maps API keys to functions of (context, request, body)."""
