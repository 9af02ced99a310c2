// What the reader does, and what follows.

let pending = false;
let addressTimer = 0;
function changed() {
  if (!pending) {
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      paint();
    });
  }
  clearTimeout(addressTimer);
  addressTimer = setTimeout(writeAddress, 300);
}

function choose(i) {
  chosen.task = i;
  chosen.awaited = new Set(i < 0 ? [] : tasks.waits[i].flatMap((wait) => waitOf(wait).awaited));
  fillPanel();
  changed();
}

const pathButton = document.getElementById("path");
function togglePath(on = !chosen.path) {
  chosen.path = on ? criticalPath() : null;
  pathButton.setAttribute("aria-pressed", String(on));
  changed();
}

const wholeStep = () => show({ ...whole });
pathButton.addEventListener("click", () => togglePath());
document.getElementById("fit").addEventListener("click", wholeStep);
document.getElementById("in").addEventListener("click", () => zoomTime(0.5));
document.getElementById("out").addEventListener("click", () => zoomTime(2));

// --- pointer

const pointer = { down: false, moved: false, inOverview: false, x: 0, y: 0 };

function moveOverview(x) {
  const t = whole.t0 + ((x - GUTTER) / chartWidth()) * (whole.t1 - whole.t0);
  const half = (view.t1 - view.t0) / 2;
  show({ t0: t - half, t1: t + half });
}

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  const inOverview = event.offsetY > size.height - OVERVIEW;
  Object.assign(pointer, { down: true, moved: false, inOverview, x: event.offsetX, y: event.offsetY });
  if (inOverview) moveOverview(event.offsetX);
});
canvas.addEventListener("pointermove", (event) => {
  if (!pointer.down) {
    showTip(taskAt(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
    return;
  }
  if (pointer.inOverview) {
    moveOverview(event.offsetX);
    return;
  }
  const [dx, dy] = [event.offsetX - pointer.x, event.offsetY - pointer.y];
  if (!pointer.moved && Math.hypot(dx, dy) < 4) return;
  showTip(-1);
  stage.classList.add("dragging");
  pan(-dx, -dy);
  Object.assign(pointer, { moved: true, x: event.offsetX, y: event.offsetY });
});
canvas.addEventListener("pointerup", (event) => {
  if (pointer.down && !pointer.moved && !pointer.inOverview) choose(taskAt(event.offsetX, event.offsetY));
  pointer.down = false;
  stage.classList.remove("dragging");
  stage.focus({ preventScroll: true });
});
canvas.addEventListener("pointercancel", () => { pointer.down = false; });
canvas.addEventListener("pointerleave", () => showTip(-1));
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  showTip(-1);
  const unit = event.deltaMode === 1 ? 16 : 1;
  const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
  if (event.shiftKey) zoomRows(Math.exp((dy || dx) * 0.0016), event.offsetY);
  else if (Math.abs(dx) > Math.abs(dy)) pan(dx, 0);
  else zoomTime(Math.exp(dy * 0.0016), event.offsetX);
}, { passive: false });

// --- keys

function neighbour(by) {
  if (chosen.task < 0) return;
  const queue = queues[tasks.worker[chosen.task]];
  const next = queue[queue.indexOf(chosen.task) + by];
  if (next === undefined) return;
  choose(next);
  if (tasks.start[next] < view.t0 || tasks.end[next] > view.t1) reveal(next);
}

const query = document.getElementById("query");
const KEYS = {
  ArrowLeft: () => pan(-80, 0),
  ArrowRight: () => pan(80, 0),
  ArrowUp: () => pan(0, -60),
  ArrowDown: () => pan(0, 60),
  "+": () => zoomTime(0.6),
  "=": () => zoomTime(0.6),
  "-": () => zoomTime(1 / 0.6),
  "]": () => zoomRows(0.6),
  "[": () => zoomRows(1 / 0.6),
  f: wholeStep,
  0: wholeStep,
  c: () => togglePath(),
  n: () => neighbour(1),
  p: () => neighbour(-1),
  "/": () => query.focus(),
  Escape: () => { togglePath(false); choose(-1); },
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === query) {
    if (event.key === "Escape") query.blur();
    return;
  }
  const act = Object.hasOwn(KEYS, event.key) && KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// --- search

const MATCHES_SHOWN = 12;
query.addEventListener("input", () => {
  query.classList.remove("missing");
  const asked = query.value.toLowerCase();
  const found = [];
  for (let i = 0; asked && i < taskCount && found.length < MATCHES_SHOWN; i++) {
    if (tasks.id[i].toLowerCase().includes(asked)) found.push(element("option", { value: tasks.id[i] }));
  }
  document.getElementById("matches").replaceChildren(...found);
  if (numberOf.has(query.value)) jump();
});
document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  jump();
});

function jump() {
  const asked = query.value.trim().toLowerCase();
  const i = numberOf.get(query.value.trim()) ?? tasks.id.findIndex((id) => asked && id.toLowerCase().includes(asked));
  query.classList.toggle("missing", i < 0);
  if (i < 0) return;
  choose(i);
  reveal(i);
}

// --- beginnings

function fit() {
  const box = stage.getBoundingClientRect();
  Object.assign(size, { width: box.width, height: box.height, ratio: window.devicePixelRatio || 1 });
  canvas.width = Math.round(size.width * size.ratio);
  canvas.height = Math.round(size.height * size.ratio);
  readTheme();
  show({});
  paint();
}

fillHead();
new ResizeObserver(fit).observe(stage);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fit);
window.addEventListener("hashchange", readAddress);
fit();
readAddress();
pathButton.setAttribute("aria-pressed", String(chosen.path !== null));
