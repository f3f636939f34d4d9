"""What the service answers, as pydantic models: the contract of every route, and the source of OpenAPI."""
