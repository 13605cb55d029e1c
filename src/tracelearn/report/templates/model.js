"use strict";
// Draws the numbers beside the page, and links them: one chosen component, one chosen target, one slice.
const data = JSON.parse(document.getElementById("data").textContent);
const state = { component: 0, target: -1, kind: data.weights.patterns ? "patterns" : "coef", at: data.weights.modes.map(() => 0), cursor: null };
const DASHES = ["", "7 3", "2 2.5", "8 3 2 3", "4 2", "1 3"];
const all = (query) => [...document.querySelectorAll(query)];
const byId = (name) => document.getElementById(name);

// --- numbers and axes -------------------------------------------------------------------------------------------------

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const raised = (exponent) => "10" + [...String(exponent)].map((sign) => SUPERSCRIPTS[sign]).join("");
const minus = (text) => text.replace("-", "−");

function written(value, digits = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) {
    const [front, exponent] = value.toExponential(digits - 1).split("e");
    const shown = String(parseFloat(front));
    return minus(shown === "1" ? "" : shown === "-1" ? "-" : shown + " × ") + raised(parseInt(exponent, 10));
  }
  return minus(String(parseFloat(value.toPrecision(digits))));
}

function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) ticks.push(k * step);
  return ticks;
}

function logTicks(low, high, count) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const ticks = [];
  if (last - first < 2) {
    for (let k = first - 1; k <= last; k++)
      for (const m of [1, 2, 5]) if (m * 10 ** k >= low * 0.999 && m * 10 ** k <= high * 1.001) ticks.push(m * 10 ** k);
    return ticks;
  }
  const step = Math.ceil((last - first + 1) / Math.max(count, 2));
  for (let k = first; k <= last; k += step) ticks.push(10 ** k);
  return ticks;
}

function scale(axis, from, to) {
  const bend = axis.log ? Math.log10 : (value) => value;
  const low = bend(axis.low), span = bend(axis.high) - low || 1;
  return (value) => from + ((bend(value) - low) / span) * (to - from);
}

function ticksOf(axis, pixels, each) {
  if (axis.names) {
    const step = Math.ceil(axis.names.length / Math.max(Math.floor(pixels / each), 1));
    return axis.names.map((text, k) => ({ at: k, text })).filter((one) => one.at % step === 0);
  }
  const count = Math.max(Math.floor(pixels / each), 2);
  let found = (axis.log ? logTicks : linearTicks)(axis.low, axis.high, count);
  if (axis.whole) found = found.filter((one) => Number.isInteger(Math.round(one * 1e6) / 1e6));
  const powers = axis.log && found.every((one) => Math.abs(Math.log10(one) - Math.round(Math.log10(one))) < 1e-9);
  const decades = powers && found.some((one) => one < 0.01 || one > 1000);
  return found.map((at) => ({ at, text: decades ? raised(Math.round(Math.log10(at))) : written(Math.abs(at) < 1e-12 ? 0 : at) }));
}

// --- drawing ----------------------------------------------------------------------------------------------------------

function element(parent, tag, attributes = {}, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

// Fonts differ by a fifth in width: what this reader has is measured.
const ruler = document.createElement("canvas").getContext("2d");
ruler.font = `12px ${getComputedStyle(document.documentElement).getPropertyValue("--sans") || "sans-serif"}`;
const textWidth = (text) => ruler.measureText(text).width;
const shortened = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

const MOST_NAMES = 100; // of more, the few that an axis has room for say nothing

// Draws axes in a holder as wide as the page gives it; returns the drawing and the ways from numbers to pixels.
function plot(holder, { height, x, y, right = 14, top = 12, gridLines = true }) {
  holder.replaceChildren();
  const width = Math.max(holder.clientWidth, 240);
  const yTicks = ticksOf(y, height - top - 40, y.names ? 15 : 34).map((one) => ({ ...one, text: shortened(one.text, 16) }));
  const left = 26 + Math.max(...yTicks.map((one) => textWidth(one.text)), 14);
  const longest = x.names ? Math.max(...x.names.map((text) => textWidth(shortened(text, 14)))) : 0;
  const unlabelled = x.names && x.names.length > MOST_NAMES;
  const upright = x.names && !unlabelled && longest + 8 > (width - left - right) / x.names.length;
  const bottom = unlabelled ? 24 : upright ? 30 + Math.min(longest, 90) : 40;
  height += bottom - 40; // names take no room from the curves
  const xTicks = unlabelled ? [] : ticksOf(x, width - left - right, x.names ? (upright ? 15 : 8) : x.each || 64);
  const svg = element(holder, "svg", { viewBox: `0 0 ${width} ${height}` });
  const toX = scale(x, left, width - right), toY = scale(y, height - bottom, top);
  for (const { at, text } of yTicks) {
    if (gridLines) element(svg, "line", { class: "grid-line", x1: left, x2: width - right, y1: toY(at), y2: toY(at) });
    element(svg, "text", { x: left - 7, y: toY(at) + 4, "text-anchor": "end" }, text);
  }
  for (const { at, text } of xTicks) {
    const place = toX(at), base = height - bottom;
    element(svg, "line", { class: "axis", x1: place, x2: place, y1: base, y2: base + 4 });
    if (upright) {
      const turn = `rotate(-90 ${place + 4} ${base + 9})`;
      element(svg, "text", { x: place + 4, y: base + 9, "text-anchor": "end", transform: turn }, shortened(text, 14));
    } else element(svg, "text", { x: place, y: base + 18, "text-anchor": "middle" }, text);
  }
  element(svg, "line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom });
  element(svg, "text", { class: "title", x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, shortened(x.label, Math.floor((width - left - right) / 6.7)));
  const middle = (top + height - bottom) / 2;
  element(svg, "text", { class: "title", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, shortened(y.label, Math.floor((height - bottom) / 6.7)));
  return { svg, toX, toY, left, right: width - right, top, bottom: height - bottom };
}

const pathOf = (xs, ys) => xs.map((x, k) => `${k ? "L" : "M"}${x.toFixed(1)} ${ys[k].toFixed(1)}`).join("");

function spread(values, { zero = false, margin = 0.06 } = {}) {
  let low = Math.min(...values, ...(zero ? [0] : [])), high = Math.max(...values, ...(zero ? [0] : []));
  if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) [low, high] = [low - 0.1 * (Math.abs(low) || 1), high + 0.1 * (Math.abs(high) || 1)];
  const more = margin * (high - low);
  return { low: low - more, high: high + more };
}

function entryAxis(mode, count) {
  if (mode.names) return { names: mode.names, low: -0.6, high: count - 0.4, label: mode.label };
  const whole = mode.x.every(Number.isInteger);
  return { ...spread(mode.x, { margin: 0.02 }), whole, label: mode.label };
}

// --- components -------------------------------------------------------------------------------------------------------

function drawFactors(holder) {
  const mode = { ...data.components[holder.dataset.mode] };
  if (!mode.factors.length) return;
  if (mode.heads) return drawHeads(holder, mode);
  const alone = mode.largest ? Math.min(Math.max(state.component, 1), mode.factors.length) - 1 : -1; // of too many names the largest of one component
  if (mode.largest) Object.assign(mode, { names: mode.largest[alone], label: `${mode.label}: largest of component ${alone + 1}` });
  const y = { ...spread(mode.factors.flat(), { zero: true }), label: "factor" };
  const chart = plot(holder, { height: 240, x: entryAxis(mode, mode.factors[0].length), y });
  element(chart.svg, "line", { class: "zero", x1: chart.left, x2: chart.right, y1: chart.toY(0), y2: chart.toY(0) });
  mode.factors.forEach((factor, k) => {
    if (mode.largest && k !== alone) return;
    const group = element(chart.svg, "g", { "data-component": k + 1, class: "curve" });
    element(group, "title", {}, `component ${k + 1}`);
    group.style.setProperty("--strength", 0.3 + 0.7 * Math.sqrt(mode.shares[0][k] / mode.shares[0][0])); // what matters less steps back
    const shift = mode.names && !mode.largest ? (k - (mode.factors.length - 1) / 2) * Math.min(6, (chart.right - chart.left) / factor.length / 8) : 0;
    const xs = factor.map((_, i) => chart.toX(mode.names ? i : mode.x[i]) + shift), ys = factor.map(chart.toY);
    if (mode.names)
      xs.forEach((x, i) => element(group, "line", { class: "stem", x1: x, x2: x, y1: chart.toY(0), y2: ys[i], "stroke-width": 1.6 }));
    else {
      element(group, "path", { class: "line", d: pathOf(xs, ys), "stroke-dasharray": DASHES[k % DASHES.length] });
      element(group, "path", { class: "hit", d: pathOf(xs, ys) });
    }
    const r = Math.min(3.6, Math.max(1.2, (chart.right - chart.left) / factor.length));
    if (mode.names || factor.length <= 24)
      xs.forEach((x, i) => {
        const dot = element(group, "circle", { class: "dot", cx: x, cy: ys[i], r });
        if (mode.names) element(dot, "title", {}, `${mode.names[i]}: ${written(factor[i])}`);
      });
    group.addEventListener("click", () => pick(k + 1));
  });
}

// Draws every factor over a head seen from above, nose up; colours reach to its own largest entry.
function drawHeads(holder, mode) {
  holder.replaceChildren();
  const { size, places, grids } = mode.heads, many = grids.length, columns = Math.min(many, 3), cell = Math.max(holder.clientWidth, 240) / columns;
  const radius = Math.min(0.4 * cell, 88), tall = 2 * radius + 52, circle = `m${radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0a${radius} ${radius} 0 1 0 ${2 * radius} 0`;
  const svg = element(holder, "svg", { viewBox: `0 0 ${cell * columns} ${tall * Math.ceil(many / columns)}` });
  grids.forEach((grid, k) => {
    const x = (0.5 + (k % columns)) * cell, y = Math.floor(k / columns) * tall + radius + 16;
    const group = element(svg, "g", { "data-component": k + 1, class: "head" });
    element(group, "title", {}, `component ${k + 1}`);
    const largest = Math.max(...mode.factors[k].slice(0, places.length).map(Math.abs)) || 1; // copies of signals come after
    const href = imageOf(size, size, (row, column) => (grid.parts[(size - 1 - row) * size + column] * grid.limit) / weights.whole / largest);
    element(group, "image", { x: x - radius, y: y - radius, width: 2 * radius, height: 2 * radius, href, style: "clip-path: circle(50%)" });
    element(group, "path", { class: "axis", d: `M${x} ${y}${circle}M${x - 0.12 * radius} ${y - 0.99 * radius}L${x} ${y - 1.13 * radius}L${x + 0.12 * radius} ${y - 0.99 * radius}` });
    places.forEach(([a, b], i) => {
      const dot = element(group, "circle", { class: "sensor", cx: x + a * radius, cy: y - b * radius, r: 1.6 });
      element(dot, "title", {}, `${mode.names[i]}: ${written(mode.factors[k][i])}`);
    });
    element(group, "text", { x, y: y + radius + 18, "text-anchor": "middle" }, `component ${k + 1}`);
    group.addEventListener("click", () => pick(k + 1));
  });
}

function drawValues(holder) {
  const mode = data.components[holder.dataset.mode], values = mode.values;
  const x = { low: 0.4, high: values.length + 0.6, whole: true, each: 34, label: "component" };
  const y = { low: 0, high: 1.05 * (Math.max(...values) || 1), label: "singular value" };
  const chart = plot(holder, { height: 170, x, y, top: 20 });
  const room = chart.toX(2) - chart.toX(1), width = Math.min(0.7 * room, 34);
  values.forEach((value, k) => {
    const own = k < mode.factors.length ? { "data-component": k + 1, class: "bar" } : { class: "rest" };
    const bar = element(chart.svg, "rect", { ...own, x: chart.toX(k + 1) - width / 2, width, y: chart.toY(value), height: chart.bottom - chart.toY(value) });
    element(bar, "title", {}, `component ${k + 1}: ${written(value)}`);
    if (own["data-component"]) bar.addEventListener("click", () => pick(k + 1));
  });
  if (mode.carrying < values.length) {
    const place = chart.toX(mode.carrying + 0.5), late = place > (chart.left + chart.right) / 2;
    element(chart.svg, "line", { class: "mark", x1: place, x2: place, y1: chart.top - 10, y2: chart.bottom });
    element(chart.svg, "text", { class: "mark-text", x: place + (late ? -6 : 6), y: chart.top, "text-anchor": late ? "end" : "start" }, "99 %");
  }
}

function showComponent() {
  const chosen = state.component;
  for (const one of all("svg [data-component], tr[data-component]")) {
    const own = Number(one.dataset.component) === chosen;
    one.classList.toggle("on", own);
    one.classList.toggle("off", chosen > 0 && !own);
    if (own && one.tagName === "g") one.parentNode.append(one); // what is drawn last lies on top
  }
  for (const one of all("button[data-pick]")) one.setAttribute("aria-pressed", String(Number(one.dataset.pick) === chosen));
}

function pick(component) {
  state.component = component === state.component ? 0 : component;
  for (const holder of all(".factors")) if (data.components[holder.dataset.mode].largest) drawFactors(holder);
  showComponent();
}

function showShares() {
  for (const cell of all("[data-share]")) {
    const [mode, k] = cell.dataset.share.split(",").map(Number);
    const share = data.components[mode].shares[state.target + 1][k];
    if (share !== undefined) cell.textContent = `${(100 * share).toFixed(1)}\u00a0%`;
  }
}

// --- weights ----------------------------------------------------------------------------------------------------------

const weights = data.weights, order = weights.modes.length;
const lengthOf = (mode) => weights.shape[mode + 1];
const entryName = (n, i) => {
  const mode = weights.modes[n], unit = mode.unit ? ` ${mode.unit}` : "";
  return (mode.names ? `${mode.name} ${mode.names[i]}` : `${mode.name} = ${written(mode.x[i])}`) + unit;
};

function weightAt(at) {
  const tensor = weights[state.kind];
  let place = Math.max(state.target, 0);
  for (let n = 0; n < order; n++) place = place * lengthOf(n) + at[n];
  return (tensor.limit * tensor.parts[place]) / weights.whole;
}

// The largest weight of the chosen target, in any slice.
function limitOf() {
  const tensor = weights[state.kind], size = tensor.parts.length / weights.shape[0], first = Math.max(state.target, 0) * size;
  const most = tensor.parts.slice(first, first + size).reduce((high, part) => Math.max(high, Math.abs(part)), 0);
  return (tensor.limit * most) / weights.whole || 1;
}

// Where the largest weight of all is: the slice to begin with.
function largestAt() {
  const parts = weights[state.kind].parts;
  let place = parts.reduce((best, part, i) => (Math.abs(part) > Math.abs(parts[best]) ? i : best), 0);
  const at = [];
  for (let n = order - 1; n >= 0; n--) {
    at.unshift(place % lengthOf(n));
    place = Math.floor(place / lengthOf(n));
  }
  return at;
}

function colour(name) {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return found;
}

// Makes an image of values between -1 and 1, blue below zero and orange above, paler near it.
function imageOf(width, height, valueAt) {
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d"), pixels = context.createImageData(width, height);
  const [low, middle, high] = ["low", "middle", "high"].map(colour);
  for (let row = 0; row < height; row++)
    for (let column = 0; column < width; column++) {
      const value = valueAt(row, column), end = value < 0 ? low : high, share = Math.min(Math.abs(value), 1) ** 0.85;
      for (let c = 0; c < 3; c++) pixels.data[4 * (row * width + column) + c] = middle[c] + share * (end[c] - middle[c]);
      pixels.data[4 * (row * width + column) + 3] = 255;
    }
  context.putImageData(pixels, 0, 0);
  return canvas.toDataURL();
}

function imageAxis(mode, count) {
  // Coordinates come with five digits, which is up to a hundredth of a step.
  const step = mode.x && mode.x.length > 1 ? (mode.x[mode.x.length - 1] - mode.x[0]) / (mode.x.length - 1) : 0;
  const even = step !== 0 && mode.x.every((x, i) => Math.abs(x - mode.x[0] - i * step) <= 0.02 * Math.abs(step));
  if (!even) return { names: mode.names || mode.x.map((x) => written(x)), low: -0.5, high: count - 0.5, label: mode.label, at: (i) => i };
  const half = step / 2;
  return { low: mode.x[0] - half, high: mode.x[count - 1] + half, whole: mode.x.every(Number.isInteger), label: mode.label, at: (i) => mode.x[i] };
}

function drawImage(holder) {
  const { rows, columns } = weights, limit = limitOf();
  const [height, width] = [lengthOf(rows), lengthOf(columns)];
  const x = imageAxis(weights.modes[columns], width), y = imageAxis(weights.modes[rows], height);
  // Names begin at the top, as in a table, and counted rows as in a picture; coordinates grow upwards.
  const downwards = y.names || weights.modes[rows].counted;
  if (downwards) [y.low, y.high] = [y.high, y.low];
  const isPicture = weights.modes[rows].counted && weights.modes[columns].counted; // of square pixels
  const room = holder.clientWidth - 150, pixel = Math.min(40, room / width, 360 / height);
  const tall = isPicture ? Math.max(120, pixel * height) + 52 : Math.max(200, Math.min(460, 18 * height + 60, 0.75 * holder.clientWidth + 60));
  const right = isPicture ? Math.max(94, holder.clientWidth - 50 - pixel * width) : 94;
  const chart = plot(holder, { height: tall, x, y, right, gridLines: false });
  const at = (row, column) => state.at.map((i, n) => (n === rows ? (downwards ? row : height - 1 - row) : n === columns ? column : i));
  const box = { x: chart.left, y: chart.top, width: chart.right - chart.left, height: chart.bottom - chart.top };
  const looks = { preserveAspectRatio: "none", style: "image-rendering: pixelated" };
  element(chart.svg, "image", { ...box, ...looks, href: imageOf(width, height, (r, c) => weightAt(at(r, c)) / limit) });
  element(chart.svg, "rect", { ...box, class: "frame" });
  drawScale(chart, limit, looks);
  const cursor = element(chart.svg, "rect", { class: "cursor", width: box.width / width, height: box.height / height, visibility: "hidden" });
  return {
    shape: [height, width],
    find: (px, py) => [Math.floor(((py - box.y) / box.height) * height), Math.floor(((px - box.x) / box.width) * width)],
    show: (row, column) => {
      for (const [name, value] of Object.entries({ x: box.x + (column * box.width) / width, y: box.y + (row * box.height) / height, visibility: "visible" }))
        cursor.setAttribute(name, value);
      return at(row, column);
    },
  };
}

function drawScale(chart, limit, looks) {
  const x = chart.right + 14, height = chart.bottom - chart.top;
  const image = imageOf(1, 101, (row) => 1 - row / 50);
  element(chart.svg, "image", { x, y: chart.top, width: 12, height, ...looks, href: image });
  element(chart.svg, "rect", { x, y: chart.top, width: 12, height, class: "frame" });
  const middle = chart.top + height / 2, far = chart.right + 88;
  const name = state.kind === "coef" ? "weight" : "pattern";
  element(chart.svg, "text", { class: "title", x: far, y: middle, "text-anchor": "middle", transform: `rotate(-90 ${far} ${middle})` }, name);
  for (const share of [1, 0, -1])
    element(chart.svg, "text", { x: x + 17, y: chart.top + ((1 - share) / 2) * height + (share ? 4 + 4 * share : 4) }, written(share * limit, 2));
}

function drawLine(holder) {
  const count = lengthOf(0), values = Array.from({ length: count }, (_, i) => weightAt([i]));
  const mode = weights.modes[0], limit = limitOf();
  const y = { low: -1.06 * limit, high: 1.06 * limit, label: state.kind === "coef" ? "weight" : "pattern" };
  const chart = plot(holder, { height: 280, x: entryAxis(mode, count), y });
  const xs = values.map((_, i) => chart.toX(mode.names ? i : mode.x[i]));
  element(chart.svg, "line", { class: "zero", x1: chart.left, x2: chart.right, y1: chart.toY(0), y2: chart.toY(0) });
  element(chart.svg, "path", { class: "line", d: pathOf(xs, values.map(chart.toY)) }).style.stroke = "var(--c1)";
  const cursor = element(chart.svg, "circle", { class: "cursor", r: 5, visibility: "hidden" });
  return {
    shape: [1, count],
    find: (px) => [0, xs.reduce((best, x, i) => (Math.abs(x - px) < Math.abs(xs[best] - px) ? i : best), 0)],
    show: (_, column) => {
      for (const [name, value] of Object.entries({ cx: xs[column], cy: chart.toY(values[column]), visibility: "visible" })) cursor.setAttribute(name, value);
      return [column];
    },
  };
}

let slice = null;

function showReading() {
  const output = byId("reading");
  if (!state.cursor) return output.replaceChildren();
  const at = slice.show(...state.cursor);
  const told = at.map((i, n) => entryName(n, i)).join(", ");
  output.textContent = `${told}: ${state.kind === "coef" ? "weight" : "pattern"} ${written(weightAt(at))}`;
}

function drawSlice(holder) {
  slice = order === 1 ? drawLine(holder) : drawImage(holder);
  showReading();
}

function moveCursor(row, column) {
  const [rows, columns] = slice.shape;
  state.cursor = [Math.min(Math.max(row, 0), rows - 1), Math.min(Math.max(column, 0), columns - 1)];
  showReading();
}

function watchSlice() {
  const holder = byId("slice");
  holder.addEventListener("pointermove", (event) => {
    const svg = holder.querySelector("svg"), box = svg.getBoundingClientRect(), ratio = svg.viewBox.baseVal.width / box.width;
    const [row, column] = slice.find((event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio);
    const inside = row >= 0 && row < slice.shape[0] && column >= 0 && column < slice.shape[1];
    if (inside) moveCursor(row, column);
  });
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  holder.addEventListener("keydown", (event) => {
    const step = moves[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, column] = state.cursor || [0, -step[1]];
    moveCursor(row + step[0], column + step[1]);
  });
  state.at = largestAt();
  for (const input of all(".slide input")) {
    input.value = state.at[input.dataset.mode];
    const n = Number(input.dataset.mode), output = input.parentNode.querySelector("output");
    const slide = () => {
      state.at[n] = Number(input.value);
      output.textContent = entryName(n, state.at[n]).replace(weights.modes[n].name, "").replace(/^ = /, "").trim();
      drawSlice(holder);
    };
    input.addEventListener("input", slide);
    slide();
  }
  for (const button of all("button[data-kind]"))
    button.addEventListener("click", () => {
      state.kind = button.dataset.kind;
      for (const one of all("button[data-kind]")) one.setAttribute("aria-pressed", String(one === button));
      drawSlice(holder);
    });
}

// --- curves -----------------------------------------------------------------------------------------------------------

function drawPath(holder) {
  const { name, strengths, mean, error, chosen, quantity } = data.path, log = strengths.every((one) => one > 0);
  const low = mean.map((one, k) => one - error[k]), high = mean.map((one, k) => one + error[k]);
  const x = { low: Math.min(...strengths), high: Math.max(...strengths), log, label: name };
  const chart = plot(holder, { height: 300, x, y: { ...spread([...low, ...high]), label: quantity }, top: 24 });
  const xs = strengths.map(chart.toX);
  element(chart.svg, "path", { class: "band", d: pathOf([...xs, ...xs.toReversed()], [...high.map(chart.toY), ...low.map(chart.toY).toReversed()]) + "Z" });
  const curve = element(chart.svg, "path", { class: "line", d: pathOf(xs, mean.map(chart.toY)) });
  curve.style.stroke = "var(--c1)";
  const place = chart.toX(chosen), late = place > (chart.left + chart.right) / 2;
  element(chart.svg, "line", { class: "mark", x1: place, x2: place, y1: chart.top - 12, y2: chart.bottom });
  element(chart.svg, "text", { class: "mark-text", x: place + (late ? -6 : 6), y: chart.top - 3, "text-anchor": late ? "end" : "start" }, `chosen: ${written(chosen)}`);
}

const residuals = () => data.residuals[Math.min(Math.max(state.target, 0), data.residuals.length - 1)];

function drawMeasured(holder) {
  const { predicted, measured, lower = [], upper = [] } = residuals(), both = spread([...predicted, ...measured, ...lower, ...upper]);
  const chart = plot(holder, { height: 320, x: { ...both, label: "predicted" }, y: { ...both, label: "measured" } });
  const ends = [both.low, both.high];
  element(chart.svg, "path", { class: "mark", d: pathOf(ends.map(chart.toX), ends.map(chart.toY)) });
  lower.forEach((low, k) => element(chart.svg, "line", { class: "interval", x1: chart.toX(predicted[k]), x2: chart.toX(predicted[k]), y1: chart.toY(low), y2: chart.toY(upper[k]) }));
  const looks = { class: "dot", r: 3, "fill-opacity": 0.65 };
  predicted.forEach((x, k) => (element(chart.svg, "circle", { ...looks, cx: chart.toX(x), cy: chart.toY(measured[k]) }).style.fill = "var(--c1)"));
}

function drawHistogram(holder) {
  const { counts, edges } = residuals();
  const chart = plot(holder, {
    height: 320,
    x: { low: edges[0], high: edges[edges.length - 1], label: "residual" },
    y: { low: 0, high: 1.05 * Math.max(...counts), whole: true, label: "samples" },
  });
  counts.forEach((count, k) => {
    const from = chart.toX(edges[k]), to = chart.toX(edges[k + 1]), top = chart.toY(count);
    const bar = element(chart.svg, "rect", { x: from + 0.5, width: Math.max(to - from - 1, 0.5), y: top, height: chart.bottom - top });
    bar.style.fill = "var(--c1)";
    element(bar, "title", {}, `${written(edges[k])} to ${written(edges[k + 1])}: ${count}`);
  });
}

// --- the whole --------------------------------------------------------------------------------------------------------

const drawings = [
  ...all(".factors").map((holder) => [holder, drawFactors]),
  ...all(".values").map((holder) => [holder, drawValues]),
  ...[["slice", drawSlice], ["path", drawPath], ["measured", drawMeasured], ["histogram", drawHistogram]]
    .map(([name, draw]) => [byId(name), draw])
    .filter(([holder]) => holder),
];

function drawAll() {
  for (const [holder, draw] of drawings) draw(holder);
  showComponent();
}

function setTarget(target) {
  state.target = target;
  for (const select of all("select.target")) {
    const there = [...select.options].some((option) => Number(option.value) === target);
    select.value = String(there ? target : 0);
  }
  showShares();
  for (const [holder, draw] of drawings) if (["slice", "measured", "histogram"].includes(holder.id)) draw(holder);
}

function watchTheme() {
  const button = byId("theme"), system = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
  const isDark = () => (root.style.colorScheme || (system.matches ? "dark" : "light")) === "dark";
  const show = () => {
    button.textContent = isDark() ? "light" : "dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent} colours`);
    for (const [holder, draw] of drawings) // an image keeps its colours, all else follows the style
      if (holder.id === "slice" || holder.querySelector(".head")) draw(holder);
    showComponent();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.style.colorScheme = isDark() ? "light" : "dark";
    show();
  });
  system.addEventListener("change", show);
  let before = "";
  addEventListener("beforeprint", () => {
    before = root.style.colorScheme;
    root.style.colorScheme = "light";
    show();
  });
  addEventListener("afterprint", () => {
    root.style.colorScheme = before;
    show();
  });
  show();
}

for (const button of all("button[data-pick]"))
  button.addEventListener("click", () => (button.dataset.pick === "0" ? ((state.component = 0), showComponent()) : pick(Number(button.dataset.pick))));
for (const select of all("select.target")) select.addEventListener("change", () => setTarget(Number(select.value)));
if (byId("slice")) watchSlice();
drawAll();
watchTheme();
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return; // a phone that hides its address bar changes only the height
  width = innerWidth;
  drawAll();
});
