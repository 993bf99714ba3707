// Memory over time by category, and what is alive at a moment.

import { load, main, make, runId, showTip, start } from "./page.js";
import { legend, stackedChart } from "./charts.js";
import { table } from "./table.js";
import { bytes, count, seconds } from "./numbers.js";

start(async () => {
  const data = await load(`/api/runs/${runId}/memory`);
  main.append(make("h2", {}, "Memory", make("small", {}, `peak ${bytes(data.peak_bytes)}; ${data.note}`)));
  if (!data.seconds.length) {
    main.append(make("p", { class: "empty" }, "Nothing was recorded about memory: record with profile_memory=True."));
    return;
  }
  const totals = data.seconds.map((_, at) => data.bytes.reduce((sum, series) => sum + series[at], 0));
  const highest = totals.reduce((best, total, at) => (total > totals[best] ? at : best), 0);
  const describe = (at) => [
    `${seconds(data.seconds[at])}: ${bytes(totals[at])}`, data.labels[at],
    ...data.categories.map((name, series) => `${name} ${bytes(data.bytes[series][at])}`),
  ].filter(Boolean);
  const chart = stackedChart({
    seconds: data.seconds, series: data.bytes, top: totals[highest], xFormat: seconds, yFormat: bytes,
    label: "Live memory over time: arrow keys choose a moment; tensors alive then are listed below",
    onMove: (at, event) => showTip(describe(at).join("\n"), event.clientX, event.clientY),
    onPick: pick,
  });
  const keys = make("div");
  const bar = make("div", { class: "bar" },
    make("button", { type: "button", id: "peak", onclick: () => pick(highest) }, "Go to the peak"),
    make("span", { class: "note" }, "Click or use ", make("kbd", {}, "←"), " ", make("kbd", {}, "→"), " to choose a moment"));
  const moment = make("section", { "aria-live": "polite", "aria-label": "Alive at the chosen moment" });
  main.append(chart.svg, keys, bar, moment);

  let chosen = highest;
  chart.svg.addEventListener("keydown", (event) => {
    const jump = event.shiftKey ? 20 : 1;
    const to = { ArrowLeft: chosen - jump, ArrowRight: chosen + jump, Home: 0, End: data.seconds.length - 1 }[event.key];
    if (to == null) return;
    event.preventDefault();
    pick(Math.max(0, Math.min(data.seconds.length - 1, to)));
  });

  let newest = 0;
  async function pick(at) {
    chosen = at;
    chart.point(at, describe(at).join(", "));
    keys.replaceChildren(legend(data.categories, data.bytes.map((series) => bytes(series[at]))));
    const mine = (newest += 1);
    try {
      const alive = await load(`/api/runs/${runId}/alive/${data.seconds[at] * 1e6}`);
      if (mine === newest) moment.replaceChildren(...list(alive, at));
    } catch (error) {
      if (mine === newest) moment.replaceChildren(make("p", { class: "note" }, error.message));
    }
  }

  function list(alive, at) {
    const unseen = alive.total_bytes - alive.seen_bytes;
    const about = [
      `${bytes(totals[at])} live`, data.labels[at],
      unseen > 0 ? `${bytes(unseen)} of it was there before the recording began` : null,
      alive.left_out ? `${alive.left_out} smaller rows are left out` : null,
    ].filter(Boolean).join("; ");
    return [
      make("h2", { id: "alive" }, `Alive at ${seconds(data.seconds[at])}`, make("small", {}, about)),
      table({
        columns: [
          { title: "allocated by", heading: true, kind: "long", value: (row) => row.operator },
          { title: "module", kind: "long", value: (row) => row.module || null },
          { title: "blocks", number: true, value: (row) => row.blocks, cell: (row) => count(row.blocks) },
          { title: "size", number: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
          { title: "since", help: "the oldest of them", number: true, value: (row) => row.since_seconds, cell: (row) => seconds(row.since_seconds) },
        ],
        rows: alive.rows, sort: { column: 3, descending: true },
        empty: "Nothing that was allocated during the recording is alive here.",
      }).element,
    ];
  }
  await pick(highest);
});
