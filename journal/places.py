"""Codes for where a page is, as the two arrays `State.full_at` and `State.swa_at` hold them.

A Full page reads one of the codes below, a request's own code (`FIRST_REQUEST_CODE` and down), or the
id of the tree node it is bound to plus one. Ids and codes grow with the journal, past int32, so these are
int64. An SWA page reads `FREE`, `DEFERRED`, or the Full page that maps to it: int32. `OUTSIDE` stands at
both ends of the arrays and marks what is no page of the pool.
"""

FREE = 0
DEFERRED = -1
OUTSIDE = -2
CALLER = -3
FIRST_REQUEST_CODE = -4
