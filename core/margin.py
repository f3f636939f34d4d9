"""How far before the end of a published row others part from it: learned, in tokens.

Rows seldom go on exactly where an earlier one ended; they part some tokens before, where a template or a
last block differs. The window that such a row needs lies by that much before the last window of the earlier
one. Keeping more catches more partings but takes room from other windows, so what counts is partings caught
for each token kept.
"""

MARGIN_TOKENS = 512
"""The margin is at most this many tokens, or a window where that is more: farther back is a shared head."""

HALVE_AFTER = 512
"""So many partings are counted before all counts are halved: what was learned fades."""

RECKON_SHARE = 8
"""After this share of what was counted the margin is reckoned anew: a change costs a look at all windows."""


class Margin:
    """Counts partings by their distance from the end; `tokens` is the margin, `limit` the most it may be."""

    __slots__ = ("_counts", "_due", "_page", "_seen", "_window", "limit", "tokens")

    def __init__(self, window: int, page_size: int) -> None:
        self.limit = max(MARGIN_TOKENS, window) // page_size * page_size
        self.tokens = 0
        self._window = window
        self._page = page_size
        self._counts = [0] * (self.limit // page_size + 1)
        self._seen = 0
        self._due = 1

    def learn(self, gap: int) -> bool:
        """A row parted `gap` tokens, at most `limit`, before an end; True if that changed the margin.

        O(1), and O(limit / page size) where the margin is reckoned anew.
        """
        self._counts[-(-gap // self._page)] += 1
        self._seen += 1
        self._due -= 1
        if self._seen >= HALVE_AFTER:
            self._counts = [count // 2 for count in self._counts]
            self._seen = sum(self._counts)
        if self._due > 0:
            return False
        self._due = max(1, self._seen // RECKON_SHARE)
        before = self.tokens
        self.tokens = self._best()
        return self.tokens != before

    def _best(self) -> int:
        """The margin that catches most partings for each token it keeps beyond those of the window."""
        best, caught, found = 0.0, 0, 0
        for pages, count in enumerate(self._counts):
            if count:
                caught += count
                worth = caught / (self._window + pages * self._page)
                if worth > best:
                    best, found = worth, pages * self._page
        return found
