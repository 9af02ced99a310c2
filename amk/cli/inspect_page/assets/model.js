// The schedule's data and what follows from it. Tasks are numbers from 0; times are nanoseconds of the step.

const data = JSON.parse(document.getElementById("data").textContent);
const tasks = data.tasks;
const taskCount = tasks.id.length;
const NEVER = -1;
const ranAt = (i) => tasks.start[i] !== NEVER || tasks.end[i] !== NEVER;

// Each worker's tasks in order, and each task's predecessor on its worker.
const queues = data.workers.map(() => []);
const before = new Int32Array(taskCount).fill(-1);
const numberOf = new Map();
for (let i = 0; i < taskCount; i++) {
  const queue = queues[tasks.worker[i]];
  if (queue.length) before[i] = queue[queue.length - 1];
  queue.push(i);
  if (!numberOf.has(tasks.id[i])) numberOf.set(tasks.id[i], i);
}
let stepEnd = 1;
let stepStart = 0;
for (let i = 0; i < taskCount; i++) {
  if (!ranAt(i)) continue;
  stepEnd = Math.max(stepEnd, tasks.end[i]);
  stepStart = Math.min(stepStart, tasks.start[i]);
}

// Hops, in the order in which they begin.
for (const hop of data.hops) Object.assign(hop, { tasks: 0, bytes: 0, wait: 0, start: Infinity, end: -Infinity });
for (let i = 0; i < taskCount; i++) {
  const hop = data.hops[tasks.hop[i]];
  hop.tasks += 1;
  hop.bytes += tasks.bytes[i];
  hop.wait += tasks.wait[i];
  if (!ranAt(i)) continue;
  hop.start = Math.min(hop.start, tasks.start[i]);
  hop.end = Math.max(hop.end, tasks.end[i]);
}
const hops = data.hops.filter((hop) => hop.start < Infinity).sort((a, b) => a.start - b.start || a.end - b.end);

// What a hop adds to the step: from the end of all hops before it to its own.
let reached = 0;
for (const hop of hops) {
  hop.adds = Math.max(0, hop.end - reached);
  reached = Math.max(reached, hop.end);
  hop.layer = hop.name === hop.role ? "" : hop.name.slice(0, hop.name.length - hop.role.length - 1);
}

// Roles: what hops of all layers have in common, and what colours stand for.
const PALETTE = ["#4178d4", "#e0882b", "#2f9f75", "#8f62d0", "#d6577a", "#1c9ab0", "#b59a1b", "#7a8f3a", "#b0654a", "#5b6fa8"];
const QUIET = "#8b919b";
const roles = new Map();
let coloured = 0;
for (const hop of [...hops, ...data.hops.filter((other) => !hops.includes(other))]) {
  if (!roles.has(hop.role)) {
    const colour = hop.role === "begin" ? QUIET : PALETTE[coloured++ % PALETTE.length];
    roles.set(hop.role, { name: hop.role, colour, hops: 0, tasks: 0, bytes: 0, wait: 0, adds: 0 });
  }
  const role = roles.get(hop.role);
  hop.colour = role.colour;
  role.hops += 1;
  for (const sum of ["tasks", "bytes", "wait"]) role[sum] += hop[sum];
  role.adds += hop.adds || 0;
}

// Who signals a counter, by the time of the signal; a task that signals twice is there twice.
const signallers = data.counters.map(() => []);
for (let i = 0; i < taskCount; i++) for (const counter of tasks.signals[i]) signallers[counter].push(i);
for (const list of signallers) list.sort((a, b) => tasks.end[a] - tasks.end[b] || a - b);
const waiters = data.counters.map(() => []);
for (let i = 0; i < taskCount; i++) for (const wait of tasks.waits[i]) waiters[data.waits[wait][0]].push(i);

// A wait as the page shows it. A threshold of 0 or less joins the step before, which is not on the page.
function waitOf(number) {
  const [counter, threshold] = data.waits[number];
  const awaited = threshold > 0 ? signallers[counter].slice(0, threshold) : [];
  return { counter, threshold, awaited, last: awaited.length === threshold ? awaited[threshold - 1] : undefined };
}

// The task or wait that a task's start was due to: the last signal that it waited for, or its worker's task before.
function dueTo(i) {
  let due = before[i];
  let when = due < 0 ? -Infinity : tasks.end[due];
  for (const wait of tasks.waits[i].map(waitOf)) {
    if (wait.last === undefined) continue;
    const hop = tasks.worker[wait.last] === tasks.worker[i] ? 0 : data.hop_us * 1000;
    if (tasks.end[wait.last] + hop > when) [due, when] = [wait.last, tasks.end[wait.last] + hop];
  }
  return due;
}

function criticalPath() {
  let last = -1;
  for (let i = 0; i < taskCount; i++) if (ranAt(i) && (last < 0 || tasks.end[i] > tasks.end[last])) last = i;
  const path = [];
  const seen = new Set();  // a stranger's schedule may wait in a circle
  for (let i = last; i >= 0 && !seen.has(i); i = dueTo(i)) {
    seen.add(i);
    path.push(i);
  }
  return path.reverse();
}

// --- numbers as text

function showTime(ns) {
  const us = ns / 1000;
  const size = Math.abs(us);
  return `${us.toFixed(size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 3)} µs`;
}

function showBytes(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 999.5 && unit < units.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? bytes : bytes.toPrecision(3)} ${units[unit]}`;
}

const showCount = (n) => n.toLocaleString("en-US");
const plural = (n, word) => `${showCount(n)} ${word}${n === 1 ? "" : "s"}`;

function showWorker(worker) {
  const [device, index] = data.workers[worker];
  return devices > 1 ? `${device}:${index}` : String(index);
}
const devices = new Set(data.workers.map(([device]) => device)).size;
