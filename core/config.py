"""What a cache is built from: sizes, policies and the shape of the KV it holds.

Both models are frozen and refuse nonsense when they are built, so nothing later has to ask.
Sizes are tokens here and pages everywhere below this border.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_PAGES = 2**31 - 1
"""A page number must fit an int32, whatever `mapping_dtype` is: event blobs store it so."""

MAX_PAGE_SIZE = 65_536
"""Far above any kernel's page; a larger number is a mistake for a pool size."""

MAX_LAYERS = 4_096
"""Far above any model's; bounds what a configuration read from a journal can ask for."""

Count = Annotated[int, Field(strict=True, gt=0)]
Layers = Annotated[tuple[Annotated[int, Field(strict=True, ge=0)], ...], Field(max_length=MAX_LAYERS)]


class KVLayout(BaseModel):
    """Shape of the KV tensors: one `k` and one `v` of `[slots, kv_heads, head_dim]` per layer.

    `full_layers` and `swa_layers` are the model's layer indices; no layer may be in both.
    `dtype` is the name of a torch floating dtype ("float32", "bfloat16", "float16").
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    full_layers: Layers
    swa_layers: Layers
    kv_heads: Count
    head_dim: Count
    dtype: Literal["float16", "bfloat16", "float32", "float64"] = "float32"

    @model_validator(mode="after")
    def _layers_are_distinct(self) -> Self:
        layers = self.full_layers + self.swa_layers
        if not layers:
            raise ValueError("a layout needs at least one layer")
        if len(set(layers)) != len(layers):
            raise ValueError("a layer may be named once, in full_layers or in swa_layers")
        return self


class CacheConfig(BaseModel):
    """Sizes and policies of one cache.

    `page_size` tokens make a page and must divide both pools; `sliding_window` is W, how many
    earlier tokens a new one attends to in an SWA layer; `full_tokens` and `swa_tokens` are the
    usable sizes of the pools (the padding page comes on top). `locked_recovery` says what an
    insert does with an SWA tombstone whose Full is locked: "remap" keeps the locked Full and
    takes the incoming SWA, "skip" leaves the tombstone. `mapping_dtype` is the dtype of the
    Full-to-SWA mapping mirror on `device`. With `fingerprints` the journal gets checksums of the KV of
    pages when they are locked, recovered under a lock and unlocked (docs/engine.md says what that costs).
    `eviction` is the order in which nodes go: "lru", or "lru-2" by the time each prefix was asked for before
    last, with windows kept where rows are likely to be taken up again (docs/performance.md, "Hits").
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    page_size: Count = Field(le=MAX_PAGE_SIZE)
    sliding_window: Count = Field(le=MAX_PAGES)
    full_tokens: Count
    swa_tokens: Count
    device: str = "cpu"
    layout: KVLayout | None = None
    locked_recovery: Literal["remap", "skip"] = "remap"
    mapping_dtype: Literal["int64", "int32"] = "int64"
    fingerprints: Annotated[bool, Field(strict=True)] = False
    eviction: Literal["lru", "lru-2"] = "lru"

    @model_validator(mode="after")
    def _pages_divide_pools(self) -> Self:
        for name, tokens in (("full_tokens", self.full_tokens), ("swa_tokens", self.swa_tokens)):
            if tokens % self.page_size:
                raise ValueError(f"page_size {self.page_size} does not divide {name} {tokens}")
            if tokens // self.page_size >= MAX_PAGES:
                raise ValueError(f"{name} {tokens} is more than {MAX_PAGES - 1} pages")
        return self

    def told(self) -> dict[str, Any]:
        """What a journal keeps of it, as JSON: an order of eviction only where it is not the default one."""
        return self.model_dump(mode="json", exclude={"eviction"} if self.eviction == "lru" else None)

    @property
    def full_pages(self) -> int:
        """Usable pages of the Full pool, numbered 1 to this."""
        return self.full_tokens // self.page_size

    @property
    def swa_pages(self) -> int:
        """Usable pages of the SWA pool, numbered 1 to this."""
        return self.swa_tokens // self.page_size

    @property
    def window_pages(self) -> int:
        """The window rounded up to pages: what a lock pins in the SWA pool."""
        return -(-self.sliding_window // self.page_size)
