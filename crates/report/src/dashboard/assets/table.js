// Tables that sort by their headings; groups, and no more rows than a page bears.

import { make } from "./page.js";

const ROWS_AT_ONCE = 300;

/**
 * A table of `rows`. A column has `title`, `value(row)` to sort by, `cell(row)` to show (text or element; the value by
 * default), `number` to align right, `help` for its heading. `groupBy(row)` names a group; `groupCells(name, rows)` says what
 * its heading shows in the other columns. `mark(row)` gives a row's attributes.
 */
export function table({ caption, columns, rows, sort, groupBy, groupCells, mark, empty = "Nothing to show." }) {
  // Without a column to sort by, rows stay as they come.
  let order = sort;
  let most = ROWS_AT_ONCE;
  const body = make("tbody");
  const headings = columns.map((column, at) =>
    make("th", { scope: "col", class: column.number ? "number" : "" },
      column.value
        ? make("button", { type: "button", title: column.help, onclick: () => sortBy(at) }, column.title)
        : column.title));
  const element = make("div", { class: "scroll" },
    make("table", {}, caption ? make("caption", {}, caption) : null, make("thead", {}, make("tr", {}, headings)), body));

  function sortBy(at) {
    const descending = order?.column === at ? !order.descending : Boolean(columns[at].number);
    order = { column: at, descending };
    update();
  }

  function sorted(list) {
    if (!order) return list;
    const { value } = columns[order.column];
    const direction = order.descending ? -1 : 1;
    const keyed = list.map((row) => [value(row), row]);
    keyed.sort(([left], [right]) => {
      // Unknown values come last in either direction.
      if (left == null || right == null) return (left == null) - (right == null);
      return direction * (typeof left === "string" ? left.localeCompare(right) : left - right);
    });
    return keyed.map(([, row]) => row);
  }

  function line(row) {
    return make("tr", mark?.(row) ?? {}, columns.map((column, at) => {
      const content = column.cell ? column.cell(row) : column.value(row);
      const kind = [column.number && "number", column.kind].filter(Boolean).join(" ");
      return at === 0 && column.heading
        ? make("th", { scope: "row", class: kind }, content ?? "–")
        : make("td", { class: kind }, content ?? "–");
    }));
  }

  function update() {
    headings.forEach((heading, at) => {
      if (at === order?.column) heading.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    });
    const shown = sorted(rows);
    const lines = groupBy ? grouped(shown) : shown.slice(0, most).map(line);
    const hidden = shown.length - most;
    if (hidden > 0) lines.push(more(hidden));
    if (!shown.length) lines.push(make("tr", {}, make("td", { colspan: columns.length, class: "empty" }, empty)));
    body.replaceChildren(...lines);
  }

  function grouped(shown) {
    const groups = Map.groupBy(shown, groupBy);
    let left = most;
    return [...groups].flatMap(([name, members]) => {
      const taken = members.slice(0, Math.max(0, left));
      left -= taken.length;
      if (!taken.length) return [];
      const heading = make("tr", { class: "group" }, make("th", { scope: "rowgroup" }, name || "no module"),
        groupCells(name, members).map((text, at) =>
          make("td", { class: columns[at + 1]?.number ? "number" : "" }, text)));
      return [heading, ...taken.map(line)];
    });
  }

  function more(hidden) {
    const button = make("button", { type: "button", onclick: () => { most += 2000; update(); } }, `Show ${hidden} more`);
    return make("tr", {}, make("td", { colspan: columns.length }, button));
  }

  update();
  return { element, show: (list) => { rows = list; update(); }, group: (by) => { groupBy = by; update(); } };
}

/** A share as text with a thin bar under it, as long as it is of the largest. */
export function shareCell(part, largest, text) {
  const bar = make("i");
  bar.style.width = `${Math.max(0, Math.min(1, (part ?? 0) / largest)) * 100}%`;
  return make("span", { class: "share" }, text, bar);
}
