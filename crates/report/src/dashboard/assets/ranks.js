// Several ranks: a selector, one step of each under another, and their figures.

import { draw, make, runId, withTip } from "./page.js";
import { table } from "./table.js";
import { seconds } from "./numbers.js";

const [LEFT, WIDTH, ROW] = [64, 896, 22];

/** The number of the run without the rank that may follow it. */
const base = runId?.split("-")[0];
const address = (rank) => `/runs/${base}-${rank}/overview`;

export function rankSection(ranks) {
  const select = make("select", { "aria-label": "Rank", onchange: (event) => { location.href = address(event.target.value); } },
    ranks.rows.map((row) => make("option", { value: row.rank, selected: row.rank === ranks.shown }, `rank ${row.rank}`)));
  const figures = table({
    columns: ranks.head.map((title, at) => ({
      title, number: at > 0, heading: at === 0,
      cell: (row) => (at === 0 ? make("a", { href: address(row.rank) }, row.cells[0]) : row.cells[at]),
    })),
    rows: ranks.rows, mark: (row) => ({ class: row.rank === ranks.shown ? "found" : "" }),
  });
  const collectives = ranks.collectives.length && table({
    columns: ranks.collective_head.map((title, at) => ({ title, number: at > 0, heading: at === 0, cell: (row) => row[at] })),
    rows: ranks.collectives,
  });
  return make("section", { "aria-labelledby": "ranks" },
    make("h2", { id: "ranks" }, "Ranks", make("small", {}, "this page is about ", select)),
    ranks.notes.map((note) => make("p", { class: "note" }, note)),
    strips(ranks),
    make("p", { class: "note legend" },
      [["device", "compute"], ["transfer", "transfer"], ["wait", "waiting for another rank"]].map(([kind, name]) => make("span", {}, make("i", { class: `path ${kind}` }), name)),
      make("span", {}, ranks.step)),
    figures.element,
    collectives ? [make("h3", {}, "Collectives"), collectives.element] : null);
}

function strips(ranks) {
  const x = (time) => LEFT + (WIDTH * time) / (ranks.seconds || 1);
  const height = ROW * ranks.rows.length + 18;
  const parts = [["device", "compute", 0], ["transfer", "transfer", 9], ["wait", "waiting", 9]];
  const rows = ranks.rows.map((row, at) => draw("a", { href: address(row.rank), "aria-current": row.rank === ranks.shown ? "true" : null },
    draw("text", { x: LEFT - 6, y: ROW * at + 13, "text-anchor": "end" }, `rank ${row.rank}`),
    parts.flatMap(([kind, name, below]) => row[kind === "device" ? "compute" : kind].map(([from, to]) => withTip(
      draw("rect", { class: kind, x: x(from), y: ROW * at + below, width: Math.max(0.4, x(to) - x(from)), height: 9 }),
      `rank ${row.rank}: ${name}\n${seconds(to - from)}`)))));
  const marks = [0, 1, 2, 3, 4].map((quarter) => draw("text", {
    x: x((ranks.seconds * quarter) / 4), y: height - 4, "text-anchor": quarter === 4 ? "end" : "middle",
  }, seconds((ranks.seconds * quarter) / 4)));
  return draw("svg", { class: "strips", viewBox: `0 0 ${LEFT + WIDTH} ${height}`, role: "img", "aria-label": "One step of every rank; the table below has the figures" }, rows, marks);
}
