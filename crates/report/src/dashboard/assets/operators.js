// Operators and kernels: search, sort, group by module.

import { load, main, make, runId, start } from "./page.js";
import { shareCell, table } from "./table.js";
import { bytes, count, metric, percent, ratio, seconds, share } from "./numbers.js";

start(async () => {
  const data = await load(`/api/runs/${runId}/operators`);
  const wanted = new URLSearchParams(location.search).get("find") ?? "";
  const search = make("input", { type: "search", placeholder: "Search: name, module, phase", "aria-label": "Search operators and kernels", value: wanted });
  const group = make("input", { type: "checkbox", id: "group" });
  const tally = make("span", { class: "note", role: "status" });
  main.append(make("div", { class: "bar" }, search, make("label", { for: "group" }, group, " group by module"), tally,
    data.kernels.length > 0 && make("a", { class: "right", href: "#kernels" }, "to the kernels")));

  const hostDiffers = data.rows.some((row) => row.host_seconds !== row.seconds);
  const largest = (rows) => rows.reduce((most, row) => Math.max(most, row.share), 0) || 1;
  const has = (key) => data.rows.some((row) => row[key] != null && row[key] !== "");
  const columns = [
    { title: "operator", heading: true, kind: "long", value: (row) => row.name, cell: (row) => dotted(row.name) },
    has("module") && { title: "module", kind: "long", value: (row) => row.module || null, cell: (row) => dotted(row.module) },
    has("phase") && { title: "phase", value: (row) => row.phase || null },
    { title: "calls", help: "per step", number: true, value: (row) => row.calls, cell: (row) => count(row.calls) },
    { title: "self time", help: "per step", number: true, value: (row) => row.seconds, cell: (row) => seconds(row.seconds) },
    { title: "share", help: `of ${data.share_of}`, number: true, value: (row) => row.share, cell: (row) => shareCell(row.share, largest(data.rows), share(row.share)) },
    hostDiffers && { title: "on the host", help: "self time per step", number: true, value: (row) => row.host_seconds, cell: (row) => seconds(row.host_seconds) },
    has("flops") && { title: "FLOPs", number: true, value: (row) => row.flops, cell: (row) => metric(row.flops) },
    has("bytes") && { title: "bytes", number: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
    has("intensity") && { title: "FLOPs/byte", number: true, value: (row) => row.intensity, cell: (row) => ratio(row.intensity) },
    has("bound") && { title: "bound by", value: (row) => row.bound },
    has("percent_of_roof") && { title: "share of roof", number: true, value: (row) => row.percent_of_roof, cell: (row) => percent(row.percent_of_roof) },
  ].filter(Boolean);
  const time = columns.findIndex((column) => column.title === "self time");
  const label = (row) => [row.name, row.module, row.phase].filter(Boolean).join(" · ");
  const operators = table({
    caption: `Self time of a mean step; shares are of ${data.share_of}`,
    columns, rows: data.rows, sort: { column: time, descending: true },
    mark: (row) => ({ "data-operator": row.name, class: wanted && (label(row) === wanted || row.name === wanted) ? "found" : "" }),
    groupCells: (_, rows) => columns.slice(1).map((column) => {
      const sum = (key) => rows.reduce((total, row) => total + (row[key] ?? 0), 0);
      if (column.title === "self time") return seconds(sum("seconds"));
      if (column.title === "share") return share(sum("share"));
      if (column.title === "calls") return count(sum("calls"));
      return "";
    }),
  });
  main.append(make("section", { "aria-label": "Operators" }, make("h2", {}, "Operators"), operators.element));

  const kernels = data.kernels.length && table({
    caption: "Kernels on the device, per step",
    columns: [
      { title: "kernel", heading: true, kind: "long mono", value: (row) => row.shown, cell: (row) => make("span", { title: row.name }, row.shown) },
      { title: "launched by", value: (row) => row.operator || null },
      data.kernels.some((row) => row.module) && { title: "module", kind: "long", value: (row) => row.module || null, cell: (row) => dotted(row.module) },
      { title: "calls", number: true, value: (row) => row.calls, cell: (row) => count(row.calls) },
      { title: "time", number: true, value: (row) => row.seconds, cell: (row) => seconds(row.seconds) },
      { title: "share", number: true, value: (row) => row.share, cell: (row) => shareCell(row.share, largest(data.kernels), share(row.share)) },
      data.kernels.some((row) => row.occupancy_percent != null) && { title: "occupancy", help: "the profiler's estimate", number: true, value: (row) => row.occupancy_percent, cell: (row) => percent(row.occupancy_percent) },
    ].filter(Boolean),
    rows: data.kernels,
  });
  if (kernels) main.append(make("section", { "aria-label": "Kernels" }, make("h2", { id: "kernels" }, "Kernels"), kernels.element));

  function filter() {
    const words = search.value.toLowerCase().split(/[\s·]+/).filter(Boolean);
    const fits = (text) => words.every((word) => text.toLowerCase().includes(word));
    const rows = data.rows.filter((row) => fits(label(row)));
    operators.show(rows);
    const found = data.kernels.filter((row) => fits(`${row.name} ${row.operator} ${row.module}`));
    kernels?.show?.(found);
    const parts = [`${rows.length} of ${data.rows.length} operators`];
    if (data.kernels.length) parts.push(`${found.length} of ${data.kernels.length} kernels`);
    tally.textContent = parts.join(", ");
  }
  search.addEventListener("input", filter);
  group.addEventListener("change", () => operators.group(group.checked ? (row) => row.module : null));
  filter();
  main.querySelector("tr.found")?.scrollIntoView({ block: "center" });
});

/** A name that may break after its dots, colons and underscores, and not within a word. */
function dotted(name) {
  return name ? name.split(/(?<=[._:])(?=[^._:])/).flatMap((part, at) => (at ? [make("wbr"), part] : [part])) : null;
}
