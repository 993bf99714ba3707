// Plots in SVG: a bar of parts, lines over steps, stacked areas over time. Every plot's figures stand in a table beside it.

import { draw, make, showTip, withTip } from "./page.js";

/** Round marks between two values: about `most` of them. */
export function ticks(from, to, most = 6) {
  const span = to - from;
  if (!(span > 0)) return [from];
  const rough = span / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((unit) => unit * power).find((unit) => unit >= rough);
  const list = [];
  for (let at = Math.ceil(from / step); at * step <= to * (1 + 1e-9); at += 1) list.push(at * step);
  return list;
}

/** Parts of a whole in one bar; the long ones say their name. */
export function partsBar(parts, label, format) {
  const [width, height] = [1000, 30];
  const whole = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  let x = 0;
  const shapes = parts.map((part, at) => {
    const own = (width * part.value) / whole;
    const shape = draw("g", { class: `s${at + 1}` },
      draw("rect", { class: "fill", x, y: 0, width: Math.max(own - 1, 0.4), height, rx: 2 }),
      own > 9 * part.name.length ? draw("text", { class: "inside", x: x + 8, y: 19.5, "font-size": 12 }, part.name) : null);
    x += own;
    return withTip(shape, `${part.name}: ${format(part)}`);
  });
  return draw("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, shapes);
}

export function legend(names, values = []) {
  return make("ul", { class: "legend" }, names.map((name, at) =>
    make("li", { class: `s${at + 1}` }, make("i", { class: "fill" }), name, values[at] ? make("b", {}, values[at]) : null)));
}

/** The frame of a plot: grid, marks, and functions from values to places. */
function frame({ width, height, x, y, xFormat, yFormat, xTitle, left = 62, xLog, yLog, yUnit = 1 }) {
  const [top, right, bottom] = [8, 12, 36];
  const inner = { width: width - left - right, height: height - top - bottom };
  const place = (value, [from, to], log) => (log ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from || 1));
  const toX = (value) => left + inner.width * place(value, x, xLog);
  const toY = (value) => top + inner.height * (1 - place(value, y, yLog));
  const powers = ([from, to]) => {
    const list = [];
    for (let power = Math.ceil(Math.log10(from) - 1e-9); 10 ** power <= to * (1 + 1e-9); power += 1) list.push(10 ** power);
    return list;
  };
  const xTicks = xLog ? powers(x) : ticks(...x, Math.min(8, width / 110));
  const yTicks = yLog ? powers(y) : ticks(y[0] / yUnit, y[1] / yUnit, 4).map((tick) => tick * yUnit);
  const parts = [
    ...yTicks.flatMap((tick) => [
      draw("line", { class: "grid", x1: left, x2: left + inner.width, y1: toY(tick), y2: toY(tick) }),
      draw("text", { x: left - 7, y: toY(tick) + 4, "text-anchor": "end" }, yFormat(tick))]),
    ...xTicks.flatMap((tick) => [
      xLog ? draw("line", { class: "grid", x1: toX(tick), x2: toX(tick), y1: top, y2: top + inner.height }) : null,
      draw("text", { x: toX(tick), y: top + inner.height + 15, "text-anchor": "middle" }, xFormat(tick))]).filter(Boolean),
    draw("line", { class: "axis", x1: left, x2: left + inner.width, y1: top + inner.height, y2: top + inner.height }),
    draw("text", { x: left + inner.width, y: height - 4, "text-anchor": "end" }, xTitle),
  ];
  const fromX = (place) => x[0] + ((place - left) / inner.width) * (x[1] - x[0]);
  return { parts, toX, toY, fromX, left, top, inner };
}

export { frame };

/** One line over steps. `points` are pairs. */
export function lineChart({ points, label, xTitle, yFormat, series = 1, height = 190, width = 640, fromZero = false }) {
  if (!points.length) return make("p", { class: "empty" }, "No figures.");
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  let [low, high] = [Math.min(...ys), Math.max(...ys)];
  if (fromZero) low = 0;
  const margin = (high - low || Math.abs(high) || 1) * 0.08;
  const box = frame({
    width, height, x: [Math.min(...xs), Math.max(Math.max(...xs), Math.min(...xs) + 1)], y: [fromZero ? 0 : low - margin, high + margin],
    xFormat: String, yFormat, xTitle,
  });
  const path = points.map(([x, y], at) => `${at ? "L" : "M"}${box.toX(x).toFixed(1)} ${box.toY(y).toFixed(1)}`).join("");
  const last = points[points.length - 1];
  const svg = draw("svg", { class: `chart s${series}`, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    box.parts, draw("path", { class: "line stroke", d: path }),
    draw("circle", { class: "fill", cx: box.toX(last[0]), cy: box.toY(last[1]), r: 3 }));
  svg.addEventListener("pointermove", (event) => {
    const area = svg.getBoundingClientRect();
    const x = box.fromX(((event.clientX - area.left) / area.width) * width);
    const near = points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
    showTip(`${xTitle} ${near[0]}: ${yFormat(near[1])}`, event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", () => showTip(""));
  return svg;
}

/** Areas on top of each other over time, as steps; `onMove` and `onPick` get the index of a point. */
export function stackedChart({ seconds, series, label, xFormat, yFormat, top, height = 300, width = 1200, onMove, onPick }) {
  const last = seconds[seconds.length - 1] ?? 1;
  const box = frame({ width, height, x: [seconds[0] ?? 0, last], y: [0, top * 1.05], xFormat, yFormat, xTitle: "time", yUnit: 1024 ** Math.floor(Math.log2(Math.max(top, 1)) / 10) });
  const base = new Float64Array(seconds.length);
  const areas = series.map((values, at) => {
    const upper = values.map((value, index) => base[index] + value);
    let path = "";
    // A live tensor stays live until the next point: steps, not slopes.
    upper.forEach((value, index) => {
      const y = box.toY(value).toFixed(1);
      path += index ? `H${box.toX(seconds[index]).toFixed(1)}V${y}` : `M${box.toX(seconds[0]).toFixed(1)} ${y}`;
    });
    for (let index = seconds.length - 1; index >= 0; index -= 1) {
      const y = box.toY(base[index]).toFixed(1);
      path += index === seconds.length - 1 ? `L${box.toX(seconds[index]).toFixed(1)} ${y}` : `V${y}`;
      path += `H${box.toX(seconds[index]).toFixed(1)}`;
    }
    upper.forEach((value, index) => { base[index] = value; });
    return draw("path", { class: `s${at + 1} fill`, d: `${path}Z`, opacity: 0.9 });
  });
  const cursor = draw("line", { class: "cursor", y1: box.top, y2: box.top + box.inner.height, x1: -9, x2: -9 });
  const svg = draw("svg", {
    class: "chart", viewBox: `0 0 ${width} ${height}`, role: "slider", "aria-label": label, tabindex: 0,
    "aria-valuemin": 0, "aria-valuemax": seconds.length - 1, "aria-valuenow": 0,
  }, box.parts, areas, cursor);
  const nearest = (event) => {
    const area = svg.getBoundingClientRect();
    const x = box.fromX(((event.clientX - area.left) / area.width) * width);
    let [low, high] = [0, seconds.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (seconds[middle] <= x) low = middle; else high = middle - 1;
    }
    return low;
  };
  svg.addEventListener("pointermove", (event) => onMove(nearest(event), event));
  svg.addEventListener("pointerleave", () => showTip(""));
  svg.addEventListener("click", (event) => onPick(nearest(event)));
  return {
    svg,
    point: (index, text) => {
      const x = box.toX(seconds[index]);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      svg.setAttribute("aria-valuenow", index);
      svg.setAttribute("aria-valuetext", text);
    },
  };
}
