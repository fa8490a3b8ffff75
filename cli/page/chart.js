/* What the pages draw with: axes, points that tell their values, a table. Each page has its data in the element "data". */
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const colours = ["#3b7dd8", "#e07b39", "#3fa45b", "#c8506a", "#8b6fd0", "#2aa5a0", "#b08a2e", "#7d8794", "#d162b0", "#6aa6e8"];
const M = { left: 58, right: 14, top: 10, bottom: 38 };
let W = 560, H = 300; /* of a chart; a page may choose others before it draws */

const tip = document.getElementById("tip");
function showTip(event, text) {
  tip.textContent = text;
  tip.style.display = "block";
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const y = Math.max(8, event.clientY - tip.offsetHeight - 10);
  tip.style.left = x + "px";
  tip.style.top = y + "px";
}
function hideTip() { tip.style.display = "none"; }

function element(name, attributes, parent, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  parent.append(e);
  return e;
}
const count = n => Math.round(n).toLocaleString("en");
const short = n => n === null || n === undefined ? "–" : Number.isInteger(n) || n >= 1000 ? count(n) : n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n >= 0.01 ? n.toFixed(2) : n.toPrecision(2);

/* Ticks at round numbers; on a logarithmic axis at powers of ten, or at 1, 2, 5 between few of them. */
function ticks(low, high, log) {
  const out = [];
  if (log) {
    const decades = Math.log10(high / low);
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
      for (const m of decades < 2 ? [1, 2, 5] : [1]) {
        const v = m * 10 ** e;
        if (v >= low * 0.999 && v <= high * 1.001) out.push(v);
      }
    return out;
  }
  const rough = (high - low) / 5 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough);
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) out.push(Math.abs(v) < step * 1e-6 ? 0 : v);
  return out;
}
function scale(values, from, to, log) {
  let low = Math.min(...values), high = Math.max(...values);
  if (low === high) { low = log ? low / 2 : low - 1; high = log ? high * 2 : high + 1; }
  const f = log ? Math.log : x => x;
  const map = v => from + (f(v) - f(low)) / (f(high) - f(low)) * (to - from);
  map.low = low; map.high = high; map.log = log; map.ticks = ticks(low, high, log);
  return map;
}
function chart(title, about) {
  const box = document.createElement("section");
  box.className = "chart";
  const h = document.createElement("h2"), p = document.createElement("p");
  h.textContent = title; p.textContent = about;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", title);
  box.append(h, p, svg);
  document.getElementById("charts").append(box);
  return svg;
}
function axes(svg, x, y, xText, yText, xFormat, yFormat) {
  for (const v of x.ticks) {
    element("line", { class: "axis", x1: x(v), x2: x(v), y1: M.top, y2: H - M.bottom }, svg);
    element("text", { x: x(v), y: H - M.bottom + 15, "text-anchor": "middle" }, svg, xFormat(v));
  }
  for (const v of y.ticks) {
    element("line", { class: "axis", x1: M.left, x2: W - M.right, y1: y(v), y2: y(v) }, svg);
    element("text", { x: M.left - 6, y: y(v) + 4, "text-anchor": "end" }, svg, yFormat(v));
  }
  element("text", { x: (M.left + W - M.right) / 2, y: H - 6, "text-anchor": "middle" }, svg, xText);
  element("text", { x: 12, y: (M.top + H - M.bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(M.top + H - M.bottom) / 2})` }, svg, yText);
}

/* Hovering marks the nearest of the points and shows its text. */
function nearest(svg, points) {
  const mark = element("circle", { r: 5, fill: "none", "stroke-width": 2, visibility: "hidden" }, svg);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), px = (event.clientX - box.left) * W / box.width, py = (event.clientY - box.top) * H / box.height;
    let best = points[0], least = Infinity;
    for (const p of points) {
      const d = (p.at[0] - px) ** 2 + (p.at[1] - py) ** 2;
      if (d < least) { least = d; best = p; }
    }
    mark.setAttribute("cx", best.at[0]); mark.setAttribute("cy", best.at[1]);
    mark.setAttribute("stroke", best.colour); mark.setAttribute("visibility", "visible");
    showTip(event, best.text);
  });
  svg.addEventListener("pointerleave", () => { hideTip(); mark.setAttribute("visibility", "hidden"); });
}

/* Where a label may stand around its point: beside it, or farther off with a line that leads there. */
const places = [10, 26, 42].flatMap(far => [[1, 0], [-1, 0], [1, -0.6], [-1, -0.6], [1, 0.6], [-1, 0.6], [0, -1], [0, 1]].map(([x, y]) => ({ x: far * x, y: far * y, far })));

/* Puts names beside points where there is room; those for which there is none show theirs on hovering. */
function label(svg, points) {
  const taken = points.map(p => ({ left: p.at[0] - 5, right: p.at[0] + 5, top: p.at[1] - 5, bottom: p.at[1] + 5 }));
  const free = b => b.left >= M.left && b.right <= W - 2 && b.top >= 0 && b.bottom <= H - M.bottom &&
    taken.every(t => b.right <= t.left || b.left >= t.right || b.bottom <= t.top || b.top >= t.bottom);
  for (const p of points) {
    const text = element("text", { class: "label name" }, svg, p.name), width = text.getComputedTextLength();
    const place = places.map(o => {
      const left = p.at[0] + o.x - (o.x > 0 ? 3 : o.x < 0 ? width - 3 : width / 2), middle = p.at[1] + o.y;
      return { left, right: left + width, top: middle - 6, bottom: middle + 6, o };
    }).find(free);
    if (!place) { text.remove(); continue; }
    text.setAttribute("x", place.left); text.setAttribute("y", place.bottom - 2);
    taken.push(place);
    if (place.o.far > 10) element("line", { class: "lead", x1: p.at[0], y1: p.at[1], x2: p.at[0] + 0.8 * place.o.x, y2: p.at[1] + 0.8 * place.o.y }, svg);
  }
}

/* A logarithmic axis with some room at both ends; round numbers where it spans too little for its ticks. */
function axis(values, room, from, to, marks) {
  const s = scale([Math.min(...values) / room, Math.max(...values) * room], from, to, true);
  s.ticks = (marks || s.ticks).filter(v => v >= s.low && v <= s.high);
  if (s.ticks.length < 2) s.ticks = ticks(s.low, s.high, false);
  return s;
}

function dot(colour) {
  const e = document.createElement("span");
  e.className = "dot";
  e.style.background = colour;
  return e;
}

/* Lines, one a series of { name, colour, points }; hovering shows the nearest point. */
function lines(title, about, series, xText, yText, xFormat, yFormat, xLog) {
  const svg = chart(title, about);
  const points = series.flatMap(s => s.points).filter(p => !xLog || p[0] > 0);
  if (points.length === 0) { element("text", { x: W / 2, y: H / 2, "text-anchor": "middle" }, svg, "there is nothing to show"); return; }
  const x = scale(points.map(p => p[0]), M.left, W - M.right, xLog), y = scale(points.map(p => p[1]), H - M.bottom, M.top, false);
  axes(svg, x, y, xText, yText, xFormat, yFormat);
  const drawn = [];
  for (const s of series) {
    const own = s.points.filter(p => !xLog || p[0] > 0).map(p => ({ at: [x(p[0]), y(p[1])], colour: s.colour, text: `${s.name}\n${xText}: ${xFormat(p[0])}\n${yText}: ${yFormat(p[1])}` }));
    drawn.push(...own);
    element("polyline", { class: "curve", points: own.map(o => o.at.join(",")).join(" "), fill: "none", stroke: s.colour, "stroke-width": 2, "stroke-linejoin": "round" }, svg);
    if (own.length < 30) for (const o of own) element("circle", { cx: o.at[0], cy: o.at[1], r: 3, fill: s.colour }, svg);
  }
  nearest(svg, drawn);
}

/* Names the colours under the last chart. */
function keys(series) {
  const legend = document.createElement("p");
  for (const s of series) {
    const name = document.createElement("span");
    name.className = "key";
    name.append(dot(s.colour), s.name);
    legend.append(name);
  }
  document.getElementById("charts").lastElementChild.append(legend);
}

/* Fills the table: rows are { colour, cells, bad }, and the dot of their colour stands in the cell `at`. */
function table(names, rows, at) {
  const t = document.getElementById("table"), head = t.createTHead().insertRow(), body = t.createTBody();
  for (const name of names) {
    const th = document.createElement("th");
    th.textContent = name;
    head.append(th);
  }
  for (const row of rows) {
    const line = body.insertRow();
    if (row.bad) line.className = "bad";
    row.cells.forEach((text, i) => {
      const cell = line.insertCell();
      if (i === at) cell.append(dot(row.colour));
      cell.append(text);
    });
  }
}
