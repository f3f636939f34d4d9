"""What asks: requests with their tokens known in advance, made from a seed or read from a trace."""

from kvledger.tools.workload.builtin import builtin_workload
from kvledger.tools.workload.spec import Workload, WorkRequest

__all__ = ["WorkRequest", "Workload", "builtin_workload"]
