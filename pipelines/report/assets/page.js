"use strict";
// Draws every plot of the page with uPlot: drag to zoom, double-click to see all, hover to read.
(() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const narrow = () => window.innerWidth < 600;

  function drawLines(data) {
    return (u) => {
      const c = u.ctx, { left, top, width, height } = u.bbox, scale = devicePixelRatio;
      c.save();
      c.beginPath(); c.rect(left, top, width, height); c.clip();
      c.font = `${11 * scale}px sans-serif`;
      c.lineWidth = scale; c.setLineDash([4 * scale, 3 * scale]);
      const line = (x0, y0, x1, y1) => { c.beginPath(); c.moveTo(x0, y0); c.lineTo(x1, y1); c.stroke(); };
      c.strokeStyle = css("--bad"); c.fillStyle = css("--bad");
      const labels = [];
      for (const [at, text] of data.levels) {
        const y = u.valToPos(at, "y", true);
        if (!text && at === 0) { c.strokeStyle = css("--line"); }
        line(left, y, left + width, y);
        if (text) { // above its line; below it where another label stands already
          const crowded = labels.some((other) => Math.abs(other - (y - 6 * scale)) < 14 * scale);
          labels.push(crowded ? y + 14 * scale : y - 6 * scale);
          c.textAlign = "right"; c.fillText(text, left + width - 4 * scale, labels.at(-1));
        }
        c.strokeStyle = css("--bad");
      }
      c.strokeStyle = css("--soft"); c.fillStyle = css("--soft"); c.textAlign = "left";
      data.marks.forEach(([at, text], i) => {
        const x = u.valToPos(at, "x", true);
        line(x, top, x, top + height);
        c.fillText(text, x + 4 * scale, top + (12 + 13 * (i % 3)) * scale);
      });
      c.restore();
    };
  }

  function draw(holder) {
    const data = JSON.parse(document.getElementById(holder.dataset.plot).textContent);
    const axis = (label) => ({
      label, stroke: css("--ink"), labelSize: 22, size: label === data.y_label ? 56 : 38, font: "12px sans-serif", labelFont: "12px sans-serif",
      values: data.log ? undefined : (u, splits) => splits.map((v) => (v == null ? "" : String(Number(v.toPrecision(6))))),
      grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 },
    });
    const short = (u, v) => (v == null ? "–" : String(Number(v.toPrecision(5))));
    // Limits are part of the picture: without them a curve far below its limit fills the plot.
    const range = (u, low, high) => {
      if (data.log) return [low / 1.2, high * 1.2];
      for (const [at, text] of data.levels) { if (text || at < 0) { low = Math.min(low, at); high = Math.max(high, at); } }
      const room = 0.06 * (high - low || 1);
      return [low < 0 || low > 0.3 * high ? low - room : Math.min(0, low), high + room];
    };
    const options = {
      width: holder.clientWidth, height: narrow() ? 240 : 290,
      scales: { x: { time: false }, y: data.log ? { distr: 3, range } : { range } },
      axes: [{ ...axis(data.x_label), side: 2 }, axis(data.y_label)],
      series: [
        { label: data.x_label, value: short },
        ...data.curves.map((curve) => ({
          label: curve.label, stroke: css(`--c${curve.colour % 8}`), width: 1.8, value: short, spanGaps: data.span_gaps,
          paths: data.bars ? uPlot.paths.bars({ size: [0.9, 60] }) : undefined, fill: data.bars ? css(`--c${curve.colour % 8}`) : undefined,
          dash: curve.dashed ? [6, 4] : undefined, points: { show: data.x.length < 40 && !data.bars && !curve.edge },
          ...(curve.edge ? { width: 0.5 } : {}),
        })),
      ],
      bands: data.bands.map(([upper, lower]) => ({ series: [upper + 1, lower + 1], fill: css(`--c${data.curves[upper].colour % 8}`) + "2e" })),
      hooks: { draw: [drawLines(data)] },
      legend: { live: true },
    };
    holder.textContent = "";
    holder.plot = new uPlot(options, [data.x, ...data.curves.map((curve) => curve.values)], holder);
    holder.numbers = data;
  }

  function showNumbers(details) {
    const holder = details.parentElement.querySelector(".chart"), room = details.querySelector(".scroll");
    if (room.childElementCount) return;
    const data = holder.numbers, names = [data.x_label, ...data.curves.map((curve) => curve.label)];
    const rows = data.x.map((x, i) => [x, ...data.curves.map((curve) => curve.values[i])]);
    const quote = (v) => (v == null ? "" : /[",\n]/.test(String(v)) ? `"${String(v).replaceAll('"', '""')}"` : String(v));
    const csv = [names, ...rows].map((row) => row.map(quote).join(",")).join("\n") + "\n";
    const link = document.createElement("a");
    link.className = "download"; link.download = `${holder.dataset.plot}.csv`; link.textContent = "save as CSV";
    link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
    details.insertBefore(link, room);
    const table = document.createElement("table"), add = (row, tag) => {
      const line = table.insertRow();
      for (const v of row) { const cell = document.createElement(tag); cell.textContent = v ?? ""; line.append(cell); }
    };
    add(names, "th"); rows.forEach((row) => add(row, "td"));
    room.append(table);
  }

  const holders = [...document.querySelectorAll(".chart")];
  // A plot in a folded section has no width: it is drawn when the section is opened.
  const drawAll = () => holders.forEach((holder) => { holder.plot?.destroy(); holder.plot = null; if (holder.clientWidth) draw(holder); });
  const drawNew = (within) => within.querySelectorAll(".chart").forEach((holder) => { if (!holder.plot && holder.clientWidth) draw(holder); });
  const openAt = () => {
    const target = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    const details = target?.querySelector("details.section");
    if (details && !details.open) { details.open = true; drawNew(details); target.scrollIntoView(); }
  };
  const fit = () => holders.forEach((holder) => {
    const wide = holder.clientWidth;
    if (holder.plot && wide && wide !== holder.plot.width) holder.plot.setSize({ width: wide, height: holder.plot.height });
  });
  drawAll();
  document.querySelectorAll("details").forEach((d) => d.addEventListener("toggle", () => d.open && drawNew(d)));
  addEventListener("hashchange", openAt);
  openAt();
  addEventListener("beforeprint", () => { document.querySelectorAll("details.section").forEach((d) => { d.open = true; }); drawAll(); });
  document.querySelectorAll("details.numbers").forEach((d) => d.addEventListener("toggle", () => d.open && showNumbers(d)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("resize", fit);
  matchMedia("print").addEventListener("change", drawAll);
})();
