// Builds dist/ from src/: node build.js. The result is the same on every machine, and committed: see "make web".
import {build} from "esbuild";
import {existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync} from "node:fs";

rmSync("dist", {recursive: true, force: true});
mkdirSync("dist");
const result = await build({
	entryPoints: {app: "src/app.js"},
	bundle: true,
	minify: true,
	keepNames: true, // d3-flame-graph asks for the name of a class
	format: "iife",
	target: "es2022",
	charset: "ascii", // so that the page may be stored in any encoding
	legalComments: "none", // notices.txt has the licences
	metafile: true,
	outdir: "dist",
});

// The licences of what is in the bundle.
const packages = new Set();
for (const input of Object.keys(result.metafile.inputs)) {
	const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
	if (found) packages.add(found[1]);
}
let notices = "The pages contain the following libraries.\n";
for (const name of [...packages].sort()) {
	const dir = `node_modules/${name}`;
	const about = JSON.parse(readFileSync(`${dir}/package.json`, "utf8"));
	const file = readdirSync(dir).find((f) => /^licen[cs]e/i.test(f));
	if (!file || !existsSync(`${dir}/${file}`)) throw new Error(`${name} has no licence`);
	notices += `\n${"=".repeat(78)}\n${name} ${about.version} (${about.license})\n\n${readFileSync(`${dir}/${file}`, "utf8").trim()}\n`;
}
writeFileSync("dist/notices.txt", notices.replaceAll("\r\n", "\n"));
