// Draws what stands in the page as numbers: counts over time.
(() => {
  "use strict";
  const HEIGHT = 190;
  const drawn = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const COLOURS = { succeeded: "good", retried: "warn", failed: "bad", "in force": "faint", changed: "accent" };

  const draw = (element) => {
    const data = JSON.parse(element.dataset.plot);
    const axis = { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const elapsed = (_, values) => values.map((value) => `${+value.toFixed(2)} s`);
    const whole = (_, values) => values.map((value) => (Number.isInteger(value) ? value : ""));
    const options = {
      width: element.clientWidth || 600,
      height: HEIGHT,
      cursor: { y: false, drag: { x: false, y: false } },
      legend: { live: true },
      scales: { x: { time: !data.elapsed }, y: { range: (_, low, high) => [0, Math.max(high, 4)] } },
      axes: [
        data.elapsed ? { ...axis, values: elapsed } : axis,
        { ...axis, values: whole, size: 46 },
      ],
      series: [
        { label: data.elapsed ? "after" : "at" },
        ...data.series.map((one) => ({
          label: one.name,
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
