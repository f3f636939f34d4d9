"""Answers about what can never change any more, from a process beside the scheduler's."""

from kvledger.api.apart.layer import ApartLayer
from kvledger.api.apart.orders import Orders
from kvledger.api.apart.process import OwnProcess

__all__ = ["ApartLayer", "Orders", "OwnProcess"]
