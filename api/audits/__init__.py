"""Audits that run beside the service: one at a time, each with a reader of its own."""

from kvledger.api.audits.runner import Audits

__all__ = ["Audits"]
