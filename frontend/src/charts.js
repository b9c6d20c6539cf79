// Charts whose figure says where their data is, which series or map it has, and how often it changes.
import { TimeChart } from "./_chart.js";
import { every, get } from "./_common.js";
import { HeatMap } from "./_heat_map.js";

const byUrl = new Map();
for (const figure of document.querySelectorAll("[data-chart]")) {
  const url = figure.dataset.chart;
  if (!byUrl.has(url)) byUrl.set(url, []);
  byUrl.get(url).push(figure);
}

for (const [url, figures] of byUrl) {
  const [drawn, maps] = [[], []];
  for (const figure of figures) (figure.dataset.map ? maps : drawn).push(figure);
  const heatMaps = maps.map((figure) => new HeatMap(figure, { what: figure.dataset.map, unit: figure.dataset.unit }));
  const charts = drawn.map((figure) => {
    const series = figure.dataset.series.split(",").map((one) => one.split(":"));
    const chart = new TimeChart(figure, { names: series.map(([, name]) => name), unit: figure.dataset.unit });
    return { chart, keys: series.map(([key]) => key) };
  });
  const update = async () => {
    const data = await get(url);
    for (const { chart, keys } of charts) chart.show([data.times, ...keys.map((key) => data[key])]);
    // A bucket is named by its beginning, and a cell of a map ends at its time.
    const ends = data.times.map((time) => time + data.bucketSeconds);
    for (const map of heatMaps) map.showRows(ends, data.partitions, data.bucketSeconds);
  };
  update().catch(() => {});
  every(Math.min(60, Math.max(1, Number(figures[0].dataset.refresh ?? 5))), update);
}
