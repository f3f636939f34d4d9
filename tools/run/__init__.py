"""One run: a workload through the reference scheduler, journaling on, then the audit and a report."""
