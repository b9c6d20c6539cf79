// The plan as a graph: inputs at the top, outputs at the bottom, with rate, state and delay on what has them.
import dagre from "@dagrejs/dagre";
import { element, every, get, number, rate, size } from "./_common.js";

const SVG = "http://www.w3.org/2000/svg";
const place = document.getElementById("diagram");
const WIDTH = 250;
const LINE = 17;
const CHARACTERS = 33;
// Titles are bold.
const TITLE_CHARACTERS = 29;

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text != null) made.textContent = text;
  return made;
}

function wrapped(text, most, characters = CHARACTERS) {
  const lines = [""];
  for (const word of text.split(/\s+/)) {
    if ((lines.at(-1) + word).length > characters && lines.at(-1)) lines.push("");
    lines[lines.length - 1] += `${word} `;
  }
  const fitting = (line) => (line.length > characters + 2 ? `${line.slice(0, characters)}…` : line);
  const kept = lines.slice(0, most).map((line) => fitting(line.trim()));
  if (lines.length > most) kept[most - 1] += " …";
  return kept;
}

// What was counted in the turns before: rates are those of the last twenty seconds, as windows emit in bursts.
const TURNS = 10;
const past = [];
const rates = { eventsRead: {}, rowsWritten: {}, operators: {} };
function measure(data) {
  past.push(data);
  if (past.length > TURNS) past.shift();
  const [before] = past;
  for (const kind of ["eventsRead", "rowsWritten"]) {
    rates[kind] = {};
    for (const [name, count] of Object.entries(data[kind])) {
      const last = before[kind][name];
      if (data.at > before.at && last != null && count >= last) rates[kind][name.toLowerCase()] = (count - last) / (data.at - before.at);
    }
  }
  rates.operators = {};
  for (const now of data.operators) {
    const then = before.operators.find((one) => one.operator === now.operator);
    if (!then || data.at <= before.at || now.rowsReleased < then.rowsReleased) continue;
    const grown = (count, last) => Math.max(0, count - (last ?? 0)) / (data.at - before.at);
    rates.operators[now.operator] = {
      taken: now.rowsTaken.map((count, side) => grown(count, then.rowsTaken[side])),
      released: grown(now.rowsReleased, then.rowsReleased),
    };
  }
}
function flow(number) {
  const found = rates.operators[number];
  return found ? [`${found.taken.map(rate).join(" and ")} rows in, ${rate(found.released)} out per second`] : [];
}
function behind(data, number) {
  const delay = data.operators.find((one) => one.operator === number)?.delaySeconds;
  return delay == null ? [] : [`complete until ${delay.toFixed(1)} s ago`];
}
function held(data, number) {
  const bytes = data.operators.find((one) => one.operator === number)?.stateBytes;
  return bytes == null ? [] : [`holds ${size(bytes)}`];
}
const perSecond = (kind, name) => (name in rates[kind] ? `${rate(rates[kind][name])} ${kind === "eventsRead" ? "events" : "rows"} per second` : null);

function graphOf(data) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 28, ranksep: 42, marginx: 10, marginy: 10 });
  graph.setDefaultEdgeLabel(() => ({}));
  const steps = new Map();
  let count = 0;
  const add = (operator, emits = null) => {
    if (operator.repeated && steps.has(operator.step)) return steps.get(operator.step);
    const id = `n${count++}`;
    steps.set(operator.step, id);
    const details = emits ? [emits] : [];
    if (!operator.sources.length) {
      const name = operator.step.toLowerCase();
      const timelines = data.timelines.filter((one) => name.includes(one.input.toLowerCase()));
      const delay = Math.max(...timelines.map((one) => one.delaySeconds ?? 0), 0);
      const backlog = timelines.reduce((sum, one) => sum + one.backlog, 0);
      if (timelines.length) details.push(`delay ${delay.toFixed(1)} s, ${number(backlog)} waiting`);
      const read = Object.keys(rates.eventsRead).find((input) => name.includes(input));
      if (read) details.push(perSecond("eventsRead", read));
      if (data.metrics["Input Events"] != null) details.push(`${number(data.metrics["Input Events"])} events read`);
      if (operator.reads) details.push(`reads ${operator.reads.join(", ")}`);
    }
    if (operator.operator != null) details.push(...flow(operator.operator), ...behind(data, operator.operator), ...held(data, operator.operator));
    for (const kept of operator.keeps) details.push(`keeps ${kept.sentence}`);
    box(id, operator.step, details, !operator.sources.length ? "source" : operator.keeps.length ? "stateful" : operator.where);
    for (const source of operator.sources) graph.setEdge(add(source), id);
    return id;
  };
  const box = (id, title, details, kind) => {
    const lines = [...wrapped(title, 4, TITLE_CHARACTERS).map((text) => ({ text, isTitle: true })), ...details.flatMap((text) => wrapped(text, 2)).map((text) => ({ text }))];
    graph.setNode(id, { width: WIDTH, height: lines.length * LINE + 16, lines, kind });
  };
  for (const output of data.plan.outputs) {
    const id = `o${count++}`;
    const rows = data.rowsWritten[output.output] ?? (data.plan.outputs.length === 1 ? data.metrics["Output Events"] : null);
    const details = [perSecond("rowsWritten", output.output.toLowerCase()), rows == null ? null : `${number(rows)} rows written`];
    if (data.commitSeconds != null) details.push(`last written in ${number(Math.round(data.commitSeconds * 1000))} ms`);
    box(id, `output ${output.output}`, details.filter(Boolean), "sink");
    graph.setEdge(add(output, output.sources.length ? details[0] : null), id);
  }
  dagre.layout(graph);
  return graph;
}

function draw(data) {
  const graph = graphOf(data);
  const { width, height } = graph.graph();
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `The plan with ${graph.nodeCount()} steps; the list below says the same` });
  const marker = node("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" });
  marker.append(node("path", { d: "M0 0L8 4L0 8z", class: "arrow" }));
  svg.append(marker);
  for (const edge of graph.edges()) {
    const { points } = graph.edge(edge);
    svg.append(node("path", { d: points.map(({ x, y }, at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join(""), class: "edge", "marker-end": "url(#arrow)" }));
  }
  for (const id of graph.nodes()) {
    const { x, y, width: wide, height: high, lines, kind } = graph.node(id);
    svg.append(node("rect", { x: x - wide / 2, y: y - high / 2, width: wide, height: high, rx: 8, class: `operator ${kind}` }));
    lines.forEach(({ text, isTitle }, at) => svg.append(node("text", { x: x - wide / 2 + 10, y: y - high / 2 + 20 + at * LINE, class: isTitle ? "title" : "detail" }, text)));
  }
  place.replaceChildren(svg);
}

/** Return the same as a list, for those who do not see the graph. */
function listed(operator) {
  const said = [operator.step, ...(operator.reads ? [`reads ${operator.reads.join(", ")}`] : []), ...operator.keeps.map((kept) => `keeps ${kept.sentence}`)].join("; ");
  return element("li", {}, said, operator.sources.length ? element("ul", {}, ...operator.sources.map(listed)) : null);
}

if (place) {
  const list = element("ul");
  document.getElementById("steps").replaceChildren(element("details", {}, element("summary", {}, "As a list"), list));
  const update = async () => {
    const data = await get(place.dataset.url);
    if (data.plan) {
      measure(data);
      draw(data);
      list.replaceChildren(...data.plan.outputs.map((output) => element("li", {}, `Output ${output.output}`, element("ul", {}, listed(output)))));
    }
    else place.replaceChildren(element("p", { class: "problem" }, data.problem));
  };
  update().catch(() => {});
  every(2, update);
}
