// Bundles the portal's scripts and styles into src/tidegate/portal/static, with a manifest of what they are made of.
// The same lock file gives the same bytes: tests/portal/test_assets.py checks it.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync, mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "..", "src", "tidegate", "portal", "static");
const entries = readdirSync(join(here, "src")).filter((name) => /^(?!_).*\.(js|css|svg)$/.test(name));

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
const result = await build({
  absWorkingDir: here,
  entryPoints: entries.map((name) => join("src", name)),
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none",
  loader: { ".svg": "copy" },
  metafile: true,
  logLevel: "warning",
});

// Whatever of node_modules is in a bundle, with its version and its licence.
const used = new Map();
for (const input of Object.keys(result.metafile.inputs)) {
  const match = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
  if (!match || used.has(match[1])) continue;
  const folder = join(here, "node_modules", match[1]);
  const described = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const licence = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
  used.set(match[1], {
    version: described.version,
    license: described.license,
    text: licence ? readFileSync(join(folder, licence), "utf8").trim() : "",
  });
}
const names = [...used.keys()].sort();
const files = readdirSync(target).sort();
const manifest = {
  libraries: Object.fromEntries(
    names.map((name) => [name, { version: used.get(name).version, license: used.get(name).license }]),
  ),
  files: Object.fromEntries(
    files.map((name) => [name, createHash("sha256").update(readFileSync(join(target, name))).digest("hex")]),
  ),
};
writeFileSync(join(target, "manifest.json"), `${JSON.stringify(manifest, null, 2)}\n`);
const licences = names.map((name) => `${name} ${used.get(name).version} (${used.get(name).license})\n\n${used.get(name).text}\n`);
writeFileSync(join(target, "LICENSES.txt"), licences.join(`\n${"-".repeat(78)}\n\n`));
