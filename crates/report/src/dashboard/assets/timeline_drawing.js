// Painting the timeline: what is wider than a pixel as itself, what is not as the share of the pixel that it covers.

import { colour } from "./page.js";
import { ticks } from "./charts.js";
import { firstAbove, FRAMES, isMatch, NO_EVENT } from "./timeline_data.js";
import { nanos } from "./numbers.js";

export const ROW = 17;
export const LANE = 22;
const RULER = 38;
/** Below the ruler, where they are shown: the critical path, the queue over time and counters. */
const PATH = 9;
const QUEUE = 38;
/** Of which this much is for its label, above the curve. */
const LABEL = 13;
/** Narrower than this, events are painted together. */
const APART_PIXELS = 2;

/** The queue's strip and one for each counter. */
const curvesHeight = (data) => QUEUE * ((data.queueMost > 0 ? 1 : 0) + data.counters.length);

/** Where rows lie below each other, in pixels from the top of everything. */
export function layout(data) {
  const rows = [];
  const head = RULER + PATH + curvesHeight(data);
  let top = head;
  const lanes = data.lanes.map((lane) => {
    const place = { name: lane.name, top };
    top += LANE;
    for (const row of lane.rows) {
      rows.push({ ...row, top });
      top += ROW;
    }
    top += 6;
    return place;
  });
  return { lanes, rows, head, height: top };
}

/** A colour a name, so that the same operator looks the same everywhere; what only frames others stays grey. */
export function palette(data) {
  const dark = colour("color-scheme") === "dark" || getComputedStyle(document.documentElement).colorScheme === "dark";
  const frames = data.categories.map((name) => FRAMES.has(name));
  const hashes = data.names.map((name) => {
    let hash = 2166136261;
    for (let at = 0; at < name.length; at += 1) hash = Math.imul(hash ^ name.charCodeAt(at), 16777619);
    return hash >>> 0;
  });
  const named = hashes.map((hash) => (dark
    ? `hsl(${(hash % 24) * 15} 32% ${36 + ((hash >>> 8) % 3) * 4}%)`
    : `hsl(${(hash % 24) * 15} 52% ${74 + ((hash >>> 8) % 3) * 4}%)`));
  const framed = hashes.map((hash) => (dark ? `hsl(210 8% ${24 + (hash % 4) * 2}%)` : `hsl(210 14% ${86 + (hash % 4) * 2}%)`));
  return {
    of: (at) => (frames[data.category[at]] ? framed : named)[data.name[at]],
    text: colour("--text"), soft: colour("--soft"), line: colour("--line"), faint: colour("--faint"), background: colour("--bg"), accent: colour("--accent"),
    host: colour("--path-host"), launch: colour("--path-launch"), device: colour("--path-device"),
  };
}

/** Paints what `view` shows: its window in time, how far it is scrolled, its size in pixels. */
export function paint(context, data, places, colours, view) {
  const { width, height, from, to, scroll, selected, found } = view;
  const scale = width / (to - from);
  context.globalAlpha = 1;
  context.fillStyle = colours.background;
  context.fillRect(0, 0, width, height);
  paintSteps(context, data, colours, view, scale);
  context.font = "11px system-ui, Arial, sans-serif";
  context.textBaseline = "middle";
  for (const row of places.rows) {
    const top = row.top - scroll;
    if (top + ROW > places.head && top < height) paintRow(context, data, row, top, colours, view, scale);
  }
  context.globalAlpha = 1;
  for (const lane of places.lanes) {
    const top = lane.top - scroll;
    if (top + LANE < places.head || top > height) continue;
    context.fillStyle = colours.background;
    context.fillRect(0, top + 2, width, LANE - 3);
    context.fillStyle = colours.faint;
    context.fillRect(0, top + 2, width, 1);
    context.fillStyle = colours.soft;
    context.fillText(lane.name, 6, top + LANE / 2 + 2);
  }
  if (view.path) paintPathEvents(context, data, places, colours, view, scale);
  if (selected != null) paintSelected(context, data, places, colours, view, scale);
  paintStrips(context, data, colours, view, scale);
  paintRuler(context, colours, view, scale);
}

function paintRow(context, data, row, top, colours, view, scale) {
  const { width, from, to, found } = view;
  const { start, end, busy } = data;
  const bottom = ROW - 1;
  let at = firstAbove(end, row.from, row.to, from);
  // Neighbouring pixels that look the same are one rectangle.
  let run = { x: 0, length: 0, fill: "", alpha: 0 };
  const flush = () => {
    if (!run.length) return;
    context.globalAlpha = run.alpha;
    context.fillStyle = run.fill;
    context.fillRect(run.x, top, run.length, bottom);
    run.length = 0;
  };
  while (at < row.to && start[at] < to) {
    const x = (start[at] - from) * scale;
    const right = (end[at] - from) * scale;
    if (right - x >= APART_PIXELS) {
      flush();
      paintEvent(context, data, at, Math.max(x, -2), Math.min(right, width + 2), top, colours, found);
      at += 1;
      continue;
    }
    const pixel = Math.floor(x);
    let next = firstAbove(start, at + 1, row.to, from + (pixel + 1) / scale, true);
    // Only the last that begins in this pixel can reach beyond it; a long one is painted as itself.
    if (next - 1 > at && (end[next - 1] - start[next - 1]) * scale >= APART_PIXELS) next -= 1;
    const covered = Math.min(1, (busy[next] - busy[at]) * scale);
    const dimmed = found && found.before[next] === found.before[at];
    const alpha = (0.3 + 0.7 * Math.ceil(covered * 4) / 4) * (dimmed ? 0.25 : 1);
    const fill = colours.of(at);
    if (run.length && run.x + run.length === pixel && run.fill === fill && run.alpha === alpha) {
      run.length += 1;
    } else {
      flush();
      run = { x: pixel, length: 1, fill, alpha };
    }
    at = next;
  }
  flush();
}

function paintEvent(context, data, at, x, right, top, colours, found) {
  context.globalAlpha = found && !isMatch(found, at) ? 0.25 : 1;
  context.fillStyle = colours.of(at);
  const width = right - x;
  context.fillRect(x, top, width - (width > 4 ? 1 : 0.3), ROW - 1);
  if (width < 34) return;
  const name = data.names[data.name[at]];
  const room = Math.floor((width - 8) / 6);
  context.fillStyle = colours.text;
  context.fillText(name.length > room ? `${name.slice(0, Math.max(1, room - 1))}…` : name, Math.max(x, 0) + 4, top + ROW / 2);
}

function paintSteps(context, data, colours, view, scale) {
  context.fillStyle = colours.line;
  for (const step of data.steps) {
    if (step.end < view.from || step.start > view.to) continue;
    context.fillRect(Math.round((step.start - view.from) * scale), RULER - 16, 1, view.height);
  }
}

function paintSelected(context, data, places, colours, view, scale) {
  const at = view.selected;
  const box = (event) => {
    const row = places.rows.find((row) => event >= row.from && event < row.to);
    const x = (data.start[event] - view.from) * scale;
    return { x, right: (data.end[event] - view.from) * scale, top: row.top - view.scroll };
  };
  const own = box(at);
  context.strokeStyle = colours.accent;
  context.lineWidth = 2;
  context.strokeRect(own.x, own.top, Math.max(3, own.right - own.x - 1), ROW - 1);
  if (data.launcher[at] === NO_EVENT) return;
  const order = box(data.launcher[at]);
  context.lineWidth = 1.2;
  context.beginPath();
  context.moveTo(order.right, order.top + ROW / 2);
  const middle = (order.right + own.x) / 2;
  context.bezierCurveTo(middle, order.top + ROW / 2, middle, own.top + ROW / 2, own.x, own.top + ROW / 2);
  context.stroke();
}

/** The path as a strip, the queue and counters as curves; all stay while rows are scrolled. */
function paintStrips(context, data, colours, view, scale) {
  context.globalAlpha = 1;
  context.fillStyle = colours.background;
  context.fillRect(0, RULER - 2, view.width, PATH + 2 + curvesHeight(data));
  const fills = [colours.host, colours.launch, colours.device];
  let drawn = -1;
  for (const [start, end, on] of data.path) {
    if (end < view.from || start > view.to) continue;
    const x = Math.max(0, (start - view.from) * scale);
    const right = Math.min(view.width, (end - view.from) * scale);
    // Events narrower than a pixel are drawn once per pixel.
    if (right - x < 1 && Math.floor(x) === drawn) continue;
    drawn = Math.floor(x);
    context.fillStyle = fills[on];
    context.fillRect(x, RULER, Math.max(1, right - x), PATH - 3);
  }
  let top = RULER + PATH;
  if (data.queueMost > 0) {
    paintCurve(context, data.queue, 0, data.queueMost, top, `queue, at most ${data.queueMost}`, colours, view, scale);
    top += QUEUE;
  }
  for (const { name, least, most, curve } of data.counters) {
    paintCurve(context, curve, least, most, top, `${name}, at most ${+most.toPrecision(4)}`, colours, view, scale);
    top += QUEUE;
  }
}

/** Values over time, each of which holds until the next. */
function paintCurve(context, curve, least, most, top, label, colours, view, scale) {
  const base = top + QUEUE - 4;
  context.fillStyle = colours.device;
  context.globalAlpha = 0.45;
  context.beginPath();
  // It begins at the first value, and not in the corner before it.
  let right = null;
  curve.forEach(([time, value], at) => {
    const next = curve[at + 1]?.[0] ?? view.to;
    if (next < view.from || time > view.to) return;
    const y = base - ((value - least) / (most - least || 1)) * (QUEUE - 4 - LABEL);
    const x = Math.max(0, (time - view.from) * scale);
    if (right === null) context.moveTo(x, base);
    right = Math.min(view.width, (next - view.from) * scale);
    context.lineTo(x, y);
    context.lineTo(right, y);
  });
  if (right !== null) context.lineTo(right, base);
  context.closePath();
  context.fill();
  context.globalAlpha = 1;
  context.fillStyle = colours.line;
  context.fillRect(0, base, view.width, 1);
  context.fillStyle = colours.soft;
  context.textAlign = "left";
  context.fillText(label, 6, top + 6);
}

/** Marks the work of the device that sets the steps' length. */
function paintPathEvents(context, data, places, colours, view, scale) {
  context.globalAlpha = 1;
  context.strokeStyle = colours.device;
  context.lineWidth = 1.5;
  const tops = view.pathTops ??= new Map();
  let drawn = -1;
  for (const event of data.pathEvents) {
    if (data.end[event] < view.from || data.start[event] > view.to) continue;
    const x = (data.start[event] - view.from) * scale;
    const right = (data.end[event] - view.from) * scale;
    if (right - x < 1 && Math.floor(x) === drawn) continue;
    drawn = Math.floor(x);
    let top = tops.get(event);
    if (top == null) tops.set(event, top = places.rows.find((row) => event >= row.from && event < row.to)?.top ?? 0);
    context.strokeRect(x, top - view.scroll, Math.max(1, right - x - 1), ROW - 2);
  }
}

function paintRuler(context, colours, view, scale) {
  context.globalAlpha = 1;
  context.fillStyle = colours.background;
  context.fillRect(0, 0, view.width, RULER - 2);
  context.fillStyle = colours.line;
  context.fillRect(0, RULER - 2, view.width, 1);
  for (const tick of ticks(view.from, view.to, Math.max(3, view.width / 130))) {
    const x = (tick - view.from) * scale;
    context.fillStyle = colours.line;
    context.fillRect(Math.round(x), 14, 1, 5);
    context.fillStyle = colours.soft;
    context.textAlign = x < 40 ? "left" : x > view.width - 40 ? "right" : "center";
    context.fillText(nanos(tick), Math.max(2, Math.min(view.width - 2, x)), 7);
  }
  context.textAlign = "left";
  for (const step of view.steps) {
    if (step.end < view.from || step.start > view.to) continue;
    const x = Math.max(2, (step.start - view.from) * scale + 3);
    const room = Math.floor(((Math.min(step.end, view.to) - view.from) * scale - x) / 6);
    if (room < 4) continue;
    context.fillStyle = colours.soft;
    context.fillText(step.name.length > room ? `${step.name.slice(0, room - 1)}…` : step.name, x, RULER - 10);
  }
}
