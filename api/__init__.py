"""Inspection over HTTP: a service that shows what journals hold, and changes none of them."""

try:
    from kvledger.api.app import create_app
    from kvledger.api.inspector import Inspector
    from kvledger.api.settings import ApiSettings
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] == "kvledger":
        raise
    raise ModuleNotFoundError(
        f"kvledger.api needs more packages: pip install 'kvledger[api]' ({error.name} is missing)",
        name=error.name,
    ) from error

__all__ = ["ApiSettings", "Inspector", "create_app"]
