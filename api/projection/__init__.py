"""The projection: replayed states at any seq of a journal, and a thread that follows its end."""

from kvledger.api.projection.bus import LiveBus
from kvledger.api.projection.follower import Listener
from kvledger.api.projection.lease_births import LeaseBirths
from kvledger.api.projection.pace import Pace
from kvledger.api.projection.standing import Standing
from kvledger.api.projection.timeline import Timeline

__all__ = ["LeaseBirths", "Listener", "LiveBus", "Pace", "Standing", "Timeline"]
