// Words: the head of the page, the panel beside the chart, the tip under the pointer. Text is set, never markup.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (name === "colour") made.style.background = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const swatch = (colour) => element("span", { class: "swatch", colour });
const texts = (numbers) => numbers.map((number) => data.texts[number]);

function taskLink(i) {
  return element("button", { class: "link", type: "button", onclick: () => { choose(i); reveal(i); } }, tasks.id[i]);
}

function fillHead() {
  document.getElementById("subtitle").textContent =
    `${data.digest.slice(0, 12)} for ${data.target} (${data.arch}), position ${showCount(data.pos)}, ${plural(data.tokens, "token")} a step`;
  const total = (name, value, small = "") =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, small)));
  document.getElementById("totals").append(
    total("estimated step", showTime(data.step_us * 1000)),
    total("its bytes at full bandwidth", showTime(data.floor_us * 1000),
      data.step_us > 0 ? `  ${((100 * data.floor_us) / data.step_us).toFixed(0)} % of the step` : ""),
    total("streamed", showBytes(data.bytes)),
    total("tasks", showCount(taskCount)),
    total("hops", showCount(data.hops.length)),
    total("workers", showCount(data.workers.length)),
  );
}

// --- the panel

function fillPanel() {
  const panel = document.getElementById("panel");
  panel.replaceChildren(...(chosen.task >= 0 ? aboutTask(chosen.task) : aboutStep()));
  panel.scrollTop = 0;
}

function aboutStep() {
  const head = ["", "hops", "bytes", "wait", "adds"].map((name) => element("th", {}, name));
  const body = [...roles.values()].map((role) =>
    element("tr", {},
      element("td", { title: role.name }, swatch(role.colour), role.name),
      element("td", {}, showCount(role.hops)),
      element("td", {}, showBytes(role.bytes)),
      element("td", {}, (role.wait / role.tasks / 1000).toFixed(2)),
      element("td", {}, (role.adds / 1000).toFixed(1))));
  const keys = [["wheel", "zoom time"], ["shift wheel", "zoom workers"], ["drag", "move"], ["click", "details of a task"],
    ["← → ↑ ↓", "move"], ["+ −", "zoom"], ["f", "whole step"], ["c", "critical path"], ["n p", "next, previous task of the worker"],
    ["/", "find a task"], ["esc", "clear"]];
  return [
    element("h3", { style: "margin-top:0" }, "Hops by role"),
    element("table", { class: "roles" }, element("tr", {}, ...head), ...body),
    element("p", { class: "soft", style: "margin-top:6px" },
      "wait: mean idle time of a worker before a task, µs. adds: what the hops add to the step, µs."),
    element("p", {}, element("span", { class: "swatch hatched" }), "waiting for other workers"),
    ...aboutStuck(),
    element("h3", {}, "An estimate"),
    element("p", { class: "soft" },
      `Times come from a cost model, not from a device: each worker streams at an equal share of the bandwidth, up to ` +
      `${showBytes(data.ring_bytes)} ahead; a signal reaches another worker after ${data.hop_us} µs; multiplying is free.`),
    element("h3", {}, "Keys"),
    element("div", { class: "keys" }, ...keys.flatMap(([key, does]) => [element("kbd", {}, key), element("span", {}, does)])),
  ];
}

function aboutStuck() {
  if (!data.stuck.length) return [];
  const shown = data.stuck.slice(0, 20).map((stuck) =>
    element("li", {}, element("code", {}, stuck.task), ` waits for ${stuck.waits_for}`));
  return [
    element("h3", { class: "warn" }, `Blocked for ever: ${plural(data.stuck.length, "worker")}`),
    element("ul", {}, ...shown),
  ];
}

function aboutTask(i) {
  const hop = data.hops[tasks.hop[i]];
  const list = (title, items) => items.length
    ? [element("h3", {}, title), element("ul", {}, ...items.map((text) => element("li", {}, element("code", {}, text))))]
    : [];
  const pairs = texts(tasks.parameters[i]).map((text) => {
    const gap = text.indexOf(" ");
    return element("tr", {}, element("td", {}, text.slice(0, gap)), element("td", {}, text.slice(gap + 1)));
  });
  return [
    element("h2", {}, swatch(hop.colour), tasks.id[i]),
    element("p", { class: "soft" }, `${data.texts[tasks.kind[i]]} on worker ${showWorker(tasks.worker[i])}, ` +
      `task ${queues[tasks.worker[i]].indexOf(i) + 1} of ${queues[tasks.worker[i]].length}`),
    element("h3", {}, "Estimated"),
    element("table", {}, ...timesOf(i).map(([name, value]) =>
      element("tr", {}, element("td", { class: "soft" }, name), element("td", {}, value)))),
    ...waitsOf(i),
    ...signalsOf(i),
    ...list("Streams", texts(tasks.streams[i])),
    ...list("Reads", texts(tasks.reads[i])),
    ...list("Writes", texts(tasks.writes[i])),
    ...(pairs.length ? [element("h3", {}, "Parameters"), element("table", { class: "pairs" }, ...pairs)] : []),
  ];
}

function timesOf(i) {
  if (!ranAt(i)) return [["starts", "never: the schedule blocks"]];
  const length = tasks.end[i] - tasks.start[i];
  return [
    ["waits before", showTime(tasks.wait[i])],
    ["starts at", showTime(tasks.start[i])],
    ["takes", showTime(length)],
    ["streams", showBytes(tasks.bytes[i])],
  ];
}

function waitsOf(i) {
  const found = tasks.waits[i].map(waitOf).map((wait) => {
    const item = element("li", {}, element("code", {}, `${data.counters[wait.counter]} >= ${wait.threshold}`));
    if (wait.threshold <= 0) item.append(" from the step before");
    else if (wait.last === undefined) item.append(` but a step signals it ${plural(data.signals_per_step[wait.counter], "time")}`);
    else {
      const workers = new Set(wait.awaited.map((other) => tasks.worker[other])).size;
      item.append(` from ${plural(workers, "worker")}; the last is `, taskLink(wait.last));
    }
    return item;
  });
  if (!found.length) {
    found.push(element("li", { class: "soft" }, "nothing of its own",
      ...(before[i] >= 0 ? ["; it runs behind ", taskLink(before[i])] : [])));
  }
  return [element("h3", {}, "Waits for"), element("ul", {}, ...found)];
}

function signalsOf(i) {
  if (!tasks.signals[i].length) return [];
  const found = tasks.signals[i].map((counter) => element("li", {}, element("code", {}, data.counters[counter]),
    `, one of ${showCount(data.signals_per_step[counter])} a step, awaited by ${plural(waiters[counter].length, "task")}`));
  return [element("h3", {}, "Signals"), element("ul", {}, ...found)];
}

// --- the tip

const tip = document.getElementById("tip");

function showTip(i, x, y) {
  tip.hidden = i < 0;
  if (i < 0) return;
  const few = (label, list) => list.length ? [element("div", {}, label, ...list.map((text) => element("code", {}, text)))] : [];
  tip.replaceChildren(
    element("b", {}, swatch(data.hops[tasks.hop[i]].colour), tasks.id[i]),
    element("div", {}, `${data.texts[tasks.kind[i]]} on worker ${showWorker(tasks.worker[i])}: at ${showTime(tasks.start[i])} ` +
      `for ${showTime(tasks.end[i] - tasks.start[i])} after waiting ${showTime(tasks.wait[i])}; streams ${showBytes(tasks.bytes[i])}`),
    ...few("streams", texts(tasks.streams[i])),
    ...few("reads", texts(tasks.reads[i])),
    ...few("writes", texts(tasks.writes[i])),
    ...few("waits for", tasks.waits[i].map((wait) => `${data.counters[data.waits[wait][0]]} >= ${data.waits[wait][1]}`)),
  );
  const box = tip.getBoundingClientRect();
  tip.style.left = `${x + 16 + box.width < size.width ? x + 16 : Math.max(4, x - box.width - 12)}px`;
  tip.style.top = `${Math.max(4, y + 18 + box.height < size.height ? y + 18 : y - box.height - 10)}px`;
}
