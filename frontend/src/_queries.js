// What the editor knows of queries as texts: templates for common ones, and how two differ.

const named = (fields, pattern, otherwise) => fields.find(({ label }) => pattern.test(label))?.label ?? otherwise;
const ofType = (fields, isWanted, otherwise) => fields.find(({ detail }) => isWanted(detail.replace(/^.*?, such as /, "")))?.label ?? otherwise;
const number = (fields) => ofType(fields, (example) => /^-?\d/.test(example), "value");
const key = (fields) => named(fields, /(^|_)(id|device|booth|key|name|sensor)/i, null) ?? ofType(fields, (example) => example.startsWith('"') && !/^"\d{4}-/.test(example), "deviceId");
const clock = (fields) => named(fields, /time|date/i, null);
const by = (fields) => (clock(fields) ? ` TIMESTAMP BY ${clock(fields)}` : "");

/** Queries to begin with, written with the job's own names and the fields of its events. */
export const TEMPLATES = [
  { title: "Pass everything through", query: ({ input, output }) => `SELECT *\nINTO ${output}\nFROM ${input}` },
  { title: "Filter", query: ({ input, output, fields }) => `SELECT *\nINTO ${output}\nFROM ${input}${by(fields)}\nWHERE ${number(fields)} > 100` },
  { title: "Count each key in a tumbling window", query: ({ input, output, fields }) => `SELECT System.Timestamp() AS window_end, ${key(fields)}, COUNT(*) AS events, AVG(${number(fields)}) AS average\nINTO ${output}\nFROM ${input}${by(fields)}\nGROUP BY ${key(fields)}, TumblingWindow(second, 10)` },
  { title: "Moving average in a hopping window", query: ({ input, output, fields }) => `SELECT System.Timestamp() AS window_end, ${key(fields)}, AVG(${number(fields)}) AS average\nINTO ${output}\nFROM ${input}${by(fields)}\nGROUP BY ${key(fields)}, HoppingWindow(second, 60, 10)` },
  { title: "Sessions of each key", query: ({ input, output, fields }) => `SELECT MIN(System.Timestamp()) AS begin_time, System.Timestamp() AS end_time, ${key(fields)}, COUNT(*) AS events\nINTO ${output}\nFROM ${input}${by(fields)}\nGROUP BY ${key(fields)}, SessionWindow(second, 30, 600)` },
  { title: "Change against the event before", query: ({ input, output, fields }) => `SELECT ${key(fields)}, ${number(fields)}, ${number(fields)} - LAG(${number(fields)}) OVER (PARTITION BY ${key(fields)} LIMIT DURATION(minute, 5)) AS change\nINTO ${output}\nFROM ${input}${by(fields)}` },
  { title: "Alert when nothing comes", query: ({ input, output, fields }) => `SELECT a.${key(fields)}, System.Timestamp() AS seen\nINTO ${output}\nFROM ${input} a${by(fields)}\nLEFT JOIN ${input} b${by(fields)}\n  ON a.${key(fields)} = b.${key(fields)} AND DATEDIFF(second, a, b) BETWEEN 1 AND 60\nWHERE b.${key(fields)} IS NULL` },
  { title: "Join two streams", query: ({ input, other, output, fields }) => `SELECT a.${key(fields)}, a.${number(fields)} AS first, b.${number(fields)} AS second\nINTO ${output}\nFROM ${input} a${by(fields)}\nJOIN ${other} b${by(fields)}\n  ON a.${key(fields)} = b.${key(fields)} AND DATEDIFF(second, a, b) BETWEEN 0 AND 10` },
  { title: "Highest event of each window", query: ({ input, output, fields }) => `SELECT System.Timestamp() AS window_end, TopOne() OVER (ORDER BY ${number(fields)} DESC) AS highest\nINTO ${output}\nFROM ${input}${by(fields)}\nGROUP BY TumblingWindow(minute, 1)` },
];

/** Return the lines of two texts with what became of each: " " in both, "-" in the first, "+" in the second. */
export function differences(before, after) {
  const [old, now] = [before.split("\n"), after.split("\n")];
  // The longest common subsequence; queries have a few hundred lines at most.
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let one = old.length - 1; one >= 0; one--) {
    for (let other = now.length - 1; other >= 0; other--) {
      common[one][other] = old[one] === now[other] ? common[one + 1][other + 1] + 1 : Math.max(common[one + 1][other], common[one][other + 1]);
    }
  }
  const found = [];
  let [one, other] = [0, 0];
  while (one < old.length || other < now.length) {
    if (one < old.length && other < now.length && old[one] === now[other]) {
      found.push({ sign: " ", text: old[one] });
      [one, other] = [one + 1, other + 1];
    } else if (other >= now.length || (one < old.length && common[one + 1][other] >= common[one][other + 1])) found.push({ sign: "-", text: old[one++] });
    else found.push({ sign: "+", text: now[other++] });
  }
  return found;
}
