"""The radix tree as a page of lines, indented where it branches: chains of split nodes stay in one column."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from kvledger.tools.documents.pictures import NodePicture, TreePicture


def tree_page(picture: TreePicture) -> RenderableType:
    """Namespaces, and below each its nodes. Cost O(nodes)."""
    return Group(Text(f"seq {picture.seq}: {len(picture.nodes)} nodes"), *_lines(picture.nodes))


def _lines(nodes: list[NodePicture]) -> Iterator[Text]:
    depths: dict[int, int] = {}
    branching = {node.node for node in nodes if len(node.children) > 1}
    namespace: str | None = None
    for node in nodes:
        if node.namespace != namespace:
            namespace = node.namespace
            yield Text(f"namespace {namespace!r}", style="bold")
        chained = node.parent is not None and node.parent not in branching
        depth = 1 if node.parent is None else depths[node.parent] + (not chained)
        depths[node.node] = depth
        yield _line(node, "  " * depth + ("| " if chained else "+ "))


def _line(node: NodePicture, indent: str) -> Text:
    line = Text(f"{indent}node {node.node} [{node.start}, {node.end})", no_wrap=True, overflow="ellipsis")
    if node.tombstone:
        line.append(" tombstone", style="red")
    if node.full_lock:
        line.append(f" locked {node.full_lock} Full {node.swa_lock} SWA", style="yellow")
    if node.swa_origin is not None and node.swa_origin != node.full_origin:
        line.append(f" Full of {node.full_origin}, SWA of {node.swa_origin}", style="magenta")
    return line
