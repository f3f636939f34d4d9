"""Inspection over HTTP: a service that shows what journals hold, and changes none of them."""

from kvledger.api.app import create_app
from kvledger.api.inspector import Inspector
from kvledger.api.settings import ApiSettings

__all__ = ["ApiSettings", "Inspector", "create_app"]
