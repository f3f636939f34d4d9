/**
 * Where things are in the picture of the tree. Rows go down, one for each leaf; token positions go right, in
 * proportion. Owns the scales; knows nothing of canvases or of the service.
 */

export const AXIS_HEIGHT = 20;
/** Room above the first row, so that the frame of what is selected there is seen. */
const ROWS_FROM = AXIS_HEIGHT + 4;
/** Heights of a row to choose from: from "all at a glance" to "readable letters". */
export const ROW_HEIGHTS = [2, 4, 7, 11, 16, 22, 30];
const MOST_PX_PER_TOKEN = 64;

export class Layout {
  constructor() {
    this.width = 1;
    this.height = 1;
    this.gutter = 0;
    this.rowHeight = 22;
    this.top = 0;
    this.left = 0;
    this.endMax = 1;
    this.rowsTotal = 0;
    this.zoom = 1;
  }

  /** Pixels a token; 1 x zoom shows all of the longest path. */
  get scale() {
    return (Math.max(1, this.width - this.gutter - 8) / Math.max(1, this.endMax)) * this.zoom;
  }

  /** @param {number} token */
  x(token) {
    return this.gutter + (token - this.left) * this.scale;
  }

  /** @param {number} x */
  tokenAt(x) {
    return this.left + (x - this.gutter) / this.scale;
  }

  /** @param {number} row */
  y(row) {
    return ROWS_FROM + row * this.rowHeight - this.top;
  }

  /** @param {number} y */
  rowAt(y) {
    return Math.floor((y - ROWS_FROM + this.top) / this.rowHeight);
  }

  /** Height of everything, for the scroll bar. */
  get fullHeight() {
    return ROWS_FROM + this.rowsTotal * this.rowHeight + 8;
  }

  /** The rows that are on the screen: [first, first + rows). */
  visibleRows() {
    const first = Math.max(0, Math.floor(this.top / this.rowHeight));
    const rows = Math.ceil((this.height - AXIS_HEIGHT) / this.rowHeight) + 1;
    return { first, rows: Math.max(1, rows) };
  }

  /** The rectangle of a node; gaps of a pixel keep neighbours apart where there is room for them. */
  rect(node) {
    const x = this.x(node.start);
    const y = this.y(node.row);
    const across = this.x(node.end) - x;
    const down = node.rows * this.rowHeight;
    return {
      x,
      y,
      width: Math.max(1, across - (across > 4 ? 1 : 0)),
      height: Math.max(1, down - (this.rowHeight > 3 ? 1 : 0)),
    };
  }

  /** The node at a point: nodes of a row do not overlap, so the first that has it is the one. */
  hit(nodes, x, y) {
    if (y < AXIS_HEIGHT || x < this.gutter) return null;
    const row = this.rowAt(y);
    const token = this.tokenAt(x);
    for (const node of nodes) {
      if (row >= node.row && row < node.row + node.rows && token >= node.start && token < node.end)
        return node;
    }
    return null;
  }

  /**
   * Zoom the token scale, keeping the token under `x` where it is.
   * @param {number} factor
   * @param {number} x
   */
  zoomAt(factor, x) {
    const token = this.tokenAt(x);
    const atOne = this.scale / this.zoom;
    this.zoom = Math.min(Math.max(this.zoom * factor, 1), Math.max(1, MOST_PX_PER_TOKEN / atOne));
    this.left = token - (x - this.gutter) / this.scale;
    this.clamp();
  }

  /** @param {number} pixels */
  panBy(pixels) {
    this.left += pixels / this.scale;
    this.clamp();
  }

  fit() {
    this.zoom = 1;
    this.left = 0;
  }

  clamp() {
    const seen = (this.width - this.gutter - 8) / this.scale;
    this.left = Math.min(Math.max(this.left, 0), Math.max(0, this.endMax - seen));
  }

  /** Move so that a node's beginning is in sight; true where it had to. */
  reveal(node) {
    const x = this.x(node.start);
    const end = this.x(node.end);
    if (end >= this.gutter + 12 && x <= this.width - 12) return false;
    this.left = node.start - (this.width - this.gutter) / this.scale / 4;
    this.clamp();
    return true;
  }
}
