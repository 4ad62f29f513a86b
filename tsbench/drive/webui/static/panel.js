// The charts of tsbench: below the tables in Locust's tabs Latency, Writes and Host, or all on a page of their own.
(() => {
  "use strict";
  const BASE = new URL("./", document.currentScript.src);
  const POLL_MS = 1000, KEEP_S = 900, SHOW_S = 300, LEAST_S = 60, PATIENCE_MS = 2500;
  const SLOW = "Locust does not answer at the moment…";
  const COLOURS = ["#0a84c6", "#e08a00", "#0a9a6f", "#d55e00", "#b568a0", "#8a8f94"];
  const PERCENTS = ["p50", "p90", "p99", "p99.9", "max"];
  const live = { test: "", revision: 0, seconds: new Map(), host: [], from: 0, until: 0, tables: [], report: "…", running: false, stage: "none", progress: null };
  const choice = { op: "", kind: "" };

  // --- numbers as people read them
  const digits = (x) => (x >= 100 ? Math.round(x).toLocaleString("en") : String(Number(x.toPrecision(3))));
  const scaled = (steps) => (x) => {
    const [size, name] = steps.find(([s]) => Math.abs(x) >= s) || steps[steps.length - 1];
    return `${digits(x / size)}${name}`;
  };
  const duration = scaled([[1e9, " s"], [1e6, " ms"], [1e3, " us"], [1, " ns"]]);
  const bytes = scaled([[1e9, " GB"], [1e6, " MB"], [1e3, " kB"], [1, " B"]]);
  const count = scaled([[1e6, " M"], [1e4 / 10, " k"], [1, ""]]);
  const rate = (unit) => (x) => `${unit(x)}/s`;
  const percent = (x) => `${digits(x)} %`;
  const clock = (s) => new Date(s * 1000).toLocaleTimeString("en-GB");

  const element = (tag, attributes = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children);
    return made;
  };

  // --- a chart: lines over time on a canvas, and a legend that tells the last values, or those under the pointer;
  // a value that is older than AGED_S is not the last second's, and not shown as if it were
  const AGED_S = 3;
  class Chart {
    constructor(title, unit, { log = false, wide = false, floor = 1, without = "" } = {}) {
      Object.assign(this, { unit, log, floor, without, lines: [], at: null });
      this.canvas = element("canvas", { role: "img", ariaLabel: title });
      this.legend = element("div", { className: "tsb-legend" });
      this.title = element("h3", {}, title);
      this.root = element("section", { className: wide ? "tsb-chart tsb-wide" : "tsb-chart" }, this.title, this.legend, this.canvas);
      this.canvas.addEventListener("pointermove", (event) => { this.at = event.offsetX; this.draw(); });
      this.canvas.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
    }

    show(lines, from, to) {
      Object.assign(this, { lines, from, to });
      this.draw();
    }

    range() {
      const values = this.lines.flatMap((line) => line.points.map(([, value]) => value)).filter((v) => v !== null && (!this.log || v > 0));
      if (this.log) {
        const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), 0);
        if (!high) return [3, 9];
        const bottom = Math.floor(Math.log10(low));
        return [bottom, Math.max(bottom + 1, Math.ceil(Math.log10(high)))];
      }
      return [0, Math.max(values.reduce((a, b) => Math.max(a, b), 0) * 1.08, this.floor)];
    }

    ticks(low, high) {
      if (this.log) return Array.from({ length: high - low + 1 }, (_, i) => low + i);
      const raw = (high - low) / 4, size = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 2.5, 5, 10].map((m) => m * size).find((s) => s >= raw);
      return Array.from({ length: Math.floor(high / step) + 1 }, (_, i) => i * step);
    }

    draw() {
      const { canvas } = this, ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
      if (!width) return;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      const pen = canvas.getContext("2d"), ink = getComputedStyle(canvas).color;
      pen.scale(ratio, ratio);
      pen.font = `12px ${getComputedStyle(canvas).fontFamily}`;
      const [low, high] = this.range(), left = 68, right = width - 8, top = 8, bottom = height - 24;
      const x = (s) => left + ((s - this.from) / (this.to - this.from)) * (right - left);
      const y = (v) => bottom - (((this.log ? Math.log10(Math.max(v, 10 ** low)) : v) - low) / (high - low)) * (bottom - top);
      this.grid(pen, ink, { low, high, left, right, top, bottom, x });
      pen.save();
      pen.beginPath();
      pen.rect(left - 4, top - 4, right - left + 8, bottom - top + 8);
      pen.clip();
      for (const line of this.lines) this.line(pen, line, x, y);
      pen.restore();
      this.empty(pen, ink, (left + right) / 2, (top + bottom) / 2);
      this.tell(pen, ink, { left, right, top, bottom, x });
    }

    grid(pen, ink, { low, high, left, right, top, bottom, x }) {
      pen.fillStyle = pen.strokeStyle = ink;
      pen.lineWidth = 1;
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      for (const tick of this.ticks(low, high)) {
        const at = Math.round(bottom - ((tick - low) / (high - low)) * (bottom - top)) + 0.5;
        pen.globalAlpha = 0.14;
        pen.beginPath();
        pen.moveTo(left, at);
        pen.lineTo(right, at);
        pen.stroke();
        pen.globalAlpha = 0.75;
        pen.fillText(this.unit(this.log ? 10 ** tick : tick), left - 8, at);
      }
      pen.textAlign = "center";
      pen.textBaseline = "top";
      const room = (right - left) / 90, step = [5, 10, 15, 30, 60, 120, 300].find((s) => (this.to - this.from) / s <= room) || 300;
      for (let s = Math.ceil(this.from / step) * step; s <= this.to; s += step) {
        if (x(s) > left + 24 && x(s) < right - 24) pen.fillText(clock(s), x(s), bottom + 7);
      }
      pen.globalAlpha = 1;
    }

    line(pen, line, x, y) {
      pen.strokeStyle = pen.fillStyle = line.colour;
      pen.lineWidth = 1.8;
      pen.lineJoin = "round";
      pen.beginPath();
      let before = null;
      for (const [s, value] of line.points) {
        if (value === null) { before = null; continue; }
        if (before === null || s - before > 3.5) { pen.moveTo(x(s) - 1, y(value)); pen.lineTo(x(s) + 1, y(value)); } // seen without neighbours, too
        else pen.lineTo(x(s), y(value));
        before = s;
      }
      pen.stroke();
      const last = line.points[line.points.length - 1];
      if (last && last[1] !== null) {
        pen.beginPath();
        pen.arc(x(last[0]), y(last[1]), 2.5, 0, 7);
        pen.fill();
      }
    }

    empty(pen, ink, x, y) {
      if (!this.without || this.lines.some((line) => line.points.some(([, value]) => value !== null))) return;
      pen.fillStyle = ink;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(this.without, x, y);
    }

    tell(pen, ink, { left, right, top, bottom, x }) {
      let second = Infinity;
      if (this.at !== null && this.at >= left && this.at <= right) {
        second = this.from + ((this.at - left) / (right - left)) * (this.to - this.from);
        pen.globalAlpha = 0.4;
        pen.strokeStyle = ink;
        pen.beginPath();
        pen.moveTo(x(second), top);
        pen.lineTo(x(second), bottom);
        pen.stroke();
        pen.globalAlpha = 1;
      }
      this.legend.replaceChildren(...this.lines.map((line) => {
        const [last] = line.points.slice(-1), until = Math.min(second + 0.5, last ? last[0] : 0);
        const known = line.points.filter(([s, value]) => value !== null && s <= until && s > until - AGED_S);
        const swatch = element("i");
        swatch.style.background = line.colour;
        const text = known.length ? this.unit(known[known.length - 1][1]) : "–";
        return element("span", {}, swatch, line.name, element("b", {}, text));
      }));
      if (second !== Infinity) this.legend.append(element("span", { className: "tsb-why" }, `at ${clock(second)}`));
    }
  }

  // --- what the charts show
  // A name keeps the colour that it had first, in every chart of its kind: a later one does not shift the others'.
  const inks = {};
  const ink = (kind, name) => {
    const known = (inks[kind] ||= new Map());
    if (!known.has(name)) known.set(name, COLOURS[known.size % COLOURS.length]);
    return known.get(name);
  };
  const lines = (kind, names, rows, value) =>
    names.map((name) => ({ name, colour: ink(kind, name), points: rows.map((row) => [row.second, value(row, name)]) }));
  const opsOf = () => [...new Set([...live.seconds.values()].flatMap((ops) => [...ops.keys()]))].filter(Boolean).sort();
  const secondsNow = () => {
    const known = [...live.seconds.keys()].filter((s) => s >= live.from && s < live.until);
    if (!known.length) return [];
    const first = known.reduce((a, b) => Math.min(a, b)), last = known.reduce((a, b) => Math.max(a, b));
    return Array.from({ length: last - first + 1 }, (_, i) => ({ second: first + i, ops: live.seconds.get(first + i) || new Map() }));
  };
  const sum = (row, names, key) => names.reduce((total, name) => total + ((row.ops.get(name) || {})[key] || 0), 0);
  const percentile = (row, op, kind, name) => ((row.ops.get(op) || {})[kind] || [])[PERCENTS.indexOf(name)] ?? null;

  class Section {
    constructor(key) {
      this.key = key;
      this.button = element("button", { className: "tsb-button", type: "button" }, "Download the report");
      this.open = element("a", { href: new URL("report?show=1", BASE), target: "_blank", rel: "noopener" }, "open it");
      this.open.style.color = "inherit";
      this.why = element("span", { className: "tsb-why" });
      this.bar = element("div", { className: "tsb-bar" });
      this.bar.append(...this.controls(), element("span", { className: "tsb-grow" }), this.why, this.open, this.button);
      this.charts = Section.charts[key]();
      this.table = element("div", { className: "tsb-table", id: `tsb-table-${key}` });
      this.root = element("div", { className: "tsb-panel", id: `tsb-${key}` }, this.table, this.bar,
        element("div", { className: "tsb-charts" }, ...Object.values(this.charts).map((chart) => chart.root)));
      this.button.addEventListener("click", () => this.ask());
    }

    controls() {
      if (this.key !== "latency") return [];
      this.op = element("select", { name: "tsb-op" });
      this.kind = element("select", { name: "tsb-kind" }, new Option("response time (from when it was due)", "response"),
        new Option("service time (from when it was sent)", "service"));
      this.op.addEventListener("change", () => { choice.op = this.op.value; this.update(); });
      this.kind.addEventListener("change", () => { choice.kind = this.kind.value; this.update(); });
      return [element("label", {}, "Op ", this.op), element("label", {}, "Time ", this.kind)];
    }

    // While the checks run the button waits for them, and the download follows.
    ask() {
      if (live.stage === "checking") { this.waits = true; this.update(); } else this.download();
    }

    async download() {
      this.waits = false;
      this.button.disabled = this.busy = true;
      this.why.textContent = "Drawing the report…";
      try {
        const answer = await fetch(new URL("report", BASE));
        if (!answer.ok) throw new Error(await answer.text());
        const name = /filename="?([^";]+)/.exec(answer.headers.get("Content-Disposition") || "");
        const link = element("a", { href: URL.createObjectURL(await answer.blob()), download: name ? name[1] : "tsbench-report.html" });
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 60000);
        this.said = "";
      } catch (error) {
        this.said = error.message;
      }
      this.busy = false;
      this.update();
    }

    update() {
      const checking = live.stage === "checking";
      if (this.waits && !checking) { if (live.report) this.waits = false; else this.download(); }
      this.button.disabled = this.busy || this.waits || (Boolean(live.report) && !checking);
      this.open.hidden = Boolean(live.report);
      const state = this.waits ? "The checks are running; the download follows…" : live.report || this.said || "The report is ready:";
      if (!this.busy) this.why.textContent = live.slow ? SLOW : state;
      const rows = secondsNow(), last = rows.length ? rows[rows.length - 1].second : Date.now() / 1000;
      const from = Math.max(rows.length ? rows[0].second : last, last - SHOW_S), to = Math.max(last, from + LEAST_S);
      this[this.key](rows, from, to);
      this.showTable();
    }

    // Locust's own table stays as it was when the test was stopped, before the checks have ended.
    showTable() {
      const { columns, rows } = live.tables.find(({ key }) => key === this.key) || { columns: [], rows: [] };
      const head = element("tr", {}, ...columns.map(([, title]) => element("th", { scope: "col" }, title)));
      const body = rows.map((row) => element("tr", {}, ...columns.map(([name]) => element("td", { className: `tsb-${name}` }, String(row[name])))));
      this.table.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
    }

    latency(rows, from, to) {
      const ops = opsOf();
      if (ops.join() !== [...this.op.options].map((o) => o.value).join()) this.op.replaceChildren(...ops.map((op) => new Option(op, op)));
      if (!ops.includes(choice.op)) choice.op = ops.find((op) => op.startsWith("write-")) || ops[0] || "";
      this.op.value = choice.op;
      choice.kind ||= live.time || "";
      this.kind.value = choice.kind || "service";
      this.charts.all.title.textContent = `${choice.kind === "response" ? "Response" : "Service"} time of ${choice.op || "ops"}, per second`;
      this.charts.all.show(lines("percent", PERCENTS, rows, (row, name) => percentile(row, choice.op, choice.kind, name)), from, to);
      this.charts.ops.show(lines("op", ops, rows, (row, op) => percentile(row, op, choice.kind, "p99")), from, to);
      this.charts.rate.show(lines("op", ops, rows, (row, op) => sum(row, [op], "done")), from, to);
    }

    writes(rows, from, to) {
      const writes = opsOf().filter((op) => op.startsWith("write-")), names = writes.length > 1 ? [...writes, "all"] : writes;
      const of = (name) => (name === "all" ? writes : [name]);
      this.charts.points.show(lines("op", names, rows, (row, name) => sum(row, of(name), "points")), from, to);
      this.charts.ops.show(lines("op", names, rows, (row, name) => sum(row, of(name), "done")), from, to);
      this.charts.failed.show(lines("outcome", ["failed", "unknown"], rows, (row, key) => sum(row, writes, key)), from, to);
    }

    host(rows, from, to) {
      const server = live.host.some((row) => "server_cpu_percent" in row), who = ["load generator", ...(server ? ["server"] : [])];
      const key = { "load generator": "client_", server: "server_" };
      const end = live.host.length ? live.host[live.host.length - 1].second : to;
      const begin = Math.max(live.host.length ? live.host[0].second : from, end - SHOW_S);
      const show = (chart, names, value) => chart.show(lines("host", names, live.host, value), begin, Math.max(end, begin + LEAST_S));
      const of = (name) => (row, who_) => row[(key[who_] || "") + (key[who_] ? name[1] : name[0])] ?? null;
      show(this.charts.cpu, ["this host", ...who], of(["cpu_percent", "cpu_percent"]));
      show(this.charts.memory, ["this host", ...who], of(["memory_bytes", "rss_bytes"]));
      show(this.charts.disk, ["read", "written"], (row, name) => row[name === "read" ? "disk_read_bytes" : "disk_write_bytes"]);
      const lag = (row, name) => percentile(row, "", "lag", name);
      this.charts.lag.show(lines("percent", ["p50", "p99", "max"], rows, lag), from, to);
    }
  }

  Section.charts = {
    latency: () => ({
      all: new Chart("Response time", duration, { log: true, wide: true }),
      ops: new Chart("p99 of every op, per second", duration, { log: true, without: "fewer than 100 ops of a kind in each second" }),
      rate: new Chart("Ops per second", count, { floor: 5 }),
    }),
    writes: () => ({
      points: new Chart("Points acknowledged per second", count, { wide: true, floor: 10 }),
      ops: new Chart("Writes per second", count, { floor: 5 }),
      failed: new Chart("Writes per second that failed, or ended unknown", count, { floor: 5 }),
    }),
    host: () => ({
      cpu: new Chart("CPU (host: of all cores; processes: 100 % is one core)", percent, { floor: 100 }),
      memory: new Chart("Memory", bytes, { floor: 1e8 }),
      disk: new Chart("Disk of this host", rate(bytes), { floor: 1e6 }),
      lag: new Chart("How late the load generator's event loop runs", duration, { log: true }),
    }),
  };

  // --- news from the server
  const take = (news) => {
    if (news.test !== live.test) { live.seconds.clear(); live.host = []; }
    for (const row of news.seconds) {
      if (!live.seconds.has(row.second)) live.seconds.set(row.second, new Map());
      live.seconds.get(row.second).set(row.op, row);
    }
    for (const second of live.seconds.keys()) if (second < news.until - KEEP_S) live.seconds.delete(second);
    const host = [...live.host, ...news.host].slice(-KEEP_S);
    Object.assign(live, news, { seconds: live.seconds, host });
  };

  let polling = false;
  const poll = async () => {
    if (document.hidden || polling) return;
    polling = true;
    const late = setTimeout(() => { live.slow = true; refresh(); }, PATIENCE_MS);
    await fetchNews();
    clearTimeout(late);
    live.slow = polling = false;
    refresh();
  };

  const fetchNews = async () => {
    const last = live.host.length ? live.host[live.host.length - 1].second : 0;
    const query = new URLSearchParams({ test: live.test, revision: live.revision, host: last });
    try {
      const answer = await fetch(new URL(`live?${query}`, BASE), { headers: { Accept: "application/json" } });
      if (answer.redirected) { location.reload(); return; }
      if (answer.ok) take(await answer.json());
    } catch { /* the server is gone; Locust's own page says so */ }
  };

  // --- where they are shown
  const KEYS = ["latency", "writes", "host"], sections = {}, status = tsbStatus.root;
  const section = (key) => (sections[key] ||= new Section(key));
  const alone = document.getElementById("tsbench");

  const place = () => {
    if (alone) return;
    const tabs = document.querySelector("[role=tablist]");
    const container = tabs ? tabs.closest("[class*=MuiContainer]") || tabs.parentElement : null;
    const wanted = container && new URLSearchParams(location.search).get("tab");
    for (const key of KEYS) {
      const shown = key === wanted;
      if (!shown && sections[key]) sections[key].root.remove();
      if (shown && section(key).root.parentElement !== container) {
        container.append(section(key).root);
        section(key).update();
      }
    }
    const main = document.querySelector("main");
    if (main && status.parentElement !== main.parentElement) main.before(status);
    tsbStatus.form(["preparing", "running"].includes(live.stage));
  };

  const refresh = () => {
    tsbStatus.show(live, new URL("report?show=1", BASE));
    for (const key of KEYS) if (sections[key] && sections[key].root.isConnected) sections[key].update();
  };

  if (alone) {
    alone.append(status);
    for (const key of KEYS) {
      const title = key[0].toUpperCase() + key.slice(1);
      alone.append(element("h2", {}, title), section(key).root);
    }
  } else {
    new MutationObserver(place).observe(document.getElementById("root"), { childList: true, subtree: true });
    place();
  }
  addEventListener("resize", refresh);
  setInterval(poll, POLL_MS);
  poll();
})();
