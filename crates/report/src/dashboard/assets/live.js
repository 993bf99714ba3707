// A run while it goes on: loss, speed and memory as they come.

import { load, main, make, runId, say, start } from "./page.js";
import { lineChart } from "./charts.js";
import { table } from "./table.js";
import { count, mebibytes, metric, plain, seconds } from "./numbers.js";

const PAUSE_MILLISECONDS = 1000;

start(async () => {
  const head = make("p", { class: "sub", id: "progress", role: "status" });
  const charts = make("div", { class: "two" });
  const log = make("pre", { class: "log mono", tabindex: 0, "aria-label": "The end of the log" });
  const steps = make("div");
  main.append(make("h2", {}, "Live"), head, charts, make("h2", {}, "Log"), log, make("h2", {}, "Steps"), steps);

  let seen = "";
  async function update() {
    const data = await load(`/api/runs/${runId}/live`);
    const newest = data.points.at(-1);
    const state = { running: "The run is in progress", finished: "The run has finished", stopped: "The run was stopped" }[data.status];
    const left = newest && data.last_step ? (data.last_step - newest.step) * newest.seconds : null;
    head.textContent = newest
      ? `${state}: step ${count(newest.step)} of ${count(data.last_step)}, ${metric(newest.samples_per_sec, "samples/s")}` +
        (data.status === "running" && left != null ? `, about ${seconds(left)} left` : "")
      : `${state}; no step has been logged yet.`;
    const signature = JSON.stringify([data.points.length, data.log, data.status]);
    if (signature !== seen) show(data);
    seen = signature;
    return data.status;
  }

  function show(data) {
    log.textContent = data.log.join("\n");
    const chart = (title, key, format, series, fromZero) => make("section", {}, make("h2", {}, title),
      lineChart({
        points: data.points.filter((point) => point[key] != null).map((point) => [point.step, point[key]]),
        label: `${title} by step; the table below has the figures`, xTitle: "step", yFormat: format, series, fromZero,
      }));
    charts.replaceChildren(
      chart("Loss", "loss", plain, 1, false), chart("Speed, samples per second", "samples_per_sec", (value) => metric(value), 3, true),
      chart("Memory of the process", "memory_mb", mebibytes, 2, true), chart("Time per step", "seconds", seconds, 4, true));
    steps.replaceChildren(table({
      columns: [
        { title: "step", heading: true, number: true, value: (point) => point.step },
        { title: "loss", number: true, value: (point) => point.loss, cell: (point) => plain(point.loss) },
        { title: "time", number: true, value: (point) => point.seconds, cell: (point) => seconds(point.seconds) },
        { title: "samples/s", number: true, value: (point) => point.samples_per_sec, cell: (point) => plain(point.samples_per_sec) },
        { title: "memory", number: true, value: (point) => point.memory_mb, cell: (point) => mebibytes(point.memory_mb) },
      ],
      rows: data.points, sort: { column: 0, descending: true }, empty: "No step has been logged yet.",
      mark: (point) => ({ "data-step": point.step }),
    }).element);
  }

  async function follow() {
    try {
      const status = await update();
      say("");
      if (status !== "running") return;
    } catch (error) {
      say(error.message, "problem");
    }
    setTimeout(follow, PAUSE_MILLISECONDS);
  }
  await follow();
});
