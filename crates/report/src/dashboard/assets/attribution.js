// Selective training: which nodes were updated at which steps.

import { colour, load, main, make, runId, showTip, start } from "./page.js";
import { table } from "./table.js";
import { count, plain, share } from "./numbers.js";

start(async () => {
  const data = await load(`/api/runs/${runId}/attribution`);
  const chosen = data.chosen.reduce((sum, nodes) => sum + nodes.length, 0);
  const all = data.nodes.length * data.steps.length || 1;
  const total = data.total_steps || data.steps.length;
  const rule = data.update ? `--update ${data.update}: ` : "";
  const parameters = data.total_steps ? `, ${share(data.updated_share)} of what a dense run would have updated` : "";
  main.append(make("h2", {}, "Attribution", make("small", {},
    `${rule}${count(data.nodes.length)} nodes over ${count(total)} steps; ${share(chosen / all)} of all updates were made${parameters}`)));
  if (data.working_on_now) main.append(make("p", { class: "answer" }, make("strong", {}, "What is the model working on now? "), data.working_on_now));
  const map = make("canvas", { role: "img", "aria-label": "Nodes over steps: dark where a node was updated; the table below has the counts" });
  const names = data.nodes.length <= 48 ? data.nodes : [];
  main.append(make("figure", { class: "heat" }, make("ol", { "aria-hidden": "true" }, names.map((name) => make("li", {}, name))), map,
    make("div", { class: "note steps", "aria-hidden": "true" }, make("span", {}, `step ${data.steps[0]}`), make("span", {}, `step ${data.steps.at(-1)}`))));
  paint(map, data);
  addEventListener("themechange", () => paint(map, data));
  map.addEventListener("pointermove", (event) => {
    const area = map.getBoundingClientRect();
    const step = Math.min(data.steps.length - 1, Math.floor(((event.clientX - area.left) / area.width) * data.steps.length));
    const node = Math.min(data.nodes.length - 1, Math.floor(((event.clientY - area.top) / area.height) * data.nodes.length));
    const place = data.chosen[step]?.indexOf(node) ?? -1;
    const part = data.shares?.[step]?.[place] ?? 1;
    const was = place < 0 ? "left alone" : part < 1 ? `updated by ${share(part)} of a full step` : "updated";
    const norm = data.norms?.[step] ? `\nnorm of its gradient ${finite(data.norms[step][node])}` : "";
    showTip(`${data.nodes[node]}\nstep ${data.steps[step]}: ${was}${norm}`, event.clientX, event.clientY);
  });
  map.addEventListener("pointerleave", () => showTip(""));
  const rows = data.nodes.map((name, at) => ({ name, at, updates: data.updates[at], moved: data.moved[at], parameters: data.parameters?.[at] }));
  main.append(table({
    columns: [
      { title: "node", heading: true, kind: "long", value: (row) => row.name },
      ...(data.parameters?.length ? [{ title: "parameters", number: true, value: (row) => row.parameters, cell: (row) => count(row.parameters) }] : []),
      { title: "updates", number: true, value: (row) => row.updates, cell: (row) => count(row.updates) },
      { title: "share of steps", number: true, value: (row) => row.updates / total, cell: (row) => share(row.updates / total) },
      { title: "moved", help: "norm of the difference from the start", number: true, value: (row) => row.moved, cell: (row) => (row.moved === null ? finite(null) : row.moved.toFixed(4)) },
    ],
    rows, sort: { column: data.parameters?.length ? 2 : 1, descending: true }, mark: (row) => ({ "data-node": row.name }),
  }).element);
});

/** A figure that may have stopped being one. */
const finite = (number) => (number === null ? "not finite" : plain(number));

/** A pixel a node and step, as far as canvases go; the browser scales it up. */
function paint(map, data) {
  const most = 4096;
  const [across, down] = [Math.ceil(data.steps.length / most), Math.ceil(data.nodes.length / most)];
  map.width = Math.max(1, Math.ceil(data.steps.length / across));
  map.height = Math.max(1, Math.ceil(data.nodes.length / down));
  map.style.height = `${Math.max(120, Math.min(560, data.nodes.length * 14))}px`;
  const context = map.getContext("2d");
  context.fillStyle = colour("--panel");
  context.fillRect(0, 0, map.width, map.height);
  context.fillStyle = colour("--c1");
  data.chosen.forEach((nodes, step) => nodes.forEach((node, place) => {
    // A part of a step is paler, and still to be seen.
    context.globalAlpha = 0.25 + 0.75 * (data.shares?.[step]?.[place] ?? 1);
    context.fillRect(Math.floor(step / across), Math.floor(node / down), 1, 1);
  }));
  context.globalAlpha = 1;
}
