// The timeline: values by window, stacked by what ran. Brushing selects a time.
import uPlot from "uplot";
import {el, fill} from "./dom.js";
import {amount} from "./model.js";

const colours = ["#4caf6a", "#d2694a", "#9b72d9", "#5b8def", "#c94f7c", "#d9922e", "#8a8f98"]; // Java, native, kernel, JIT, GC, VM, unknown

// times writes the times at the axis, as precisely as they are apart.
function times(_, splits, __, ___, apart) {
	const two = (n) => String(n).padStart(2, "0");
	return splits.map((s) => {
		const at = new Date(1000 * s);
		const minute = `${two(at.getHours())}:${two(at.getMinutes())}`;
		if (apart >= 86400) return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
		if (apart >= 60) return minute;
		return `${minute}:${two(at.getSeconds())}` + (apart < 1 ? "." + Math.floor(at.getMilliseconds() / 100) : "");
	});
}

export class Timeline {
	#host;
	#onSelect;
	#plot;
	#doc;

	// onSelect gets times in ms since 1970, or nothing if the selection is to go; null if times cannot be selected.
	constructor(host, onSelect) {
		this.#host = host;
		this.#onSelect = onSelect;
		let width = 0;
		new ResizeObserver(() => {
			if (this.#doc && Math.abs(host.clientWidth - width) > 4) this.show(this.#doc);
			width = host.clientWidth;
		}).observe(host);
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#doc && this.show(this.#doc));
	}

	show(doc) {
		this.#doc = doc;
		this.#plot?.destroy();
		this.#plot = null;
		const t = doc.timeline;
		this.#host.hidden = !t;
		if (!t) {
			fill(this.#host);
			return;
		}
		const isTime = doc.unit === "nanoseconds";
		const used = t.classes.map((name, i) => ({name, i, sum: t.values[i].reduce((a, b) => a + b, 0)})).filter((c) => c.sum > 0);
		const rate = (i, w) => t.values[i][w] / (isTime ? 1e9 : 1) / Math.max(t.seconds[w], 1e-9);
		const middle = t.start.map((s, w) => (s + 500 * t.seconds[w]) / 1000);
		const sums = middle.map(() => 0);
		const stacked = used.map(({i}) => middle.map((_, w) => (sums[w] += rate(i, w))));
		const style = getComputedStyle(document.documentElement);
		const text = style.getPropertyValue("--text").trim(), line = style.getPropertyValue("--line").trim();
		const axis = {stroke: text, grid: {stroke: line, width: 1}, ticks: {stroke: line, width: 1}, font: "12px system-ui, sans-serif"};
		const bars = uPlot.paths.bars({size: [0.96, Infinity]});
		const unit = isTime ? (doc.kind === "cpu" ? "CPUs" : "s/s") : "";
		const selectable = this.#onSelect !== null;
		const first = t.start[0] / 1000, last = t.start.at(-1) / 1000 + t.seconds.at(-1);
		const options = {
			width: Math.max(this.#host.clientWidth, 200), height: 130, padding: [8, 8, 0, 0],
			legend: {show: false},
			cursor: {drag: {x: selectable, y: false, setScale: false}, points: {show: false}, y: false},
			select: {show: selectable},
			scales: {x: {time: true, range: () => [first, last]}, y: {range: (_, __, max) => [0, Math.max(max, 1e-9) * 1.05]}},
			axes: [{...axis, values: times}, {...axis, size: 78, values: (_, ticks) => ticks.map((v) => (isTime ? `${+v.toPrecision(3)} ${unit}` : amount(v, doc.unit) + "/s"))}],
			series: [{}, ...used.map(({i, name}) => ({label: name, fill: colours[i], stroke: colours[i], width: 0, paths: bars, points: {show: false}})).reverse()],
			hooks: selectable ? {
				setSelect: [(u) => {
					if (u.select.width < 3) return;
					this.#onSelect(Math.round(1000 * u.posToVal(u.select.left, "x")), Math.round(1000 * u.posToVal(u.select.left + u.select.width, "x")));
					u.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
				}],
			} : {},
		};
		const chart = el("div", {role: "img", "aria-label": `${doc.title} over time, ${t.start.length} windows: ` + used.map((c) => c.name).join(", ")});
		fill(this.#host, chart, el("p", {class: "legend"}, ...used.map(({name, i}) => {
			const swatch = el("span", {class: "swatch"});
			swatch.style.background = colours[i];
			return el("span", {}, swatch, name);
		})));
		this.#plot = new uPlot(options, [middle, ...stacked.reverse()], chart);
	}
}
