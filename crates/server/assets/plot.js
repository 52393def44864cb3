// Draws the plots of a page: counts over time, from the JSON in `data-plot`.
(() => {
  "use strict";
  const HEIGHT = 190;
  const drawn = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const COLOURS = { succeeded: "good", retried: "warn", failed: "bad", conflicted: "info", active: "faint", edited: "accent" };

  const draw = (element) => {
    const data = JSON.parse(element.dataset.plot);
    const axis = { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const clock = (_, values) => {
      const short = values.length > 1 && values[1] - values[0] < 60;
      const shape = { hour: "2-digit", minute: "2-digit", hour12: false, ...(short && { second: "2-digit" }) };
      return values.map((value) => new Date(value * 1000).toLocaleTimeString([], shape));
    };
    const elapsed = (_, values) => values.map((value) => `${+value.toFixed(2)} s`);
    const whole = (_, values) => values.map((value) => (Number.isInteger(value) ? value : ""));
    const options = {
      width: element.clientWidth || 600,
      height: HEIGHT,
      cursor: { y: false, drag: { x: false, y: false } },
      legend: { live: true },
      scales: { x: { time: !data.elapsed }, y: { range: (_, low, high) => [0, Math.max(high, 4)] } },
      axes: [
        { ...axis, values: data.elapsed ? elapsed : clock, space: 70 },
        { ...axis, values: whole, size: 46 },
      ],
      series: [
        { label: data.elapsed ? "after" : "at", value: (_, at) => (at == null ? "–" : data.elapsed ? `${at.toFixed(2)} s` : new Date(at * 1000).toLocaleTimeString()) },
        ...data.series.map((one) => ({
          label: one.name,
          value: (_, count) => (count == null ? "–" : count),
          stroke: colour(COLOURS[one.name] || "accent"),
          fill: colour(`${COLOURS[one.name] || "accent"}-soft`) || undefined,
          width: 2,
          points: { show: false },
        })),
      ],
    };
    element.replaceChildren();
    const plot = new uPlot(options, [data.times, ...data.series.map((one) => one.values)], element);
    drawn.set(element, plot);
  };

  const all = () => {
    for (const [element, plot] of drawn) {
      if (!element.isConnected) {
        plot.destroy();
        drawn.delete(element);
      }
    }
    document.querySelectorAll("[data-plot]").forEach((element) => {
      if (!drawn.has(element)) draw(element);
    });
  };

  const again = () => {
    drawn.forEach((plot) => plot.destroy());
    drawn.clear();
    all();
  };

  all();
  document.body.addEventListener("htmx:afterSettle", all);
  addEventListener("resize", () => {
    drawn.forEach((plot, element) => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
})();
