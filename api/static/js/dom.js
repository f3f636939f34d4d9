/**
 * Building elements. Text only ever goes in as text nodes: nothing that the service says is read as
 * markup.
 */

/**
 * @param {string} tag
 * @param {Record<string, any>} [properties]  attributes; `on` is listeners by event; false, null: none
 * @param {...(Node|string|number|null|undefined|false)} children
 * @returns {any} the element; loose, so that callers need no cast for each tag
 */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
  return element;
}

/** @param {string} id @returns {any} */
export function byId(id) {
  return document.getElementById(id);
}

/** Terms and what they are, as a definition list. Empty descriptions are left out. */
export function facts(pairs) {
  const list = make("dl", { class: "facts" });
  for (const [term, description, attributes] of pairs) {
    if (description === null || description === undefined || description === "") continue;
    const children = Array.isArray(description) ? description : [description];
    list.append(make("dt", {}, term), make("dd", attributes ?? {}, ...children));
  }
  return list;
}

/** A table from column names and rows of cells. A name that starts with ">" is a column of numbers. */
export function table(names, rows) {
  const isNumber = names.map((name) => name.startsWith(">"));
  const head = names.map((name, at) =>
    make("th", { scope: "col", class: isNumber[at] && "number" }, name.replace(/^>/, "")),
  );
  const body = rows.map((cells) =>
    make(
      "tr",
      {},
      ...cells.map((cell, at) => make("td", { class: isNumber[at] && "number" }, ...[cell].flat())),
    ),
  );
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
}

/** A canvas as sharp as the screen, of `width` by `height` CSS pixels; its context draws in CSS pixels. */
export function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const across = Math.max(1, Math.round(width * ratio));
  const down = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

/** Draw at most once a frame, however often it is asked for. @param {() => void} draw */
export function perFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

/** Call once things have been quiet for `pause` ms. @param {() => void} call @param {number} pause */
export function whenQuiet(call, pause) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(call, pause);
  };
}
