// Drawing. Everything is drawn anew on each change: what is not in view is skipped, so that it stays quick.

const theme = {};
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "panel", "ink", "soft", "faint", "rule", "row", "hatch", "mark", "accent", "sans"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6 * size.ratio;
  const pen = tile.getContext("2d");
  pen.scale(size.ratio, size.ratio);
  pen.strokeStyle = theme.hatch;
  pen.lineWidth = 1;
  for (const shift of [-6, 0, 6]) {
    pen.beginPath();
    pen.moveTo(shift - 1, 7);
    pen.lineTo(shift + 7, -1);
    pen.stroke();
  }
  theme.hatched = context.createPattern(tile, "repeat");
  theme.hatched.setTransform(new DOMMatrix().scale(1 / size.ratio));
}

function paint() {
  context.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, size.width, size.height);
  clipped(GUTTER, TOP, chartWidth(), chartHeight(), () => {
    paintRows();
    paintEnd();
    if (chosen.path) paintPath(chosen.path);
    if (chosen.task >= 0) paintChosen();
  });
  clipped(GUTTER, 0, chartWidth(), TOP, () => {
    paintAxis();
    paintLayers();
    paintHops();
  });
  paintGutter();
  paintOverview();
}

function clipped(x, y, width, height, draw) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  draw();
  context.restore();
}

function font(px, weight = 400) {
  context.font = `${weight} ${px}px ${theme.sans}`;
}

// Text that fits is drawn, other text is not: a cut name reads as another name.
function textWithin(text, x, y, width) {
  if (width < 8 || context.measureText(text).width > width) return false;
  context.fillText(text, x, y);
  return true;
}

// --- the queues

// Rows lower than this touch each other, and their waits are a plain tint: hatching would only shimmer.
const LEGIBLE_ROW = 9;

function paintRows() {
  const height = rowHeight();
  const pad = height >= LEGIBLE_ROW ? Math.min(3, height * 0.14) : 0;
  const dim = chosen.task >= 0 || chosen.path !== null;
  const path = new Set(chosen.path || []);
  const last = Math.min(rows, Math.ceil(view.w1));
  for (let row = Math.max(0, Math.floor(view.w0)); row < last; row++) {
    const y = yOf(row) + pad;
    const tall = height - 2 * pad;
    context.fillStyle = theme.row;
    if (pad) context.fillRect(GUTTER, y, chartWidth(), tall);
    paintQueue(queues[row], y, tall, dim, path);
  }
  context.globalAlpha = 1;
}

function paintQueue(queue, y, tall, dim, path) {
  const seen = [];
  for (let k = firstEndingAfter(queue, view.t0); k < queue.length; k++) {
    const i = queue[k];
    if (!ranAt(i) || tasks.start[i] - tasks.wait[i] > view.t1) break;
    seen.push(i);
  }
  context.globalAlpha = 1;
  context.fillStyle = rowHeight() >= LEGIBLE_ROW ? theme.hatched : theme.row;
  for (const i of seen) {
    const from = Math.max(GUTTER - 8, xOf(tasks.start[i] - tasks.wait[i]));
    const wide = Math.min(size.width + 8, xOf(tasks.start[i])) - from;
    if (wide >= 2) context.fillRect(from, y, wide, tall);
  }
  for (const i of seen) {
    const lit = !dim || i === chosen.task || chosen.awaited.has(i) || path.has(i);
    paintTask(i, y, tall, lit);
  }
}

function paintTask(i, y, tall, lit) {
  let left = Math.max(GUTTER - 2, xOf(tasks.start[i]));
  const right = Math.min(size.width + 2, xOf(tasks.end[i]));
  if (right - left < 2) left = Math.round(left * size.ratio) / size.ratio;  // a hair line is drawn on whole pixels
  context.globalAlpha = lit ? 1 : 0.28;
  context.fillStyle = data.hops[tasks.hop[i]].colour;
  context.fillRect(left, y, Math.max(1, right - left), tall);
  if (lit && tall >= 12 && right - left > 24) {
    context.fillStyle = "#fff";
    font(Math.min(11, tall - 3), 500);
    context.textBaseline = "middle";
    textWithin(tasks.id[i], left + 5, y + tall / 2 + 0.5, right - left - 10);
  }
}

function paintEnd() {
  context.fillStyle = theme.soft;
  context.fillRect(Math.round(xOf(stepEnd)), TOP, 1, Math.min(chartHeight(), yOf(rows) - TOP));
}

// --- what was chosen

function centre(i, edge) {
  return [xOf(tasks[edge][i]), yOf(tasks.worker[i] + 0.5)];
}

function arc(from, to) {
  const [x0, y0] = centre(from, "end");
  const [x1, y1] = centre(to, "start");
  const bend = Math.max(6, (x1 - x0) / 2);
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  context.stroke();
}

function outline(i, width) {
  const height = rowHeight();
  const left = xOf(tasks.start[i]);
  context.lineWidth = width;
  context.strokeRect(left - 0.5, yOf(tasks.worker[i]) + 0.5, Math.max(2, xOf(tasks.end[i]) - left) + 1, Math.max(3, height - 1));
}

function paintChosen() {
  const i = chosen.task;
  if (!ranAt(i)) return;
  context.strokeStyle = theme.mark;
  context.lineWidth = 0.75;
  context.globalAlpha = Math.min(0.5, 14 / chosen.awaited.size);
  for (const other of chosen.awaited) arc(other, i);
  context.globalAlpha = 1;
  for (const wait of tasks.waits[i].map(waitOf)) {
    if (wait.last === undefined) continue;
    context.lineWidth = 1.75;
    arc(wait.last, i);
  }
  outline(i, 2);
}

function paintPath(path) {
  context.strokeStyle = theme.mark;
  context.lineWidth = 1.5;
  context.beginPath();
  for (const i of path) {
    context.lineTo(...centre(i, "start"));
    context.lineTo(...centre(i, "end"));
  }
  context.stroke();
}

// --- above: time, layers, hops

function ticks(t0, t1, width, least) {
  const rough = ((t1 - t0) / width) * least;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || rough;
  const found = [];
  for (let n = Math.ceil(t0 / step); n * step <= t1; n++) found.push(n * step);
  return { step, found };
}

function paintAxis() {
  const { step, found } = ticks(view.t0, view.t1, chartWidth(), 90);
  const digits = Math.max(0, -Math.floor(Math.log10(step / 1000) + 1e-9));
  font(11);
  context.textBaseline = "middle";
  for (const t of found) {
    const x = Math.round(xOf(t));
    context.fillStyle = theme.rule;
    context.fillRect(x, AXIS - 6, 1, 6);
    context.fillStyle = theme.soft;
    const text = `${(t / 1000).toFixed(digits)} µs`;
    if (x + context.measureText(text).width + 5 < size.width) context.fillText(text, x + 5, AXIS / 2 + 1);
  }
  context.fillStyle = theme.rule;
  context.fillRect(GUTTER, AXIS - 1, chartWidth(), 1);
}

// A lane is the stretch from where a hop or layer begins to where the next one does.
function lanes(items, draw) {
  for (let k = 0; k < items.length; k++) {
    const next = k + 1 < items.length ? items[k + 1].start : stepEnd;
    const left = xOf(items[k].start);
    const right = xOf(Math.max(next, items[k].start));
    if (right >= GUTTER && left <= size.width) draw(items[k], left, right);
  }
}

const layers = hops.filter((hop, k) => k === 0 || hop.layer !== hops[k - 1].layer);

function paintLayers() {
  context.textBaseline = "middle";
  font(11, 500);
  lanes(layers, (hop, left, right) => {
    context.fillStyle = theme.rule;
    if (right - left > 4) context.fillRect(Math.round(left), AXIS, 1, LAYERS);
    context.fillStyle = theme.soft;
    const x = Math.max(left, GUTTER) + 5;
    textWithin(hop.layer, x, AXIS + LAYERS / 2 + 1, right - x - 3);
  });
}

function paintHops() {
  const top = AXIS + LAYERS;
  lanes(hops, (hop, left, right) => {
    context.fillStyle = hop.colour;
    context.fillRect(left, top, Math.max(1.5, xOf(hop.end) - left), 7);
    const x = Math.max(left, GUTTER + 2);
    const room = Math.min(right, size.width) - x - 6;
    context.textBaseline = "alphabetic";
    context.fillStyle = theme.ink;
    font(11, 600);
    if (!textWithin(hop.layer ? hop.role : hop.name, x, top + 21, room)) return;
    context.fillStyle = theme.soft;
    font(10.5);
    const wait = `wait ${showTime(hop.wait / hop.tasks)}`;
    const texts = [`${plural(hop.tasks, "task")}, ${showBytes(hop.bytes)}, ${wait}`, `${showBytes(hop.bytes)}, ${wait}`, showBytes(hop.bytes)];
    texts.some((text) => textWithin(text, x, top + 36, room));
  });
  context.fillStyle = theme.rule;
  context.fillRect(GUTTER, TOP - 1, chartWidth(), 1);
}

// --- beside and below

function paintGutter() {
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, GUTTER, size.height);
  context.fillStyle = theme.soft;
  context.textAlign = "right";
  context.textBaseline = "middle";
  font(10.5);
  context.fillText("layer", GUTTER - 9, AXIS + LAYERS / 2 + 1);
  context.fillText("hop", GUTTER - 9, AXIS + LAYERS + 17);
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((n) => n * rowHeight() >= 15) || 1000;
  clipped(0, TOP - 4, GUTTER, chartHeight() + 4, () => {
    for (let row = Math.ceil(Math.max(0, view.w0 - 1) / every) * every; row < Math.min(rows, view.w1); row += every) {
      const y = yOf(row + 0.5);
      if (y > TOP - 3) context.fillText(showWorker(row), GUTTER - 9, Math.max(TOP + 4, y) + 0.5);
    }
  });
  context.fillText("busy", GUTTER - 9, size.height - OVERVIEW / 2 + 2);
  context.textAlign = "left";
}

// How many workers are at work, in bins over the whole step.
const BINS = 720;
const busy = new Float64Array(BINS);
for (let i = 0; i < taskCount; i++) {
  if (!ranAt(i)) continue;
  const bin = (whole.t1 - whole.t0) / BINS;
  for (let b = Math.floor((tasks.start[i] - whole.t0) / bin); b < BINS && whole.t0 + b * bin < tasks.end[i]; b++) {
    const low = Math.max(tasks.start[i], whole.t0 + b * bin);
    busy[b] += Math.max(0, Math.min(tasks.end[i], whole.t0 + (b + 1) * bin) - low) / bin / rows;
  }
}

function paintOverview() {
  const top = size.height - OVERVIEW;
  context.fillStyle = theme.rule;
  context.fillRect(0, top, size.width, 1);
  const tall = OVERVIEW - 9;
  const wide = chartWidth() / BINS;
  context.fillStyle = theme.faint;
  for (let b = 0; b < BINS; b++) context.fillRect(GUTTER + b * wide, top + 5 + tall * (1 - busy[b]), wide + 0.3, tall * busy[b]);
  const left = overviewX(view.t0);
  const right = overviewX(view.t1);
  if (right - left > chartWidth() - 1) return;
  context.globalAlpha = 0.16;
  context.fillStyle = theme.accent;
  context.fillRect(left, top + 1, Math.max(2, right - left), OVERVIEW - 1);
  context.globalAlpha = 1;
  context.fillRect(left, top + 1, 1.5, OVERVIEW - 1);
  context.fillRect(Math.max(left + 2, right) - 1.5, top + 1, 1.5, OVERVIEW - 1);
}
