// The roofline: operators under the device's roofs; each leads to its row in the table of operators.

import { draw, load, main, make, runId, start, withTip } from "./page.js";
import { frame } from "./charts.js";
import { table } from "./table.js";
import { metric, percent, ratio, seconds } from "./numbers.js";

start(async () => {
  const data = await load(`/api/runs/${runId}/roofline`);
  main.append(make("h2", {}, "Roofline", make("small", {}, `${data.device}; peaks: ${data.peak_source}`)));
  if (data.points.length) main.append(chart(data));
  else main.append(make("p", { class: "empty" }, "No operator with known FLOPs and bytes: record shapes to get them."));
  main.append(table({
    caption: "The points, and how near each is to its roof",
    columns: [
      { title: "operator", heading: true, kind: "long", value: (point) => point.name, cell: (point) => make("a", { href: link(point) }, point.name) },
      { title: "FLOPs per byte", number: true, value: (point) => point.intensity, cell: (point) => ratio(point.intensity) },
      { title: "achieved", number: true, value: (point) => point.flops_per_second, cell: (point) => metric(point.flops_per_second, "FLOP/s") },
      { title: "time per step", number: true, value: (point) => point.seconds, cell: (point) => seconds(point.seconds) },
      { title: "share of roof", number: true, value: (point) => point.percent_of_roof, cell: (point) => percent(point.percent_of_roof) },
    ],
    rows: data.points,
    sort: { column: 3, descending: true },
    mark: (point) => ({ "data-point": point.name }),
  }).element);
});

/** What bounds a point, as the analysis says: its colour and words. */
const BOUNDS = { memory: ["s4", "bound by memory"], compute: ["s1", "bound by compute"], overhead: ["s3", "bound by overhead"] };

const link = (point) => `/runs/${runId}/operators?find=${encodeURIComponent(point.find)}`;

function chart(data) {
  const [width, height] = [1200, 430];
  const timed = data.points.filter((point) => point.intensity > 0 && point.flops_per_second > 0);
  const ridge = data.peak_flops / data.peak_bytes;
  const around = (values) => [10 ** Math.floor(Math.log10(Math.min(...values)) - 0.1), 10 ** Math.ceil(Math.log10(Math.max(...values)) + 0.1)];
  const x = around([...timed.map((point) => point.intensity), ...(ridge ? [ridge] : [])]);
  const y = around([...timed.map((point) => point.flops_per_second), ...(data.peak_flops ? [data.peak_flops] : [])]);
  const box = frame({
    width, height, x, y, xLog: true, yLog: true, left: 84,
    xFormat: (value) => ratio(value), yFormat: (value) => metric(value, "FLOP/s"), xTitle: "FLOPs per byte",
  });
  const parts = [...box.parts];
  if (ridge) {
    const lowest = Math.max(x[0], y[0] / data.peak_bytes);
    const middle = Math.sqrt(lowest * ridge);
    parts.push(
      draw("path", { class: "roof", d: `M${box.toX(lowest)} ${box.toY(lowest * data.peak_bytes)}L${box.toX(ridge)} ${box.toY(data.peak_flops)}H${box.toX(x[1])}` }),
      draw("line", { class: "ridge", x1: box.toX(ridge), x2: box.toX(ridge), y1: box.toY(data.peak_flops), y2: box.toY(y[0]) }),
      draw("text", { class: "strong", x: box.toX(x[1]) - 4, y: box.toY(data.peak_flops) - 7, "text-anchor": "end" }, `${metric(data.peak_flops, "FLOP/s")}`),
      draw("text", { x: box.toX(ridge) + 5, y: box.toY(y[0]) - 6 }, `ridge ${ratio(ridge)}`),
      draw("text", { class: "strong", x: box.toX(middle) - 10, y: box.toY(middle * data.peak_bytes) - 8, "text-anchor": "end" }, metric(data.peak_bytes, "B/s")));
  }
  const longest = Math.max(...timed.map((point) => point.seconds));
  // The large ones first, so that the small ones lie on top and can be reached.
  for (const point of [...timed].sort((left, right) => right.seconds - left.seconds)) {
    const bound = BOUNDS[point.bound]?.[0] ?? "s7";
    const dot = draw("circle", { class: `${bound} fill`, cx: box.toX(point.intensity), cy: box.toY(point.flops_per_second), r: 4 + 13 * Math.sqrt(point.seconds / longest) });
    const text = `${point.name}\n${ratio(point.intensity)} FLOPs per byte, ${metric(point.flops_per_second, "FLOP/s")}\n${seconds(point.seconds)} per step` +
      (point.percent_of_roof == null ? "" : `, ${percent(point.percent_of_roof)} of its roof`);
    parts.push(withTip(draw("a", { href: link(point), "aria-label": text.replaceAll("\n", ", ") }, dot), text));
  }
  if (data.step) {
    const [cx, cy] = [box.toX(data.step.intensity), box.toY(data.step.flops_per_second)];
    parts.push(withTip(draw("path", { class: "s6 fill", d: `M${cx - 8} ${cy}L${cx} ${cy - 8}L${cx + 8} ${cy}L${cx} ${cy + 8}Z` }), `${data.step.name}\n${metric(data.step.flops_per_second, "FLOP/s")}`));
  }
  const key = make("ul", { class: "legend" },
    [...Object.entries(BOUNDS).filter(([name]) => timed.some((point) => point.bound === name)).map(([, shown]) => shown), data.step && ["s6", "the whole step"]].filter(Boolean)
      .map(([kind, text]) => make("li", { class: kind }, make("i", { class: "fill" }), text)),
    make("li", { class: "note" }, "area: time per step; choose a point to see its row" +
      (timed.some((point) => point.percent_of_roof > 100) ? "; above its roof: its inputs were still in a cache" : "")));
  return make("figure", {}, draw("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Roofline; the table below has the figures" }, parts), key);
}
