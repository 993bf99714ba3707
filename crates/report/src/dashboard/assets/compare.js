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
    rows: data.settings,
  });
  main.append(make("div", { class: "two" },
    make("section", {}, make("h2", {}, "Figures"), figures.element),
    make("section", {}, make("h2", {}, "Settings that differ"), data.settings.length ? settings.element : make("p", { class: "note" }, "Both have the same settings."), ...changedFindings(data))));
  if (data.changes.length) main.append(make("section", {},
    make("h2", {}, "What grew and what shrank", make("small", {}, "per step, by operator at its sizes and place; unclear: within the spread of the steps")),
    sites(data.changes)));
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

const STATUS = { slower: "slower", faster: "faster", new: "new", gone: "gone", "other-sizes": "other sizes" };

/** One row per site: what it is, where, and its time on the side that changed more. */
function sites(rows) {
  const side = (row) => {
    const device = row.device_seconds_after - row.device_seconds_before;
    const host = row.host_seconds_after - row.host_seconds_before;
    const leads = (change) => change * row.growth_seconds > 0;
    const isDevice = leads(device) && (Math.abs(device) >= Math.abs(host) || !leads(host));
    return isDevice
      ? { name: "device", before: row.device_seconds_before, after: row.device_seconds_after }
      : { name: "host", before: row.host_seconds_before, after: row.host_seconds_after };
  };
  const difference = (row) => side(row).after - side(row).before;
  const sizes = (row) => {
    const [before, after] = [row.input_dims_before, row.input_dims].map((text) => (/\d/.test(text ?? "") ? text.replace(/(,\[\])+\]$/, "]") : ""));
    return before ? `${before} → ${after}` : after;
  };
  const calls = (row) => (row.calls_before === row.calls_after ? `${count(row.calls_after)}` : `${count(row.calls_before)} → ${count(row.calls_after)}`);
  return table({
    columns: [
      { title: "operator, function or kernel", heading: true, kind: "long", value: (row) => row.name,
        cell: (row) => sizes(row) ? [row.name, " ", make("small", { class: "note" }, sizes(row))] : row.name },
      { title: "in", kind: "long", value: (row) => row.place ?? "" },
      { title: "on", value: (row) => side(row).name },
      { title: "calls", number: true, value: (row) => row.calls_after, cell: calls },
      { title: "before", number: true, value: (row) => side(row).before, cell: (row) => seconds(side(row).before || null) },
      { title: "after", number: true, value: (row) => side(row).after, cell: (row) => seconds(side(row).after || null) },
      { title: "difference", number: true, value: difference,
        cell: (row) => make("span", { class: !row.is_clear ? "" : difference(row) > 0 ? "worse" : "better" },
          `${difference(row) > 0 ? "+" : ""}${seconds(difference(row)).replace("-", "−")}`) },
      { title: "is", value: (row) => STATUS[row.status], cell: (row) => (row.is_clear ? STATUS[row.status] : make("span", { class: "note", title: "within the spread of the steps" }, `${STATUS[row.status]}, unclear`)) },
    ],
    rows, mark: (row) => ({ "data-site": row.name }),
  }).element;
}

function changedFindings(data) {
  const list = (title, findings) => findings.length &&
    [make("h2", {}, title), make("ul", {}, findings.map((finding) => make("li", {}, finding)))];
  return [list("Findings that grew", data.findings_grown), list("New findings", data.findings_new), list("Findings that are gone", data.findings_gone)].flat().filter(Boolean);
}
