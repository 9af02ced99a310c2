// What part of the step is on the screen, and where. Times are horizontal, workers (rows, from 0) vertical.

const stage = document.getElementById("stage");
const canvas = document.getElementById("chart");
const context = canvas.getContext("2d");

const GUTTER = 52;
const AXIS = 24;
const LAYERS = 19;
const STRIP = 46;
const TOP = AXIS + LAYERS + STRIP;
const OVERVIEW = 38;
const NARROWEST_NS = 20;
const TALLEST_ROW = 56;

const rows = Math.max(1, data.workers.length);
const whole = { t0: stepStart - (stepEnd - stepStart) * 0.004, t1: stepEnd + (stepEnd - stepStart) * 0.012, w0: 0, w1: rows };
const view = { ...whole };
const chosen = { task: -1, awaited: new Set(), path: null };
const size = { width: 1, height: 1, ratio: 1 };

const chartWidth = () => Math.max(1, size.width - GUTTER);
const chartHeight = () => Math.max(1, size.height - TOP - OVERVIEW);
const rowHeight = () => Math.min(TALLEST_ROW, chartHeight() / (view.w1 - view.w0));
const xOf = (t) => GUTTER + ((t - view.t0) / (view.t1 - view.t0)) * chartWidth();
const yOf = (row) => TOP + (row - view.w0) * rowHeight();
const timeAt = (x) => view.t0 + ((x - GUTTER) / chartWidth()) * (view.t1 - view.t0);
const rowAt = (y) => view.w0 + (y - TOP) / rowHeight();
const overviewX = (t) => GUTTER + ((t - whole.t0) / (whole.t1 - whole.t0)) * chartWidth();

// Keep [low, high) at least `least` long and within [floor, ceiling), moving it rather than cutting it.
function within(low, high, least, floor, ceiling) {
  const length = Math.min(ceiling - floor, Math.max(least, high - low));
  const middle = (low + high) / 2;
  const start = Math.min(ceiling - length, Math.max(floor, high - low < least ? middle - least / 2 : low));
  return [start, start + length];
}

function show(change) {
  Object.assign(view, change);
  [view.t0, view.t1] = within(view.t0, view.t1, Math.min(NARROWEST_NS, whole.t1 - whole.t0), whole.t0, whole.t1);
  [view.w0, view.w1] = within(view.w0, view.w1, chartHeight() / TALLEST_ROW, 0, rows);
  changed();
}

function zoomTime(factor, x = GUTTER + chartWidth() / 2) {
  const t = timeAt(x);
  show({ t0: t - (t - view.t0) * factor, t1: t + (view.t1 - t) * factor });
}

function zoomRows(factor, y = TOP + chartHeight() / 2) {
  const row = rowAt(y);
  show({ w0: row - (row - view.w0) * factor, w1: row + (view.w1 - row) * factor });
}

function pan(dx, dy) {
  const dt = (dx / chartWidth()) * (view.t1 - view.t0);
  const dw = dy / rowHeight();
  show({ t0: view.t0 + dt, t1: view.t1 + dt, w0: view.w0 + dw, w1: view.w1 + dw });
}

// Bring a task into view, closer if it would be too small to see.
function reveal(i) {
  if (!ranAt(i)) return;
  const middle = (tasks.start[i] + tasks.end[i]) / 2;
  const span = Math.min(view.t1 - view.t0, Math.max((tasks.end[i] - tasks.start[i]) * 6, data.hop_us * 8000, 500));
  const tall = Math.min(view.w1 - view.w0, Math.max(12, chartHeight() / 16));
  const row = tasks.worker[i] + 0.5;
  show({ t0: middle - span / 2, t1: middle + span / 2, w0: row - tall / 2, w1: row + tall / 2 });
}

// The task at a point of the chart: the one there, or the nearest within three pixels of its row.
function taskAt(x, y) {
  if (x < GUTTER || y < TOP || y >= size.height - OVERVIEW) return -1;
  const queue = queues[Math.floor(rowAt(y))] || [];
  let best = -1;
  let nearest = 3.5;
  for (let k = firstEndingAfter(queue, timeAt(x - 4)); k < queue.length && ranAt(queue[k]); k++) {
    const left = xOf(tasks.start[queue[k]]);
    if (left > x + 4) break;
    const distance = Math.max(left - x, x - xOf(tasks.end[queue[k]]), 0);
    if (distance < nearest) [best, nearest] = [queue[k], distance];
  }
  return best;
}

function firstEndingAfter(queue, time) {
  let low = 0;
  let high = queue.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ranAt(queue[middle]) && tasks.end[queue[middle]] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// --- the address: #t0=..&t1=.. in microseconds, w0, w1 in rows, task, path=1. A link shows what was seen.

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const number = (name, unit, otherwise) => {
    const found = asked.has(name) ? Number(asked.get(name)) * unit : NaN;
    return Number.isFinite(found) ? found : otherwise;
  };
  chosen.path = asked.get("path") === "1" ? criticalPath() : null;
  const task = numberOf.get(asked.get("task")) ?? -1;
  choose(task);
  show({
    t0: number("t0", 1000, whole.t0),
    t1: number("t1", 1000, whole.t1),
    w0: number("w0", 1, whole.w0),
    w1: number("w1", 1, whole.w1),
  });
  if (task >= 0 && !asked.has("t0")) reveal(task);
}

function writeAddress() {
  const asked = new URLSearchParams();
  if (view.t1 - view.t0 < whole.t1 - whole.t0 - 1) {
    asked.set("t0", (view.t0 / 1000).toFixed(3));
    asked.set("t1", (view.t1 / 1000).toFixed(3));
  }
  if (view.w1 - view.w0 < rows - 0.001) {
    asked.set("w0", view.w0.toFixed(2));
    asked.set("w1", view.w1.toFixed(2));
  }
  if (chosen.task >= 0) asked.set("task", tasks.id[chosen.task]);
  if (chosen.path) asked.set("path", "1");
  history.replaceState(null, "", `#${asked}`);
}
