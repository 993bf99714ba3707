// Two runs or traces side by side.

import { load, main, make, start } from "./page.js";
import { table } from "./table.js";
import { bytes, count, metric, percent, plain, seconds, share, signed } from "./numbers.js";

const TIMED = new Set(["seconds", "rate", "percent"]);
const FORMATS = { seconds, rate: metric, percent, share, bytes, count, plain };

start(async () => {
  const [, , before, after] = location.pathname.split("/");
  const data = await load(`/api/compare/${before}/${after}`);
  document.title = `${data.before.name} against ${data.after.name} · Headroom`;
  const link = (side) => make("a", { href: `/runs/${side.id}/overview` }, side.name);
  main.append(make("h1", {}, link(data.before), " → ", link(data.after)),
    make("p", { class: "sub" }, stepText(data.step), " ", make("a", { href: `/compare/${after}/${before}` }, "swap")));
  if (data.notes.length) main.append(make("div", { class: "reserve" }, data.notes.map((note) => make("p", {}, note))));

  // Where the steps' interval holds no change at all, nothing that hangs on their time is called better or worse.
  const open = unsure(data.step);
  const figures = table({
    columns: [
      { title: "figure", heading: true, value: (row) => row.name },
      { title: "before", number: true, value: (row) => row.before, cell: (row) => FORMATS[row.unit](row.before) },
      { title: "after", number: true, value: (row) => row.after, cell: (row) => FORMATS[row.unit](row.after) },
      { title: "change", number: true, value: (row) => row.relative, cell: (row) => judged(row.relative, open && TIMED.has(row.unit) ? "neither" : row.better) },
    ],
    rows: data.figures, mark: (row) => ({ "data-figure": row.name }),
  });
  const settings = table({
    columns: [
      { title: "setting", heading: true, value: (row) => row.name },
      { title: "before", value: (row) => row.before }, { title: "after", value: (row) => row.after },
    ],
    rows: data.settings, empty: "Both have the same settings.",
  });
  main.append(make("div", { class: "two" },
    make("section", {}, make("h2", {}, "Figures"), figures.element),
    make("section", {}, make("h2", {}, "Settings that differ"), settings.element, ...changedFindings(data))));
  for (const [title, rows] of [["Operators", data.operators], ["Kernels", data.kernels]]) {
    if (rows.length) main.append(make("section", {}, make("h2", {}, title, make("small", {}, "self time per step; largest change first")), changes(rows)));
  }
});

const unsure = (step) => Boolean(step?.interval) && step.interval[0] < 0 && step.interval[1] > 0;

function stepText(step) {
  if (!step) return "";
  const interval = step.interval ? `95%: ${signed(step.interval[0])} to ${signed(step.interval[1])}` : "too few steps for an interval";
  return `${unsure(step) ? "No certain change: recorded" : "Recorded"} step ${seconds(step.before_seconds)} → ${seconds(step.after_seconds)}, ${signed(step.relative)} (${interval})`;
}

/** A change in the colour of what it means; a tenth of a percent means nothing. */
function judged(relative, better) {
  if (relative == null) return "–";
  const kind = better === "neither" || Math.abs(relative) < 0.001 ? "" : (relative < 0) === (better === "lower") ? "better" : "worse";
  return make("span", { class: kind }, signed(relative));
}

function changes(rows) {
  return table({
    columns: [
      { title: "name", heading: true, kind: "long", value: (row) => row.name },
      { title: "before", number: true, value: (row) => row.before, cell: (row) => seconds(row.before || null) },
      { title: "after", number: true, value: (row) => row.after, cell: (row) => seconds(row.after || null) },
      { title: "difference", number: true, value: (row) => row.after - row.before, cell: (row) => seconds(row.after - row.before).replace("-", "−") },
      { title: "change", number: true, value: (row) => row.relative, cell: (row) => (row.before === 0 ? "new" : row.after === 0 ? "gone" : judged(row.relative, "lower")) },
    ],
    rows,
  }).element;
}

function changedFindings(data) {
  const list = (title, findings) => findings.length &&
    [make("h2", {}, title), make("ul", {}, findings.map((finding) => make("li", {}, finding)))];
  return [list("Findings that are gone", data.findings_gone), list("New findings", data.findings_new)].flat().filter(Boolean);
}
