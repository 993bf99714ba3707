// The list of runs: sort, filter, choose two to compare.

import { load, main, make, say, start } from "./page.js";
import { table } from "./table.js";
import { count, mebibytes, metric, mfu, plain, seconds, share } from "./numbers.js";

const unseen = (text) => make("span", { class: "unseen" }, text);

start(async () => {
  const { runs, notes, may_change: mayChange, learning } = await load("/api/runs");
  const chosen = [];
  const compare = make("button", { type: "button", class: "primary", disabled: true, title: "Tick two runs to compare them", onclick: openComparison }, "Compare two");
  const search = make("input", { type: "search", placeholder: "Filter: name, size, version, status", "aria-label": "Filter runs" });
  const tally = make("span", { class: "note", role: "status" });

  const columns = [
    { title: unseen("compare"), cell: (run) => make("input", {
      type: "checkbox", "aria-label": `Compare ${run.name}`, "data-choose": run.id, onchange: (event) => choose(run, event.target),
    }) },
    { title: "name", value: (run) => run.name, cell: (run) => make("a", { href: `/runs/${run.id}/overview`, title: run.folder }, run.name), kind: "long" },
    { title: "status", value: (run) => run.status, cell: statusCell },
    { title: "size", value: (run) => run.size },
    { title: "version", kind: "version", value: (run) => run.version, cell: (run) => run.version?.replaceAll(",", ", ") },
    { title: "started", value: (run) => run.timestamp, cell: (run) => run.timestamp?.replace("T", " ").replace("Z", "") },
    { title: "parameters", number: true, value: (run) => run.parameters, cell: (run) => count(run.parameters) },
    { title: "step", help: "median", number: true, value: (run) => run.step_seconds, cell: (run) => seconds(run.step_seconds) },
    { title: "tokens/s", number: true, value: (run) => run.tokens_per_second, cell: (run) => metric(run.tokens_per_second) },
    { title: "peak memory", number: true, value: (run) => run.peak_memory_mb, cell: (run) => mebibytes(run.peak_memory_mb) },
    { title: "MFU", number: true, value: (run) => run.mfu_percent, cell: (run) => mfu(run.mfu_percent) },
    { title: "busy", help: "share of the step in which the device worked", number: true, value: (run) => run.busy_share, cell: (run) => run.busy_share == null ? null : share(run.busy_share) },
    { title: "bound by", value: (run) => run.bound },
    runs.some((run) => run.kind === "trace") && { title: "first finding", kind: "long", value: (run) => run.first_finding },
    { title: "loss", number: true, value: (run) => run.final_loss, cell: (run) => plain(run.final_loss) },
  ].filter(Boolean);
  if (mayChange) columns.push({ title: unseen("change"), cell: (run) => (run.kind === "run" ? [nameButton(run), " ", deleteButton(run)] : "") });
  const list = table({
    columns, rows: runs, sort: { column: 5, descending: true }, mark: (run) => ({ "data-run": run.id }),
    empty: runs.length ? "No run matches the filter." : "No runs yet: `headroom profile` makes one here, under runs/.",
  });

  main.append(make("h1", {}, "Runs"), notes.length ? make("div", { class: "reserve" }, notes.map((note) => make("p", {}, note))) : "", make("div", { class: "bar" }, search, compare, tally), list.element);
  search.addEventListener("input", filter);
  filter();
  if (learning) follow();

  /** Traces are read after the list was sent: their figures come as they are known. */
  async function follow() {
    await new Promise((done) => setTimeout(done, 1500));
    const next = await load("/api/runs").catch(() => null);
    if (!next) return;
    const known = new Map(next.runs.map((run) => [run.id, run]));
    for (const run of runs) Object.assign(run, known.get(run.id));
    filter();
    if (next.learning) follow();
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (run) => [run.name, run.size, run.version, run.status, run.kind, run.device, run.bound, run.first_finding].join(" ").toLowerCase();
    const kept = runs.filter((run) => words.every((word) => text(run).includes(word)));
    list.show(kept);
    tally.textContent = `${kept.length} of ${runs.length}`;
    for (const box of list.element.querySelectorAll("[data-choose]")) box.checked = chosen.includes(box.dataset.choose);
  }

  function choose(run, box) {
    if (box.checked) chosen.push(run.id);
    else chosen.splice(chosen.indexOf(run.id), 1);
    // The one chosen first makes way for a third.
    while (chosen.length > 2) {
      const dropped = chosen.shift();
      const old = list.element.querySelector(`[data-choose="${dropped}"]`);
      if (old) old.checked = false;
    }
    compare.disabled = chosen.length !== 2;
  }

  function openComparison() {
    location.href = `/compare/${chosen[0]}/${chosen[1]}`;
  }

  function statusCell(run) {
    if (run.kind === "trace") return make("span", { class: "note" }, "trace");
    if (run.status === "running") return make("a", { class: "running", href: `/runs/${run.id}/live` }, make("span", { class: "pulse" }, "●"), " running");
    return make("span", { class: run.status }, run.status);
  }

  function deleteButton(run) {
    return make("button", { type: "button", class: "danger", "aria-label": `Delete ${run.name}`, onclick: () => {
      if (!confirm(`Delete the files of ${run.name}?\n${run.folder}`)) return;
      change(`/api/runs/${run.id}`, { method: "DELETE" }, () => {
        runs.splice(runs.indexOf(run), 1);
        say(`${run.name} was deleted.`);
      });
    } }, "Delete");
  }

  function nameButton(run) {
    return make("button", { type: "button", "aria-label": `Name ${run.name}`, onclick: () => {
      const name = prompt("Name of the run (empty: none)", run.name);
      if (name === null) return;
      change(`/api/runs/${run.id}/name`, { method: "PUT", body: name }, () => location.reload());
    } }, "Name");
  }

  async function change(path, request, done) {
    try {
      await load(path, request);
      done();
      filter();
    } catch (error) {
      say(error.message, "problem");
    }
  }
});
