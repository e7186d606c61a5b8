"use strict";
/* Elements, numbers and axis ticks, for charts.js. */
const SVG = "http://www.w3.org/2000/svg";

function node(tag, attributes, parent) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (parent) parent.appendChild(made);
  return made;
}
function html(tag, kind, parent) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  if (parent) parent.appendChild(made);
  return made;
}
function words(text, parent) {
  if (text.en === text.zh) { parent.append(text.en); return; }
  for (const [key, code] of [["en", "en"], ["zh", "zh-CN"]]) {
    const span = html("span", key, parent);
    span.lang = code;
    span.textContent = text[key];
  }
}
function button(text, parent, action) {
  const made = html("button", "", parent);
  made.type = "button";
  words(text, made);
  made.addEventListener("click", action);
  return made;
}
const colour = (role) => `--c: var(--${role.replace(/^s(\d+)$/, (_, n) => `s${n % 8}`)})`;

/* First index whose x is not below `value`. */
function from(x, value) {
  let low = 0, high = x.length;
  while (low < high) { const middle = (low + high) >> 1; if (x[middle] < value) low = middle + 1; else high = middle; }
  return low;
}
function nearest(x, value) {
  const i = from(x, value);
  return i > 0 && (i === x.length || value - x[i - 1] <= x[i] - value) ? i - 1 : i;
}
function nice(low, high, most) {
  const rough = (high - low) / Math.max(most, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((m) => m * power >= rough * 0.999) * power, found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step || 0);
  return found;
}
function decades(low, high) {
  const span = Math.log10(high / low), digits = span < 0.7 ? [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9] : span < 2 ? [1, 2, 5] : [1];
  const stride = Math.max(1, Math.ceil(span / 6)), found = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
    if (e % stride === 0) for (const d of digits) { const v = d * 10 ** e; if (v >= low && v <= high) found.push(v); }
  return found.length > 1 ? found : nice(low, high, 4);
}
function short(value) {
  const size = Math.abs(value);
  if (size < 1e-300) return "0";
  if (size < 1e-3 || size >= 1e6) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

function exact(value) {
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e9) ? value.toExponential().replace("e+", "e") : String(value);
}
