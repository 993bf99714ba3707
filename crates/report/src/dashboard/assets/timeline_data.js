// The timeline's columns as they come from the server, and questions to them that cost a bisection and not a walk.

export const NO_EVENT = 0xffffffff;

export async function fetchTimeline(id) {
  const response = await fetch(`/api/runs/${id}/timeline`);
  if (!response.ok) throw new Error((await response.text()).trim());
  return decode(await response.arrayBuffer());
}

/** See `timeline.rs` for the layout. Rows hold events that do not overlap, so starts and ends both ascend within one. */
export function decode(buffer) {
  const headerBytes = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, headerBytes)));
  const events = header.events;
  let offset = 8 + headerBytes;
  const column = (Kind) => {
    const values = new Kind(buffer, offset, events);
    offset += events * Kind.BYTES_PER_ELEMENT;
    return values;
  };
  const [start, end] = [column(Float64Array), column(Float64Array)];
  const [name, module, launcher] = [column(Uint32Array), column(Uint32Array), column(Uint32Array)];
  const category = column(Uint8Array);
  // Summed durations: how much of a stretch of a row is covered is one subtraction, however many events lie in it.
  const busy = new Float64Array(events + 1);
  for (let at = 0; at < events; at += 1) busy[at + 1] = busy[at] + end[at] - start[at];
  let from = 0;
  const lanes = header.lanes.map((lane) => ({
    name: lane.name,
    rows: lane.row_ends.map((to) => {
      const row = { from, to };
      from = to;
      return row;
    }),
  }));
  return { span: header.span_nanos || 1, events, names: header.names, categories: header.categories, steps: header.steps, path: header.path, pathEvents: header.path_events, queue: header.queue, queueMost: header.queue_most, counters: header.counters ?? [], lanes, start, end, name, module, launcher, category, busy };
}

/** The first event of `[from, to)` whose value in an ascending column is above (or, with `orEqual`, at) a limit. */
export function firstAbove(column, from, to, limit, orEqual = false) {
  let [low, high] = [from, to];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (column[middle] > limit || (orEqual && column[middle] === limit)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The event of a row at a time, or the next one after it within `slack`. */
export function eventAt(data, row, time, slack) {
  const at = firstAbove(data.end, row.from, row.to, time - slack, true);
  return at < row.to && data.start[at] <= time + slack ? at : null;
}

/** What only frames others: its time is theirs. */
export const FRAMES = new Set(["python_function", "user_annotation", "gpu_user_annotation", "Trace", "overhead"]);

/** Summed time by name in a window, the longest first. */
export function longestIn(data, from, to, most) {
  const frames = data.categories.map((name) => FRAMES.has(name));
  const sums = new Float64Array(data.names.length);
  const calls = new Uint32Array(data.names.length);
  for (const lane of data.lanes) {
    for (const row of lane.rows) {
      for (let at = firstAbove(data.end, row.from, row.to, from); at < row.to && data.start[at] < to; at += 1) {
        if (frames[data.category[at]]) continue;
        sums[data.name[at]] += Math.min(data.end[at], to) - Math.max(data.start[at], from);
        calls[data.name[at]] += 1;
      }
    }
  }
  const order = [...sums.keys()].filter((name) => calls[name] > 0);
  order.sort((left, right) => sums[right] - sums[left]);
  return order.slice(0, most).map((name) => ({ name, nanos: sums[name], calls: calls[name] }));
}

/** For a search: how many events before each one match, and which names do. */
export function matches(data, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const fits = data.names.map((name) => words.every((word) => name.toLowerCase().includes(word)));
  const before = new Uint32Array(data.events + 1);
  for (let at = 0; at < data.events; at += 1) before[at + 1] = before[at] + (fits[data.name[at]] || fits[data.module[at]] && data.module[at] ? 1 : 0);
  return { before, total: before[data.events] };
}

export const isMatch = (found, at) => found.before[at + 1] > found.before[at];
