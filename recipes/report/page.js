// Draws the curves of a report, and reads new ones while a run goes on.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 240;
const MARGIN = { left: 58, right: 12, top: 8, bottom: 24 };
const MANY = 60; // From so many points on, a trend is drawn over them.
const PARTS = 40; // A trend averages over such a part of a curve, to each side of a point.
const POLL = 1000;
const COLOURS = 8;
const PADDING = 16; // Of a card, around the picture.

const logarithmic = new Map(); // By the title of a chart: what the user chose.
let current = JSON.parse(document.getElementById("data").textContent);

function element(parent, name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return parent.appendChild(made);
}

function tag(parent, name, className = "", text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return parent.appendChild(made);
}

function colour(number) {
  return `var(--c${number % COLOURS})`;
}

function shown(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) {
    return value.toExponential(2).replace(/\.?0*e\+?/, "e");
  }
  return String(+value.toPrecision(5));
}

function step(value) {
  return Number.isInteger(value) ? value.toLocaleString("en-US") : shown(value);
}

// Round numbers that divide a range into about so many parts.
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].find((n) => n * power >= rough * 0.999) * power;
  const found = [];
  for (let n = Math.ceil(low / size - 1e-9); n * size <= high + size * 1e-9; n++) {
    found.push(+(n * size).toPrecision(12));
  }
  return found;
}

function powers(low, high) {
  const found = [];
  for (let n = Math.floor(Math.log10(low)); n <= Math.ceil(Math.log10(high)); n++) {
    for (const digit of [1, 2, 5]) found.push(+(digit * 10 ** n).toPrecision(12));
  }
  const inside = found.filter((value) => value >= low && value <= high);
  if (inside.length < 2) return ticks(low, high, 4).filter((value) => value > 0);
  const whole = inside.filter((value) => Number.isInteger(Math.log10(value)));
  const chosen = inside.length > 6 && whole.length > 1 ? whole : inside;
  const every = Math.ceil(chosen.length / 6);
  return chosen.filter((_, number) => number % every === 0);
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function scale([low, high], [from, to], isLog) {
  const bend = isLog ? Math.log10 : (value) => value;
  const begin = bend(low);
  const span = bend(high) - begin || 1;
  return (value) => from + ((bend(value) - begin) / span) * (to - from);
}

function trend(values) {
  const reach = Math.ceil(values.length / PARTS / 2);
  const sums = [0];
  for (const value of values) sums.push(sums.at(-1) + value);
  return values.map((_, number) => {
    const begin = Math.max(0, number - reach);
    const end = Math.min(values.length, number + reach + 1);
    return (sums[end] - sums[begin]) / (end - begin);
  });
}

function path(xs, ys, toX, toY) {
  return xs
    .map((x, n) => `${n ? "L" : "M"}${toX(x).toFixed(1)} ${toY(ys[n]).toFixed(1)}`)
    .join("");
}

// The place of the number in a rising list that is nearest to a value.
function nearest(xs, value) {
  let low = 0;
  let high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low && value - xs[low - 1] < xs[low] - value ? low - 1 : low;
}

class Chart {
  constructor(parent) {
    this.card = tag(parent, "section", "card chart");
    const heading = tag(this.card, "h2");
    this.title = tag(heading, "span");
    this.button = tag(heading, "button", "", "log");
    this.button.type = "button";
    this.button.onclick = () => {
      logarithmic.set(this.chart.title, !this.isLog);
      this.draw(this.chart);
    };
    this.svg = element(this.card, "svg", { role: "img" });
    this.keys = tag(this.card, "div", "keys");
    this.tip = tag(this.card, "div", "tip");
    this.tip.hidden = true;
    this.svg.onpointermove = (event) => this.point(event);
    this.svg.onpointerdown = (event) => this.point(event);
    this.svg.onpointerleave = () => this.leave();
  }

  draw(chart) {
    this.chart = chart;
    const series = chart.series.filter((one) => one.x.length);
    const ys = series.flatMap((one) => one.y);
    const canLog = ys.every((y) => y > 0);
    this.isLog = canLog && (logarithmic.get(chart.title) ?? chart.log);
    this.title.textContent = chart.title;
    this.button.hidden = !canLog;
    this.button.setAttribute("aria-pressed", this.isLog);
    this.svg.replaceChildren();
    this.svg.setAttribute("aria-label", `${chart.title} by ${chart.x}`);
    this.width = Math.max(this.svg.clientWidth, 160);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.svg.setAttribute("height", HEIGHT);
    this.axes(series.flatMap((one) => one.x), ys, chart);
    chart.series.forEach((one, n) => one.x.length && this.curve(one, n));
    this.series = chart.series.map((one, n) => ({ ...one, n }));
    this.xs = [...new Set(series.flatMap((one) => one.x))];
    this.rule = element(this.svg, "line", {
      class: "rule", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden",
    });
    this.dots = element(this.svg, "g");
    this.legend(chart);
    if (this.at !== undefined) this.show(this.at);
  }

  axes(xs, ys, chart) {
    const right = this.width - MARGIN.right;
    const bottom = HEIGHT - MARGIN.bottom;
    let [low, high] = extent(ys);
    if (low === high) [low, high] = this.isLog ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
    if (!this.isLog) [low, high] = [low - (high - low) * 0.04, high + (high - low) * 0.04];
    const across = extent(xs);
    this.isLogX = chart.logX && across[0] > 0;
    this.toX = scale(across, [MARGIN.left, right], this.isLogX);
    this.toY = scale([low, high], [bottom, MARGIN.top], this.isLog);
    for (const y of this.isLog ? powers(low, high) : ticks(low, high, 5)) {
      const place = this.toY(y);
      element(this.svg, "line", { class: "grid", x1: MARGIN.left, x2: right, y1: place, y2: place });
      const label = { x: MARGIN.left - 8, y: place + 4, "text-anchor": "end" };
      element(this.svg, "text", label, shown(y));
    }
    const count = Math.max(2, Math.floor(this.width / 110));
    for (const x of this.isLogX ? powers(...across) : ticks(...across, count)) {
      const place = this.toX(x);
      element(this.svg, "line", { class: "grid", x1: place, x2: place, y1: bottom, y2: bottom + 4 });
      const anchor = place > right - 20 ? "end" : "middle";
      element(this.svg, "text", { x: place, y: bottom + 17, "text-anchor": anchor }, step(x));
    }
  }

  curve(one, number) {
    const stroke = colour(number);
    const many = one.x.length >= MANY && !one.dots;
    const line = (ys, kind) =>
      element(this.svg, "path", {
        class: kind, stroke, d: path(one.x, ys, this.toX, this.toY), "data-name": one.name,
      });
    if (many) line(one.y, "curve faint");
    line(many ? trend(one.y) : one.y, "curve");
    if (one.dots || one.x.length === 1) {
      one.x.forEach((x, n) => {
        element(this.svg, "circle", { cx: this.toX(x), cy: this.toY(one.y[n]), r: 2.5, fill: stroke });
      });
    }
  }

  legend(chart) {
    this.keys.replaceChildren();
    chart.series.forEach((one, n) => {
      if (!one.x.length) return;
      const entry = tag(this.keys, "span");
      tag(entry, "i").style.background = colour(n);
      entry.append(`${one.name} `);
      tag(entry, "b", "", shown(one.y.at(-1)));
    });
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * this.width;
    if (!this.xs.length) return;
    this.show(this.xs.reduce((best, x) =>
      Math.abs(this.toX(x) - place) < Math.abs(this.toX(best) - place) ? x : best));
  }

  show(at) {
    this.at = at;
    this.dots.replaceChildren();
    this.tip.replaceChildren();
    this.tip.hidden = false;
    const left = this.toX(at);
    this.rule.setAttribute("x1", left);
    this.rule.setAttribute("x2", left);
    this.rule.setAttribute("visibility", "visible");
    tag(this.tip, "div", "", `${this.chart.x} ${step(at)}`);
    for (const one of this.series) {
      if (!one.x.length || at < one.x[0] || at > one.x.at(-1)) continue;
      const place = nearest(one.x, at);
      // Tests are far apart: one of another step is said with it.
      const other = one.x[place] === at ? "" : ` (${this.chart.x} ${step(one.x[place])})`;
      const entry = tag(this.tip, "div");
      tag(entry, "i").style.background = colour(one.n);
      entry.append(`${one.name} `);
      tag(entry, "b", "", shown(one.y[place]));
      entry.append(other);
      element(this.dots, "circle", {
        cx: this.toX(one.x[place]), cy: this.toY(one.y[place]), r: 4, fill: colour(one.n),
      });
    }
    const beside = left > this.width / 2 ? left - this.tip.offsetWidth - 14 : left + 14;
    this.tip.style.left = `${Math.max(0, beside + PADDING)}px`;
    this.tip.style.top = "3.2rem";
  }

  leave() {
    this.at = undefined;
    this.tip.hidden = true;
    this.dots.replaceChildren();
    this.rule.setAttribute("visibility", "hidden");
  }
}

const charts = [];

function drawCharts() {
  const parent = document.getElementById("charts");
  while (charts.length > current.charts.length) charts.pop().card.remove();
  while (charts.length < current.charts.length) charts.push(new Chart(parent));
  current.charts.forEach((chart, n) => charts[n].draw(chart));
}

function showStatus(kind, text) {
  const status = document.getElementById("status");
  status.className = kind;
  status.textContent = text;
}

function show(found) {
  const tables = document.getElementById("tables");
  // What is the same stays, with what the reader has selected or scrolled in it.
  if (found.tables !== current.tables) tables.innerHTML = found.tables;
  current = found;
  document.title = found.title;
  document.querySelector("h1").textContent = found.title;
  showStatus(found.state, found.status);
  drawCharts();
}

async function poll() {
  try {
    const answer = await fetch(`data.json?since=${encodeURIComponent(current.version)}`);
    if (answer.status === 200) show(await answer.json());
    else if (answer.status === 204) showStatus(current.state, current.status);
    else throw new Error(answer.status);
  } catch {
    showStatus("lost", "the server has stopped: this is what it said last");
  }
  setTimeout(poll, POLL);
}

drawCharts();
window.addEventListener("resize", drawCharts);
if (current.version !== null) setTimeout(poll, POLL);
