// The charts of a report or a history that can be hovered and zoomed: one uPlot per panel, those of a run with one cursor and one time axis.
// They are made when the section of their run is unfolded. All texts go through uPlot, which sets them as text, not as markup.
"use strict";
(() => {
  const root = document.documentElement;
  const made = [];
  const css = name => getComputedStyle(root).getPropertyValue(name).trim();
  const digits = value => String(+value.toPrecision(3));
  const scaled = (value, steps) => {
    const [size, unit] = steps.find(([size]) => Math.abs(value) >= size) || steps[steps.length - 1];
    return digits(value / size) + unit;
  };
  const FORMS = {
    count: value => scaled(value, [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]),
    bytes: value => scaled(value, [[1e12, " TB"], [1e9, " GB"], [1e6, " MB"], [1e3, " kB"], [1, " B"]]),
    ns: value => scaled(value, [[6e10, " min"], [1e9, " s"], [1e6, " ms"], [1e3, " us"], [1, " ns"]]),
    percent: value => digits(value) + " %",
  };
  const seconds = at => digits(at) + " s";
  const date = at => new Date(at * 1e3).toISOString().slice(0, 16).replace("T", " "); // UTC, as the tables have it
  const BANDS = { "warm-up": "#8c8c8c30", differs: "#8c8c8c50", stall: "#d55e0030", event: "#d55e0060" };

  function bands(u, run) {
    for (const [from, to, kind] of run.bands) {
      const left = Math.max(u.valToPos(from, "x", true), u.bbox.left);
      const right = Math.min(u.valToPos(to, "x", true), u.bbox.left + u.bbox.width);
      if (right < u.bbox.left || left > u.bbox.left + u.bbox.width) continue;
      u.ctx.fillStyle = BANDS[kind];
      u.ctx.fillRect(left, u.bbox.top, Math.max(right - left, 1.5), u.bbox.height);
    }
  }

  function axis(more) {
    const line = { stroke: () => css("--line"), width: 1 };
    return { stroke: () => css("--soft"), grid: line, ticks: line, font: "11px system-ui, sans-serif", ...more };
  }

  function options(run, chart, form, width) {
    const times = { label: "at", value: (u, value) => (value == null ? "–" : run.at(value)) };
    return {
      title: chart.title,
      width,
      height: 210,
      cursor: {
        drag: { x: true, y: false },
        sync: { key: run.key, filters: { pub: type => type === "mousemove" || type === "mouseleave" } },
        bind: { dblclick: u => () => u.setScale("x", { min: run.span[0], max: run.span[1] }) },
      },
      scales: { x: { time: !!run.dates }, y: {} },
      tzDate: at => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
      axes: [axis({ size: 30, space: run.dates ? 90 : 50, values: (u, at) => at.map(value => run.at(value).slice(0, 10)) }), axis({
        size: 62, values: (u, at) => at.map(value => (value == null ? "" : form(value))),
      })],
      series: [times],
      hooks: {
        drawClear: [u => bands(u, run)],
        setScale: [(u, key) => key === "x" && zoomed(run, u)],
      },
    };
  }

  function lines(run, chart, width) {
    const form = FORMS[chart.unit];
    const opts = options(run, chart, form, width);
    opts.scales.y = chart.log
      ? { distr: 3, range: (u, least, most) => (least == null ? [1e3, 1e9] : uPlot.rangeLog(least, most, 10, false)) }
      : { range: run.dates ? undefined : (u, least, most) => [0, most > 0 ? most * 1.08 : 1] };
    for (const line of chart.lines)
      opts.series.push({
        label: line.label,
        stroke: line.colour || (() => css("--ink")),
        width: line.points ? 0 : line.width,
        dash: line.dash,
        points: line.points ? { show: true, size: 7, fill: line.colour } : { size: 4, ...(run.dates && { show: !line.dash }) },
        value: (u, value) => (value == null ? "–" : form(value)),
      });
    const tables = chart.lines.map(line => [run.xs[line.x], line.y]);
    return [opts, uPlot.join(tables)];
  }

  function heat(run, chart, width) {
    const opts = options(run, chart, FORMS.ns, width);
    const edge = place => 10 ** (place / chart.steps);
    const columns = new Map(chart.counts.map(([place, counts], number) => [number, { place, counts }]));
    const most = Math.max(1, ...chart.counts.flatMap(([, counts]) => counts));
    const count = (number, place) => columns.get(number)?.counts[place - columns.get(number).place] || 0;
    opts.scales.y = { distr: 3, range: () => uPlot.rangeLog(edge(chart.least), edge(chart.most + 1), 10, false) };
    opts.series.push({
      label: "ops",
      stroke: chart.colour,
      paths: () => null,
      points: { show: false },
      value: (u, total, series, number) => {
        if (total == null) return "–";
        const place = Math.floor(Math.log10(u.posToVal(u.cursor.top, "y")) * chart.steps);
        const between = `${FORMS.ns(edge(place))} to ${FORMS.ns(edge(place + 1))}`;
        const own = u.cursor.event && u.cursor.top >= 0; // else the cursor is over another chart of the run
        return own ? `${count(number, place)} of ${total} took ${between}` : String(total);
      },
    });
    opts.hooks.draw = [u => {
      u.ctx.save();
      u.ctx.beginPath();
      u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
      u.ctx.clip();
      u.ctx.fillStyle = chart.colour;
      columns.forEach(({ place, counts }, number) => {
        const left = u.valToPos(u.data[0][number], "x", true);
        const right = u.valToPos(u.data[0][number] + chart.every, "x", true);
        counts.forEach((found, step) => {
          if (!found) return;
          const top = u.valToPos(edge(place + step + 1), "y", true);
          u.ctx.globalAlpha = 0.12 + 0.88 * (Math.log1p(found) / Math.log1p(most));
          u.ctx.fillRect(left, top, Math.ceil(right - left), Math.ceil(u.valToPos(edge(place + step), "y", true) - top));
        });
      });
      u.ctx.restore();
    }];
    const totals = chart.counts.map(([, counts]) => counts.reduce((sum, found) => sum + found, 0));
    return [opts, [run.xs[chart.x], totals]];
  }

  function zoomed(run, source) {
    const { min, max } = source.scales.x;
    for (const chart of run.charts)
      if (chart !== source && (chart.scales.x.min !== min || chart.scales.x.max !== max)) chart.setScale("x", { min, max });
    run.shown.textContent = `${run.at(min).replace(/ s$/, "")} to ${run.at(max)}`;
  }

  // A finger that moves sideways zooms as a mouse does; one that moves up or down scrolls the page (touch-action: pan-y).
  function fingers(u) {
    const over = u.over;
    const place = event => Math.min(Math.max(event.clientX - over.getBoundingClientRect().left, 0), over.clientWidth);
    const select = (left, width) => u.setSelect({ left, width, top: 0, height: over.clientHeight }, false);
    let from = null;
    const on = (type, then) => over.addEventListener(type, event => event.pointerType === "touch" && event.isPrimary && then(event));
    on("pointerdown", event => (from = place(event)));
    on("pointermove", event => {
      if (from === null) return;
      select(Math.min(from, place(event)), Math.abs(place(event) - from));
      u.setCursor({ left: place(event), top: over.clientHeight / 2 });
    });
    on("pointerup", event => {
      const [left, right] = [from, place(event)].sort((a, b) => a - b);
      const width = from === null ? 0 : right - left;
      from = null;
      select(0, 0);
      if (width > 10) u.setScale("x", { min: u.posToVal(left, "x"), max: u.posToVal(right, "x") });
    });
    on("pointercancel", () => ((from = null), select(0, 0)));
  }

  function make(box) {
    const run = JSON.parse(box.querySelector("script").textContent);
    run.key = box.id;
    run.at = run.dates ? date : seconds;
    run.charts = [];
    run.shown = box.querySelector(".shown");
    const grid = box.querySelector(".panels");
    for (const chart of run.panels) {
      const place = document.createElement("div");
      grid.append(place);
      const [opts, data] = (chart.counts ? heat : lines)(run, chart, Math.max(place.clientWidth, 200));
      const u = new uPlot(opts, data, place);
      place.chart = u;
      fingers(u);
      run.charts.push(u);
      new ResizeObserver(() => {
        if (place.clientWidth && place.clientWidth !== u.width) u.setSize({ width: place.clientWidth, height: opts.height });
      }).observe(place);
    }
    for (const u of run.charts) u.setScale("x", { min: run.span[0], max: run.span[1] });
    made.push(...run.charts);
  }

  root.classList.add("live");
  for (const box of document.querySelectorAll(".zoom")) {
    const section = box.closest("details");
    const once = () => {
      if (!section.open || box.dataset.made) return;
      box.dataset.made = "yes";
      make(box);
    };
    section.addEventListener("toggle", once);
    once();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => made.forEach(u => u.redraw()));
})();
