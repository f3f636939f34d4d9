"""The verdict on one stored journal: what its audit and the check of its chain find, as a report."""
