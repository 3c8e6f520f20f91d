// The flame graph: d3-flame-graph with colours by kind of code, hatching, a tooltip and the keyboard.
import flamegraph from "d3-flame-graph";
import {select} from "d3-selection";
import {THREAD, PROCESS, amount, change, interval, isCode, percent, perSecond, plusMinus, points} from "./model.js";
import {el, fill} from "./dom.js";

// Colours have a contrast of at least 7 with the text on them, which is dark in both schemes.
const colours = {
	root: "#d5d8dd", process: "#d5d8dd", thread: "#c3cad6", managed: "#8fd694", stub: "#b9d48b", vm: "#f6c177", native: "#f2a68d",
	kernel: "#c9aef0", class: "#8ec5f2", marker: "#d9d9d9",
};
const tierColours = ["#d9e26a", "#b4e3a1", "#7bcf86", "#8fd694"]; // interpreted, C1, C2, compiled
const found = "#ff8ad8";

// What the legend shows: of a profile, and of a comparison.
export const differences = [
	["more", "more than before", deltaColour({sure: true, more: true, delta: 0.1})], ["less", "less than before", deltaColour({sure: true, delta: -0.1})],
	["same", "undecided, or within chance", deltaColour({sure: false})],
];
export const legend = [
	["managed", "compiled (C2, other)", tierColours[2]], ["c1", "compiled (C1)", tierColours[1]], ["interpreted", "interpreted", tierColours[0]],
	["stub", "VM stub", colours.stub], ["vm", "VM", colours.vm], ["native", "native", colours.native], ["kernel", "kernel", colours.kernel],
	["class", "class", colours.class],
];

export function colourOf(node) {
	if (node.kind === "managed" && node.tiers) {
		let best = 0;
		for (let i = 1; i < 4; i++) if (node.tiers[i] > node.tiers[best]) best = i;
		return tierColours[best];
	}
	return colours[node.kind] ?? colours.marker;
}

// deltaColour is red for more than before and blue for less, grey undecided or within chance.
export function deltaColour(c) {
	if (!c.sure) return "#dadada";
	const strength = Math.min(1, Math.sqrt(Math.abs(c.delta) / 0.25));
	const mix = (from, to) => Math.round(from + (to - from) * (0.25 + 0.75 * strength));
	return c.more ? `rgb(${mix(245, 244)},${mix(225, 120)},${mix(220, 105)})` : `rgb(${mix(220, 110)},${mix(230, 165)},${mix(245, 240)})`;
}

// shortName is what fits into so many pixels: without the package of a class if need be.
function shortName(node, width) {
	const {name} = node;
	if (node.kind !== "managed" && node.kind !== "class" || name.length * 6.4 + 8 < width) return name;
	const end = name.indexOf("(") < 0 ? name.length : name.indexOf("(");
	const method = name.lastIndexOf(".", end - 1);
	const cls = node.kind === "class" ? method : name.lastIndexOf(".", method - 1);
	return cls > 0 && !name.startsWith("[") ? name.slice(cls + 1) : name;
}

const svgNS = "http://www.w3.org/2000/svg";

// hatched returns the fill of an approximate frame, which is a pattern of its own for each colour.
function hatched(svg, colour) {
	const id = "hatch" + colour.replace(/[^0-9a-z]/gi, "");
	let defs = svg.querySelector("defs");
	if (!defs) defs = svg.insertBefore(document.createElementNS(svgNS, "defs"), svg.firstChild);
	if (!defs.querySelector("#" + id)) {
		const pattern = document.createElementNS(svgNS, "pattern");
		for (const [key, value] of Object.entries({id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"})) pattern.setAttribute(key, value);
		const ground = document.createElementNS(svgNS, "rect"), line = document.createElementNS(svgNS, "rect");
		for (const [key, value] of Object.entries({width: 6, height: 6, fill: colour})) ground.setAttribute(key, value);
		for (const [key, value] of Object.entries({width: 1.5, height: 6, fill: "#000", "fill-opacity": 0.35})) line.setAttribute(key, value);
		pattern.append(ground, line);
		defs.append(pattern);
	}
	return `url(#${id})`;
}

// A frame is hatched if so many percent of its value are approximate.
const approximate = 50;

const rowHeight = 20;

export class Flame {
	#host;
	#chart;
	#tip = el("div", {class: "tip", role: "tooltip", hidden: true});
	#doc;
	#rates;
	#root;
	#onSelect;
	#found = null;
	#zoomed = null; // path of names
	#inverted = false;
	#width = 0; // that it is drawn with

	// onSelect gets the node that was clicked.
	constructor(host, onSelect) {
		this.#host = host;
		this.#onSelect = onSelect;
		document.body.append(this.#tip);
		host.addEventListener("keydown", (event) => this.#key(event));
		document.addEventListener("keydown", (event) => {
			if (event.key === "Escape") this.#hideTip();
		});
		let width = 0;
		new ResizeObserver(() => {
			if (this.#root && Math.abs(host.clientWidth - width) > 4) this.draw();
			width = host.clientWidth;
		}).observe(host);
	}

	// show draws a tree.
	show(doc, root, rates, {inverted = false} = {}) {
		const same = this.#doc === doc;
		this.#doc = doc;
		this.#rates = rates;
		this.#root = root;
		this.#inverted = inverted;
		if (!same) this.#zoomed = null;
		this.draw();
	}

	draw() {
		const host = this.#host;
		const zoomed = this.#zoomed;
		const width = this.#width = host.clientWidth; // read once: each time, the browser lays out what was drawn
		this.#hideTip();
		host.replaceChildren();
		if (!(this.#root.value > 0 || this.#root.base > 0)) return;
		// The library writes into what it draws.
		const data = this.#copy(this.#root);
		const chart = flamegraph()
			.width(width)
			.cellHeight(rowHeight)
			.transitionDuration(0)
			.minFrameSize(1)
			.inverted(this.#inverted)
			.getName((d) => shortName(d.data.node, (d.x1 - d.x0) * width))
			.setColorMapper((d) => this.#colour(d))
			.sort((a, b) => b.data.value - a.data.value || (a.data.node.name < b.data.node.name ? -1 : 1))
			.onClick((d) => {
				this.#zoomed = this.#pathOf(d);
				this.#decorate();
				this.#onSelect(d.data.node);
			});
		const tooltip = () => {};
		tooltip.show = (event, d) => this.#showTip(d.data.node, event.clientX, event.clientY);
		tooltip.hide = () => this.#hideTip();
		chart.tooltip(tooltip);
		this.#chart = chart;
		select(host).datum(data).call(chart);
		if (zoomed) {
			const target = this.#find(zoomed);
			if (target) {
				const onClick = chart.onClick();
				chart.onClick(() => {});
				chart.zoomTo(target);
				chart.onClick(onClick);
			}
		}
		host.querySelector("svg").querySelector("text.title")?.remove();
		this.#decorate();
	}

	#copy(root) {
		const total = Math.max(root.value, 1e-9), baseTotal = Math.max(root.base, 1e-9);
		const width = this.#doc.base ? (n) => (n.value / total + n.base / baseTotal) / 2 : (n) => n.value;
		const copied = {node: root, value: width(root), children: []};
		const pending = [[root, copied]];
		while (pending.length > 0) {
			const [from, to] = pending.pop();
			for (const child of from.children) {
				const copy = {node: child, value: width(child), children: []};
				to.children.push(copy);
				pending.push([child, copy]);
			}
		}
		return copied;
	}

	#pathOf(d) {
		const path = [];
		for (; d?.parent; d = d.parent) path.unshift(d.data.node.name);
		return path;
	}

	#find(path) {
		let d = select(this.#host).datum();
		for (const name of path) {
			d = d?.children?.find((c) => c.data.node.name === name);
		}
		return d;
	}

	#colour(d) {
		const node = d.data.node;
		if (this.#found && isCode(node) && this.#found(node.name)) return found;
		let colour = colourOf(node);
		if (this.#doc.base && isCode(node)) colour = deltaColour(this.#changeOf(node));
		return node.approx >= approximate && isCode(node) ? hatched(this.#host.querySelector("svg"), colour) : colour;
	}

	#changeOf(node) {
		return change(node, this.#root, this.#doc);
	}

	// search highlights frames, and returns the share of what they and all below them have.
	search(test) {
		const before = this.#found;
		this.#found = test;
		if (!this.#chart || !this.#host.firstChild || !test && !before) return 0; // what is drawn stays as it is
		this.#chart.update();
		this.#decorate();
		let sum = 0;
		const pending = test ? [this.#root] : [];
		while (pending.length > 0) {
			const node = pending.pop();
			if (isCode(node) && test(node.name)) sum += node.value;
			else pending.push(...node.children);
		}
		return this.#root.value > 0 ? sum / this.#root.value : 0;
	}

	reset() {
		this.#zoomed = null;
		this.draw();
	}

	get zoomed() {
		return this.#zoomed !== null && this.#zoomed.length > 0;
	}

	// decorate makes frames reachable by keyboard and by name, after each update of the library.
	#decorate() {
		const svg = this.#host.querySelector("svg");
		if (!svg) return;
		// The library animates what is new, and cannot be told not to.
		const root = select(this.#host).datum();
		const scale = this.#width / (root.x1 - root.x0);
		select(svg).selectAll("g.frame > rect").interrupt().attr("width", (d) => (d.x1 - d.x0) * scale);
		select(svg).selectAll("g.frame > foreignObject > div").interrupt().text(this.#chart.getName());
		svg.style[this.#inverted ? "marginBottom" : "marginTop"] = `${-2 * rowHeight}px`; // two rows that the library leaves for a title
		svg.setAttribute("role", "group");
		svg.setAttribute("aria-label", `Flame graph: ${this.#doc.title}. Arrow keys move between frames, Enter zooms, Home shows all.`);
		const first = !this.#host.querySelector('g.frame[tabindex="0"]');
		this.#host.querySelectorAll("g.frame").forEach((g, i) => {
			const node = select(g).datum().data.node;
			g.setAttribute("role", "button");
			if (first || !g.hasAttribute("tabindex")) g.setAttribute("tabindex", first && i === 0 ? "0" : "-1");
			g.setAttribute("aria-label", this.#describe(node));
			if (!g.dataset.ready) {
				g.dataset.ready = "yes";
				g.addEventListener("focus", () => {
					const at = g.getBoundingClientRect();
					this.#showTip(node, at.left, at.bottom);
				});
				g.addEventListener("blur", () => this.#hideTip());
			}
		});
	}

	#describe(node) {
		const share = this.#root.value > 0 ? node.value / this.#root.value : 0;
		return `${node.name}, ${percent(share)}, ${amount(node.value, this.#doc.unit)}`;
	}

	#key(event) {
		const g = event.target.closest?.("g.frame");
		if (!g) return;
		const d = select(g).datum();
		const visible = new Map();
		this.#host.querySelectorAll("g.frame").forEach((frame) => visible.set(select(frame).datum(), frame));
		const shown = (list) => (list ?? []).filter((c) => visible.has(c)).sort((a, b) => a.x0 - b.x0);
		const siblings = shown(d.parent?.children);
		const at = siblings.indexOf(d);
		const up = this.#inverted ? "ArrowDown" : "ArrowUp", down = this.#inverted ? "ArrowUp" : "ArrowDown";
		let to = null;
		switch (event.key) {
			case up: to = shown(d.children).sort((a, b) => b.value - a.value)[0]; break;
			case down: to = d.parent; break;
			case "ArrowLeft": to = siblings[at - 1]; break;
			case "ArrowRight": to = siblings[at + 1]; break;
			case "Enter": case " ": this.#chart.zoomTo(d); to = d; break;
			case "Home": this.reset(); event.preventDefault(); this.#host.querySelector("g.frame")?.focus(); return;
			default: return;
		}
		event.preventDefault();
		const target = to && (visible.get(to) ?? null);
		if (!target || !target.isConnected) return;
		this.#host.querySelectorAll('g.frame[tabindex="0"]').forEach((frame) => frame.setAttribute("tabindex", "-1"));
		target.setAttribute("tabindex", "0");
		target.focus();
	}

	#showTip(node, x, y) {
		fill(this.#tip, ...this.#tipLines(node));
		this.#tip.hidden = false;
		const box = this.#tip.getBoundingClientRect();
		const left = Math.max(8, Math.min(x + 12, document.documentElement.clientWidth - box.width - 8));
		const top = y + 16 + box.height > window.innerHeight ? Math.max(8, y - box.height - 12) : y + 16;
		this.#tip.style.left = `${left}px`;
		this.#tip.style.top = `${top}px`;
	}

	#hideTip() {
		this.#tip.hidden = true;
	}

	#tipLines(node) {
		const doc = this.#doc;
		const total = this.#root.value;
		const share = total > 0 ? node.value / total : 0;
		const half = node === this.#root ? "" : plusMinus(interval(share, node.n, doc.effect), doc.effect);
		const rows = [];
		const row = (name, text) => text && rows.push(el("dt", {}, name), el("dd", {}, text));
		if (doc.base) {
			const c = this.#changeOf(node);
			row("share", `${percent(c.before)} \u2192 ${percent(c.now)}`);
			row("change", `${points(c.delta)} \u00b1 ${c.noise === Infinity ? "?" : (100 * c.noise).toFixed(2)} points${c.sure ? "" : `, ${c.verdict}`}`);
			row("value", `${amount(node.base, doc.unit)} \u2192 ${amount(node.value, doc.unit)}`);
		} else {
			row("share", percent(share) + (half && ` \u00b1 ${half}`) + (node.value > 0 && isCode(node) ? `, itself ${percent(total > 0 ? node.self / total : 0)}` : ""));
			row("value", [amount(node.value, doc.unit), perSecond(node.value, doc)].filter(Boolean).join(", "));
			if (node.n > 0) row("from", `${Math.round(node.n).toLocaleString("en")} ${doc.kind === "cpu" ? "samples" : "observed events"}`);
		}
		if (this.#rates && isCode(node)) {
			const of = this.#rates.of(node.name);
			const here = node.parent && isCode(node.parent) ? this.#rates.between(node.parent.name, node.name) : undefined;
			if (of !== undefined) row("calls", `${amount(of, "count")}/s` + (here !== undefined ? `, from this caller ${amount(here, "count")}/s` : ""));
		}
		if (node.tiers) row("tier", doc.tierNames.map((name, i) => [name, node.tiers[i]]).filter(([, p]) => p > 0).map(([name, p]) => `${name} ${p} %`).join(", "));
		if (isCode(node) && node.kind !== "class" && node.kind !== "marker") row("kind", {managed: "", vm: "VM", stub: "VM stub"}[node.kind] ?? node.kind);
		if (node.file && isCode(node)) row(node.line > 0 ? "line" : "file", node.file.split("/").pop() + (node.line > 0 ? `:${node.line}` : ""));
		if (node.kind === PROCESS && node.file) row("service", node.file);
		if (node.kind === THREAD) row("", "threads of this name");
		if (node.approx > 0 && isCode(node)) row("approximate", `${node.approx} %: the stack or the innermost method is not certain`);
		return [el("strong", {}, node.name), el("dl", {}, ...rows)];
	}
}
