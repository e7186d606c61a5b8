"use strict";
/* Draws the charts of #data into #plots: one x axis for all, values under the pointer in every legend. */
const Charts = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const whole = data.range[0] < data.range[1] ? data.range : [data.range[0] - 1, data.range[1] + 1];
  const view = { from: whole[0], to: whole[1], at: null };
  const LEFT = 56, RIGHT = 12, TOP = 20, BOTTOM = 20;
  const SYMBOLS = { incident: "┊", rollback: "┊", restart: "┊", spike: "▼", skipped: "|", overflow: "|" };
  const plots = [];

  /* The values a chart has to make room for; a few far outliers are left to marks at the edge. */
  function range(plot) {
    const seen = [];
    let low = Infinity, high = -Infinity;
    const log = plot.log, room = (v) => { if (v !== null && (!log || v > 0)) { low = Math.min(low, v); high = Math.max(high, v); } };
    for (const line of plot.spec.lines) {
      if (line.hidden) continue;
      for (let i = from(line.x, view.from); i < line.x.length && line.x[i] <= view.to; i++) {
        const y = line.y[i];
        if (y !== null && (!log || y > 0)) seen.push(y);
        if (line.low && line.style !== "line") { room(line.low[i]); room(line.high[i]); }
      }
    }
    if (seen.length) {
      seen.sort((a, b) => a - b);
      const usual = seen[Math.floor(0.99 * (seen.length - 1))], top = seen[seen.length - 1];
      room(seen[0]);
      room(!log && top - seen[0] > 2 * (usual - seen[0]) && usual > seen[0] ? usual : top);
    }
    if (low > high) return null;
    for (const level of plot.spec.levels) room(level.value);
    if (log) { const pad = Math.max((high / low) ** 0.06, 1.05); return [low / pad, high * pad]; }
    const pad = 0.06 * (high - low) || Math.abs(high) * 0.1 || 0.1;
    return [low - pad, high + pad];
  }

  function draw(plot) {
    const svg = plot.svg, width = plot.box.clientWidth || 600;
    const tall = plot.spec.key === "loss" ? (width < 600 ? 250 : 310) : (width < 600 ? 165 : 180);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    svg.setAttribute("height", tall);
    const right = width - RIGHT, floor = tall - BOTTOM, y = range(plot);
    const X = (v) => LEFT + (v - view.from) / (view.to - view.from) * (right - LEFT);
    const Y = y && (plot.log
      ? (v) => v > 0 ? floor - Math.log(v / y[0]) / Math.log(y[1] / y[0]) * (floor - TOP) : Infinity
      : (v) => floor - (v - y[0]) / (y[1] - y[0]) * (floor - TOP));
    Object.assign(plot, { X, Y, right, floor, width });
    for (const v of nice(view.from, view.to, Math.max(2, (right - LEFT) / 75)).filter(Number.isInteger)) {
      node("line", { class: "grid", x1: X(v), x2: X(v), y1: TOP, y2: floor }, svg);
      const anchor = X(v) > right - 24 ? "end" : X(v) < LEFT + 12 ? "start" : "middle";
      node("text", { x: Math.min(Math.max(X(v), LEFT - 3), right), y: tall - 5, "text-anchor": anchor }, svg).textContent = v.toLocaleString("en");
    }
    for (const [key, said] of [["en", "step"], ["zh", "步"]])
      node("text", { class: key, x: LEFT - 8, y: tall - 5, "text-anchor": "end" }, svg).textContent = said;
    let below = Infinity;
    if (y) for (const v of plot.log ? decades(...y) : nice(y[0], y[1], tall > 200 ? 6 : 4)) {
      node("line", { class: "grid", x1: LEFT, x2: right, y1: Y(v), y2: Y(v) }, svg);
      if (below - Y(v) < 13) continue;
      below = Y(v);
      node("text", { x: LEFT - 6, y: Math.min(Y(v) + 4, floor), "text-anchor": "end" }, svg).textContent = short(v);
    }
    node("line", { class: "axis", x1: LEFT, x2: right, y1: floor, y2: floor }, svg);
    const name = `clip-${plot.spec.key}`, clip = node("clipPath", { id: name }, svg);
    node("rect", { x: LEFT - 3, y: TOP - 1, width: right - LEFT + 6, height: floor - TOP + 2 }, clip);
    const inside = node("g", { "clip-path": `url(#${name})` }, svg);
    drawEvents(plot, svg);
    if (y) {
      for (const level of plot.spec.levels)
        node("line", { class: "level", style: colour(level.role), x1: LEFT, x2: right, y1: Y(level.value), y2: Y(level.value) }, inside);
      for (const line of plot.spec.lines) if (!line.hidden) drawLine(plot, line, inside, svg);
    } else {
      for (const [key, said] of [["en", "no finite value here"], ["zh", "此处没有有限的数值"]])
        node("text", { class: `none ${key}`, x: (LEFT + right) / 2, y: (TOP + floor) / 2 }, svg).textContent = said;
    }
    for (const line of plot.spec.lines) if (!line.hidden) drawLost(plot, line, svg);
    plot.over = node("g", {}, svg);
    point(plot);
  }

  function drawLine(plot, line, inside, svg) {
    const { X, Y } = plot, style = colour(line.role), clamp = (v) => Math.max(-1e5, Math.min(1e5, v));
    const first = Math.max(0, from(line.x, view.from) - 1), last = Math.min(line.x.length - 1, from(line.x, view.to));
    const path = [], dots = [], bars = [], up = [], beyond = [];
    const alone = (i) => [i - 1, i + 1].every((j) => line.y[j] === undefined || line.y[j] === null);
    let ribbon = [], pen = false;
    const close = () => {
      if (ribbon.length > 1) node("polygon", { class: "band", style, points: ribbon.map((p) => `${p[0]},${p[1]}`).join(" ")
        + " " + ribbon.reverse().map((p) => `${p[0]},${p[2]}`).join(" ") }, inside);
      ribbon = [];
    };
    for (let i = first; i <= last; i++) {
      const value = line.y[i];
      const px = X(line.x[i]), py = value === null ? Infinity : Y(value);
      if (py === Infinity) {
        if (value !== null && px >= LEFT) beyond.push(px);
        pen = false; close(); continue;
      }
      const at = `${px.toFixed(1)} ${clamp(py).toFixed(1)}`;
      if (line.style !== "points") {
        if (!pen) path.push(`M${at}h.01`);
        else path.push(line.style === "step" ? `H${px.toFixed(1)}V${clamp(py).toFixed(1)}` : `L${at}`);
      }
      pen = true;
      if (line.style === "points" || (line.style === "both" && last - first < 120) || alone(i)) dots.push(`M${at}h.01`);
      if (line.low && line.low[i] !== null) {
        const a = clamp(Y(line.low[i])), b = clamp(Y(line.high[i]));
        if (line.style === "line") ribbon.push([px.toFixed(1), (b === 1e5 ? plot.floor : b).toFixed(1), (a === 1e5 ? plot.floor : a).toFixed(1)]);
        else bars.push(`M${px.toFixed(1)} ${a.toFixed(1)}V${b.toFixed(1)}M${(px - 3).toFixed(1)} ${a.toFixed(1)}h6M${(px - 3).toFixed(1)} ${b.toFixed(1)}h6`);
      }
      if (py < TOP - 1 && px >= LEFT - 1 && px <= plot.right + 1) up.push(px);
    }
    close();
    if (path.length) node("path", { class: `line ${line.faint ? "faint" : line.role}${path.length > 1000 ? " dense" : ""}`, style, d: path.join("") }, inside);
    if (bars.length) node("path", { class: "bar", style, d: bars.join("") }, inside);
    if (dots.length) node("path", { class: "dots", style, "stroke-width": dots.length > 300 ? 3 : dots.length > 60 ? 4 : 6, d: dots.join("") }, inside);
    const edge = (all, d) => { let before = -9; for (const px of all) if (px - before > 7) { before = px; node("path", { class: "solid", style, d: d(px) }, svg); } };
    edge(up, (px) => `M${px - 4} ${TOP}l4 -7 4 7z`);
    edge(beyond, (px) => `M${px - 4} ${plot.floor - 7}l4 7 4 -7z`);
  }

  /* Values that are not finite: crosses at the top edge, a bar where there are many in a row. */
  function drawLost(plot, line, svg) {
    let before = -9;
    for (const [a, b] of line.lost) {
      if (b < view.from || a > view.to) continue;
      const left = plot.X(Math.max(a, view.from)), right = plot.X(Math.min(b, view.to));
      if (right - left > 8) node("path", { class: "mark nonfinite", style: colour("lost"), d: `M${left} 8H${right}` }, svg);
      if (left - before < 5) continue;
      before = left;
      node("path", { class: "mark nonfinite", style: colour("lost"), d: `M${left - 4} 4l8 8m0 -8l-8 8` }, svg);
    }
  }

  function drawEvents(plot, svg) {
    for (const event of data.events) {
      const upright = SYMBOLS[event.kind] === "┊", style = colour(event.kind);
      let before = -9;
      for (const step of event.steps) {
        if (step < view.from || step > view.to) continue;
        const px = plot.X(step);
        if (px - before < (upright ? 3 : 2)) continue;
        before = px;
        if (upright) node("line", { class: "event", style, x1: px, x2: px, y1: TOP - 4, y2: plot.floor }, svg);
        else if (event.kind === "spike") node("path", { class: "solid", style, d: `M${px - 4} ${TOP - 8}h8l-4 7z` }, svg);
        else node("path", { class: "mark", style, d: `M${px} ${plot.floor - 7}v7` }, svg);
      }
    }
  }

  function reading(line, step) {
    for (const [a, b, n, word] of line.lost) if (a <= step && step <= b) return n > 1 ? `${word} (${a}–${b})` : word;
    if (!line.x.length) return "–";
    const i = nearest(line.x, step);
    if (line.y[i] === null) return "–";
    let said = exact(line.y[i]);
    if (line.low && line.low[i] !== null) said += ` ± ${short((line.high[i] - line.low[i]) / 2)}`;
    return line.x[i] === step ? said : `${said} @${line.x[i]}`;
  }

  /* Crosshair and legend values of one chart. */
  function point(plot) {
    plot.over.replaceChildren();
    const at = view.at, shown = at !== null && at >= view.from && at <= view.to;
    if (shown) node("line", { class: "cursor", x1: plot.X(at), x2: plot.X(at), y1: TOP - 6, y2: plot.floor }, plot.over);
    for (const line of plot.spec.lines) {
      line.label.textContent = at === null ? "" : reading(line, at);
      if (!shown || line.hidden || !line.x.length || !plot.Y) continue;
      const i = nearest(line.x, at);
      if (line.x[i] !== at || line.y[i] === null) continue;
      const py = plot.Y(line.y[i]);
      if (py >= TOP - 1 && py <= plot.floor + 1)
        node("circle", { class: "ring", style: colour(line.role), cx: plot.X(at), cy: py, r: 4 }, plot.over);
    }
  }

  let pending = 0;
  function later(all) {
    if (all) later.all = true;
    if (pending || !plots.length) return;
    pending = requestAnimationFrame(() => {
      pending = 0;
      for (const plot of plots) if (later.all) draw(plot); else point(plot);
      later.all = false;
      toolbar();
    });
  }
  function toolbar() {
    const where = document.getElementById("where");
    where.replaceChildren();
    const at = view.at === null ? null : view.at.toLocaleString("en");
    const ends = `${Math.ceil(view.from).toLocaleString("en")} – ${Math.floor(view.to).toLocaleString("en")}`;
    words(at === null ? { en: `steps ${ends}`, zh: `第 ${ends} 步` } : { en: `step ${at}`, zh: `第 ${at} 步` }, where);
    const sentence = view.at === null ? null : data.sentences[view.at];
    if (sentence) html("span", "sentence", where).textContent = ` ${sentence}`;
    document.getElementById("reset").disabled = view.from === whole[0] && view.to === whole[1];
  }
  function zoom(a, b) {
    const low = Math.max(Math.min(a, b), whole[0]), high = Math.min(Math.max(a, b), whole[1]);
    if (high - low < 2) { const middle = (low + high) / 2; view.from = middle - 1; view.to = middle + 1; }
    else { view.from = low; view.to = high; }
    later(true);
  }
  function reset() { view.from = whole[0]; view.to = whole[1]; later(true); }
  function mark(step) { view.at = step; later(false); }

  /* The step nearest to `value` at which a visible line of the chart has a point, finite or not. */
  function snap(plot, value) {
    let best = null;
    for (const line of plot.spec.lines) {
      if (line.hidden) continue;
      for (const [a, b] of line.lost) if (value >= a - 0.5 && value <= b + 0.5) return Math.min(b, Math.max(a, Math.round(value)));
      if (!line.x.length) continue;
      const x = line.x[nearest(line.x, value)];
      if (best === null || Math.abs(x - value) < Math.abs(best - value)) best = x;
    }
    return best;
  }

  function listen(plot) {
    const svg = plot.svg;
    let start = null, box = null;
    const step = (event) => {
      const px = (event.clientX - svg.getBoundingClientRect().left);
      return view.from + (px - LEFT) / (plot.right - LEFT) * (view.to - view.from);
    };
    svg.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      start = event.clientX;
      mark(snap(plot, step(event)));
    });
    svg.addEventListener("pointermove", (event) => {
      if (start !== null && Math.abs(event.clientX - start) > 8) {
        svg.setPointerCapture(event.pointerId);
        box = box || node("rect", { class: "chosen", y: TOP, height: plot.floor - TOP }, svg);
        const left = svg.getBoundingClientRect().left, a = start - left, b = event.clientX - left;
        const edges = [Math.max(LEFT, Math.min(a, b)), Math.min(plot.right, Math.max(a, b))];
        box.setAttribute("x", edges[0]);
        box.setAttribute("width", Math.max(0, edges[1] - edges[0]));
      }
      mark(snap(plot, step(event)));
    });
    const end = (event) => {
      if (box && event.type === "pointerup") {
        const left = svg.getBoundingClientRect().left;
        zoom(step(event), view.from + (start - left - LEFT) / (plot.right - LEFT) * (view.to - view.from));
      }
      if (box) box.remove();
      start = box = null;
    };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
    svg.addEventListener("pointerleave", (event) => { if (start === null && event.pointerType === "mouse") mark(null); });
    svg.addEventListener("dblclick", reset);
    svg.addEventListener("keydown", (event) => {
      const line = plot.spec.lines.find((l) => !l.hidden && l.x.length);
      if (event.key === "Escape") { mark(null); reset(); }
      if (!line || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      event.preventDefault();
      const i = view.at === null ? 0 : nearest(line.x, view.at) + (event.key === "ArrowRight" ? 1 : -1);
      mark(line.x[Math.max(0, Math.min(line.x.length - 1, i))]);
    });
  }

  function build(spec, parent) {
    const box = html("figure", "plot", parent), top = html("div", "top", box);
    box.id = `plot-${spec.key}`;
    box.style.marginInline = "0";
    words(spec.title, html("h3", "", top));
    words(spec.about, html("p", "about", top));
    const plot = { spec, box, log: spec.scale === "log" };
    if (spec.scale !== "linear_only") {
      const pair = html("div", "scale", top);
      const press = (log) => { plot.log = log; linear.setAttribute("aria-pressed", !log); other.setAttribute("aria-pressed", log); };
      const linear = button({ en: "linear", zh: "线性" }, pair, () => { press(false); draw(plot); });
      const other = button({ en: "log", zh: "对数" }, pair, () => { press(true); draw(plot); });
      press(plot.log);
    }
    const legend = html("div", "legend", box);
    for (const line of spec.lines) {
      const key = html("button", "", legend);
      key.type = "button";
      key.setAttribute("aria-pressed", "true");
      html("span", `swatch ${line.style}`, key).style.cssText = colour(line.role);
      words(line.name, key);
      key.addEventListener("click", () => { line.hidden = !line.hidden; key.setAttribute("aria-pressed", String(!line.hidden)); draw(plot); });
      const lost = line.lost.reduce((sum, stretch) => sum + stretch[2], 0);
      if (lost) {
        const [n, first] = [lost, line.lost[0][0]].map((v) => v.toLocaleString("en"));
        words({ en: ` ✕ ${n} not finite, first at step ${first}`, zh: ` ✕ ${n} 个点非有限值，首次在第 ${first} 步` },
          html("span", "lost", key));
      }
      line.label = html("span", "reading", key);
    }
    for (const level of spec.levels) if (level.value !== 0) {
      const key = html("span", "level", legend);
      html("span", "swatch dashed", key).style.cssText = colour(level.role);
      words(level.name, key);
    }
    plot.svg = node("svg", { role: "img", tabindex: "0", "aria-label": `${spec.title.en} ${spec.title.zh}` }, box);
    const cut = spec.lines.filter((line) => line.of > line.x.length + 400)[0];
    if (cut) words({ en: `${cut.x.length.toLocaleString("en")} of ${cut.of.toLocaleString("en")} points drawn: lowest and highest of each stretch.`,
      zh: `${cut.of.toLocaleString("en")} 个点中画出 ${cut.x.length.toLocaleString("en")} 个：每一小段的最低与最高点。` }, html("p", "about", box));
    listen(plot);
    return plot;
  }

  function showEvents(parent) {
    for (const event of data.events) {
      const item = html("span", "", parent), key = html("span", "key", item);
      key.style.cssText = `--tone: var(--${event.kind})`;
      key.textContent = SYMBOLS[event.kind] || "┊";
      words(event.name, item);
      item.append(` (${event.count.toLocaleString("en")}) `);
      for (const step of event.steps.slice(0, 5)) {
        const go = html("button", "go", item);
        go.type = "button";
        go.dataset.step = step;
        go.textContent = step.toLocaleString("en");
      }
      if (event.count > 5) item.append("…");
    }
  }

  /* Shows a step in the charts, nearer where the run is long. */
  function visit(step) {
    const half = (whole[1] - whole[0]) / 40;
    if (half > 5) zoom(step - half, step + half);
    mark(step);
    document.getElementById("charts").scrollIntoView({ behavior: "smooth" });
  }

  const parent = document.getElementById("plots");
  if (parent) {
    showEvents(document.getElementById("events"));
    for (const spec of data.charts) plots.push(build(spec, parent));
    document.getElementById("reset").addEventListener("click", reset);
    new ResizeObserver(() => later(true)).observe(parent);
    for (const plot of plots) draw(plot);
    toolbar();
  }
  return { plots, view, visit, zoom, reset, mark };
})();
