// The timeline: from a whole run to one kernel, by pointer and by keyboard.

import { main, make, runId, say, showTip, start } from "./page.js";
import { layout, paint, palette, ROW } from "./timeline_drawing.js";
import { eventAt, fetchTimeline, isMatch, longestIn, matches, NO_EVENT } from "./timeline_data.js";
import { table } from "./table.js";
import { count, nanos } from "./numbers.js";

const SMALLEST_NANOS = 50;
/** Of the window, a frame. */
const PAN_A_FRAME = 0.018;
const ZOOM_A_FRAME = 1.035;
const MOVES = {
  ArrowLeft: "left", a: "left", ArrowRight: "right", d: "right", w: "in", "+": "in", "=": "in", s: "out", "-": "out",
};

start(async () => {
  const data = await fetchTimeline(runId);
  const places = layout(data);
  let colours = palette(data);
  const view = { from: 0, to: data.span, scroll: 0, width: 0, height: 0, selected: null, found: null, steps: data.steps, path: false };
  const held = new Set();
  let dirty = true;

  const search = make("input", { type: "search", placeholder: "Find events", "aria-label": "Find events by name" });
  const tally = make("span", { class: "note", role: "status" });
  const canvas = make("canvas", { "aria-hidden": "true" });
  const spacer = make("div");
  const area = make("div", {
    class: "view", tabindex: 0, role: "application", "aria-label": "Timeline", "aria-describedby": "keys",
  }, canvas, spacer);
  const chosen = make("section", { "aria-live": "polite", "aria-label": "Chosen event" });
  const longest = make("section", { "aria-label": "Longest in view" });
  const button = (text, label, act) => make("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  const pathButton = make("button", {
    type: "button", "aria-pressed": "false", title: "Mark the work that sets the steps' length", disabled: !data.path.length, onclick: markPath,
  }, "Critical path");
  main.append(
    make("div", { class: "bar" }, search, tally,
      make("span", { class: "right" }), button("−", "Zoom out", () => zoom(1.6)), button("+", "Zoom in", () => zoom(1 / 1.6)),
      button("All", "Show all", fit), button("Step", "Show one step", showStep), pathButton),
    make("div", { class: "timeline" }, area),
    make("p", { class: "note", id: "keys" },
      keys("A", "D"), " pan, ", keys("W", "S"), " zoom (or Ctrl with the wheel), ", keys("[", "]"), " previous and next event, ",
      keys("Z"), " zoom to it, ", keys("L"), " its launch, ", keys("N"), " next match, ", keys("0"), " all"),
    make("p", { class: "note legend" }, make("span", {}, "The strip below the ruler is the critical path:"), ["host", "launch", "device"].map(mark)),
    make("div", { class: "details" }, chosen, longest));

  function mark(name) {
    return make("span", {}, make("i", { class: `path ${name}` }), name);
  }

  function markPath() {
    view.path = !view.path;
    pathButton.setAttribute("aria-pressed", String(view.path));
    dirty = true;
  }

  function keys(...names) {
    return make("span", {}, names.flatMap((name, at) => [at ? " " : "", make("kbd", {}, name)]));
  }

  function resize() {
    const ratio = devicePixelRatio || 1;
    // As high as the rows ask for and the screen allows.
    area.style.height = `${Math.max(150, Math.min(places.height + 10, innerHeight - 320))}px`;
    view.width = area.clientWidth;
    view.height = area.clientHeight;
    canvas.width = Math.round(view.width * ratio);
    canvas.height = Math.round(view.height * ratio);
    canvas.style.width = `${view.width}px`;
    canvas.style.height = `${view.height}px`;
    spacer.style.height = `${Math.max(0, places.height - view.height)}px`;
    canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    dirty = true;
  }

  /** Keeps the window within the trace, with a little air at both ends. */
  function show(from, to) {
    const length = Math.max(SMALLEST_NANOS, Math.min(to - from, data.span * 1.04));
    const middle = (from + to) / 2;
    const air = data.span * 0.02;
    const begin = Math.max(-air, Math.min(middle - length / 2, data.span + air - length));
    [view.from, view.to] = [begin, begin + length];
    dirty = true;
    later();
  }

  const pan = (part) => show(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));
  function zoom(factor, at = 0.5) {
    const length = view.to - view.from;
    const still = view.from + at * length;
    const wanted = Math.max(SMALLEST_NANOS, length * factor);
    show(still - at * wanted, still + (1 - at) * wanted);
  }
  function fit() {
    show(-data.span * 0.02, data.span * 1.02);
  }
  function showStep() {
    const middle = (view.from + view.to) / 2;
    const step = data.steps.find((step) => middle >= step.start && middle < step.end) ?? data.steps[0];
    if (step) show(step.start, step.end);
  }

  function frame() {
    const moves = new Set([...held].map((key) => MOVES[key]));
    if (moves.has("left")) pan(-PAN_A_FRAME);
    if (moves.has("right")) pan(PAN_A_FRAME);
    if (moves.has("in")) zoom(1 / ZOOM_A_FRAME);
    if (moves.has("out")) zoom(ZOOM_A_FRAME);
    if (dirty) {
      dirty = false;
      view.scroll = area.scrollTop;
      const began = performance.now();
      paint(canvas.getContext("2d"), data, places, colours, view);
      area.dataset.paintMilliseconds = performance.now() - began;
      area.dataset.window = `${view.from} ${view.to}`;
      area.dataset.frames = Number(area.dataset.frames ?? 0) + 1;
      area.dataset.firstPaint ??= performance.now();
    }
    requestAnimationFrame(frame);
  }

  let timer = 0;
  /** What costs a walk over events waits until the window stands still. */
  function later() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const rows = longestIn(data, view.from, view.to, 8);
      longest.replaceChildren(make("h2", {}, "Longest in view", make("small", {}, nanos(view.to - view.from))), table({
        columns: [
          { title: "name", heading: true, kind: "long", value: (row) => data.names[row.name] },
          { title: "events", number: true, value: (row) => row.calls, cell: (row) => count(row.calls) },
          { title: "time", help: "including what runs inside", number: true, value: (row) => row.nanos, cell: (row) => nanos(row.nanos) },
        ],
        rows, empty: "No events here.",
      }).element);
    }, 200);
  }

  function rowOf(event) {
    return places.rows.findIndex((row) => event >= row.from && event < row.to);
  }

  function select(event) {
    view.selected = event;
    dirty = true;
    if (event == null) return chosen.replaceChildren();
    const row = places.rows[rowOf(event)];
    const lane = places.lanes.findLast((lane) => lane.top <= row.top);
    const launcher = data.launcher[event];
    const facts = [
      ["kind", data.categories[data.category[event]]], ["starts", nanos(data.start[event])], ["takes", nanos(data.end[event] - data.start[event])],
      ["module", data.names[data.module[event]]], ["where", lane.name],
      ["launched by", launcher === NO_EVENT ? "" : `${data.names[data.name[launcher]]}, ${nanos(data.start[event] - data.start[launcher])} earlier`],
    ].filter(([, value]) => value);
    chosen.replaceChildren(make("h2", { id: "chosen" }, data.names[data.name[event]]),
      make("dl", { class: "plain" }, facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
    if (row.top < area.scrollTop + places.head || row.top + ROW > area.scrollTop + view.height) area.scrollTop = row.top - view.height / 2;
  }

  /** Selects, and brings it into the window where it is not. */
  function goTo(event) {
    select(event);
    if (data.end[event] < view.from || data.start[event] > view.to) {
      const half = (view.to - view.from) / 2;
      const middle = (data.start[event] + data.end[event]) / 2;
      show(middle - half, middle + half);
    }
  }

  function zoomTo(event) {
    const length = Math.max(data.end[event] - data.start[event], SMALLEST_NANOS);
    show(data.start[event] - length * 0.6, data.end[event] + length * 0.6);
  }

  function neighbour(direction) {
    if (view.selected == null) {
      const first = places.rows.map((row) => eventAt(data, row, (view.from + view.to) / 2, (view.to - view.from) / 2)).find((event) => event != null);
      if (first != null) goTo(first);
      return;
    }
    const row = places.rows[rowOf(view.selected)];
    const next = view.selected + direction;
    if (next >= row.from && next < row.to) goTo(next);
  }

  function nextMatch() {
    if (!view.found?.total) return;
    const from = view.selected ?? -1;
    for (let step = 1; step <= data.events; step += 1) {
      const at = (from + step + data.events) % data.events;
      if (isMatch(view.found, at)) return goTo(at);
    }
  }

  function under(event) {
    const box = area.getBoundingClientRect();
    const time = view.from + ((event.clientX - box.left) / view.width) * (view.to - view.from);
    const y = event.clientY - box.top + area.scrollTop;
    const row = places.rows.find((row) => y >= row.top && y < row.top + ROW);
    return row && event.clientY - box.top > places.head ? eventAt(data, row, time, (2 / view.width) * (view.to - view.from)) : null;
  }

  area.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (MOVES[key]) { held.add(key); event.preventDefault(); return; }
    const act = {
      0: fit, f: fit, "[": () => neighbour(-1), "]": () => neighbour(1), Enter: () => neighbour(1), n: nextMatch, Escape: () => select(null),
      z: () => view.selected != null && zoomTo(view.selected),
      l: () => view.selected != null && data.launcher[view.selected] !== NO_EVENT && goTo(data.launcher[view.selected]),
    }[key];
    if (act) { act(); event.preventDefault(); }
  });
  area.addEventListener("keyup", (event) => held.delete(event.key.length === 1 ? event.key.toLowerCase() : event.key));
  area.addEventListener("blur", () => held.clear());
  area.addEventListener("scroll", () => { dirty = true; });
  area.addEventListener("wheel", (event) => {
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) zoom(1.002 ** event.deltaY, (event.clientX - area.getBoundingClientRect().left) / view.width);
    else if (Math.abs(sideways) > 0) pan(sideways / view.width);
    else return;
    event.preventDefault();
  }, { passive: false });

  let drag = null;
  area.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, from: view.from, to: view.to, scroll: area.scrollTop, moved: false };
    area.setPointerCapture(event.pointerId);
  });
  area.addEventListener("pointermove", (event) => {
    if (!drag) {
      const event_ = under(event);
      return showTip(event_ == null ? "" : `${data.names[data.name[event_]]}\n${nanos(data.end[event_] - data.start[event_])}`, event.clientX, event.clientY);
    }
    drag.moved ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 4;
    if (!drag.moved) return;
    area.classList.add("dragging");
    const shift = ((drag.x - event.clientX) / view.width) * (drag.to - drag.from);
    show(drag.from + shift, drag.to + shift);
    area.scrollTop = drag.scroll + drag.y - event.clientY;
  });
  area.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) select(under(event));
    drag = null;
    area.classList.remove("dragging");
  });
  area.addEventListener("pointerleave", () => showTip(""));
  area.addEventListener("dblclick", (event) => {
    const at = under(event);
    if (at != null) zoomTo(at);
  });
  search.addEventListener("input", () => {
    view.found = matches(data, search.value);
    tally.textContent = view.found ? `${count(view.found.total)} of ${count(data.events)} events` : "";
    dirty = true;
  });
  search.addEventListener("keydown", (event) => event.key === "Enter" && nextMatch());
  new ResizeObserver(resize).observe(area);
  addEventListener("resize", resize);
  addEventListener("themechange", () => { colours = palette(data); dirty = true; });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours = palette(data); dirty = true; });

  resize();
  fit();
  tally.textContent = `${count(data.events)} events`;
  if (!data.events) say("The trace holds no events.");
  requestAnimationFrame(frame);
});
