"""What a monitoring system asks for: counters of what happened, levels of what is, in Prometheus' form."""

from kvledger.api.metrics.registry import Metrics

__all__ = ["Metrics"]
