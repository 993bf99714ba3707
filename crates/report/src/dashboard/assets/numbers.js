// Numbers as people read them, in the units that the terminal uses too.

export function seconds(time) {
  if (time == null) return "–";
  if (time === 0) return "0 s";
  const size = Math.abs(time);
  if (size >= 100) return `${time.toFixed(0)} s`;
  if (size >= 1) return `${time.toFixed(2)} s`;
  if (size >= 1e-3) return `${(time * 1e3).toFixed(2)} ms`;
  if (size >= 1e-6) return `${(time * 1e6).toFixed(1)} µs`;
  return `${(time * 1e9).toFixed(0)} ns`;
}

export const nanos = (time) => seconds(time / 1e9);

export function bytes(count) {
  if (count == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(count) >= 1024 && unit + 1 < units.length) { count /= 1024; unit += 1; }
  return unit === 0 ? `${count} B` : `${count.toFixed(1)} ${units[unit]}`;
}

export function metric(number, unit = "") {
  if (number == null) return "–";
  if (number === 0) return unit ? `0 ${unit}` : "0";
  const prefixes = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [scale, prefix] = prefixes.find(([scale]) => Math.abs(number) >= scale) ?? [1, ""];
  const scaled = number / scale;
  const text = Math.abs(scaled) >= 100 ? scaled.toFixed(0) : scaled.toFixed(1);
  return `${text} ${prefix}${unit}`.trim();
}

export function count(number) {
  if (number == null) return "–";
  return Number.isInteger(number) ? number.toLocaleString("en-US") : number.toFixed(1);
}

export function percent(number) {
  if (number == null) return "–";
  return Math.abs(number) < 1 && number !== 0 ? `${number.toFixed(2)}%` : `${number.toFixed(1)}%`;
}

/** Model FLOPs over the peak; nothing reaches more than all of it, so such a figure is not shown as one. */
export const mfu = (number) => (number == null || (number >= 0 && number <= 100) ? percent(number) : "impossible");

export const share = (part) => (part == null ? "–" : percent(100 * part));

export const signed = (part) => (part == null ? "–" : `${part >= 0 ? "+" : "−"}${Math.abs(100 * part).toFixed(1)}%`);

export function plain(number) {
  if (number == null) return "–";
  const size = Math.abs(number);
  if (size >= 1000) return metric(number);
  return size >= 1 || size === 0 ? String(Number(number.toFixed(4))) : number.toPrecision(3);
}

/** Three digits that count: for ratios, which nobody needs to more. */
export const ratio = (number) => (number == null ? "–" : number >= 1000 ? metric(number) : String(Number(number.toPrecision(3))));

export const mebibytes = (size) => (size == null ? "–" : bytes(size * 1024 * 1024));
