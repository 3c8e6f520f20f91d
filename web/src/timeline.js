// The timeline: values by window, stacked by what ran. Dragging selects a time, or sets the baseline with Shift; the keyboard does both.
import uPlot from "uplot";
import {el, fill} from "./dom.js";
import {perSecond} from "./model.js";

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

const markColours = {start: "--text", gc: "--more", lost: "--dim", gap: "--dim"};

export const clock = (ms) => new Date(ms).toLocaleTimeString("sv");

// moved is where a bar of one document is in the next one: -1 if it is there no more.
function moved(bar, from, to) {
	const start = from?.timeline?.start[bar];
	return start === undefined || !to.timeline ? -1 : to.timeline.start.indexOf(start);
}

export class Timeline {
	#host;
	#onSelect;
	#plot;
	#chart;
	#doc;
	#marked = {};
	#shift = false;
	#dragging = false;
	#pending = null; // what show was called with during a drag
	#cursor = -1; // bar that the keyboard is at
	#anchor = -1; // bar that its range began at

	// onSelect gets times in ms since 1970, and whether they are the baseline.
	constructor(host, onSelect) {
		this.#host = host;
		this.#onSelect = onSelect;
		let width = 0;
		new ResizeObserver(() => {
			if (this.#doc && Math.abs(host.clientWidth - width) > 4) this.show(this.#doc, this.#marked);
			width = host.clientWidth;
		}).observe(host);
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#doc && this.show(this.#doc, this.#marked));
	}

	// show draws a document's timeline. marked has the selected time as from and to, and the baseline as basefrom and baseto, in ms;
	// a missing end is that of the timeline. If the timeline's selectable is false, no time can be selected.
	show(doc, marked = {}) {
		if (this.#dragging) { // a new chart would lose the drag
			this.#pending = [doc, marked];
			return;
		}
		const focused = this.#chart?.contains(document.activeElement);
		this.#anchor = moved(this.#anchor, this.#doc, doc);
		this.#cursor = moved(this.#cursor, this.#doc, doc);
		this.#doc = doc;
		this.#marked = marked;
		this.#plot?.destroy();
		this.#plot = this.#chart = null;
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
		const colour = (name) => style.getPropertyValue(name).trim();
		const axis = {stroke: colour("--text"), grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line"), width: 1}, font: "12px system-ui, sans-serif"};
		const bars = uPlot.paths.bars({size: [0.96, Infinity]});
		const write = (v) => perSecond(isTime ? 1e9 * v : v, {unit: doc.unit, kind: doc.kind, seconds: 1});
		const selectable = t.selectable ?? true;
		const first = t.start[0] / 1000, last = t.start.at(-1) / 1000 + t.seconds.at(-1);
		const options = {
			width: Math.max(this.#host.clientWidth, 200), height: 130, padding: [8, 8, 0, 0],
			legend: {show: false},
			cursor: {drag: {x: selectable, y: false, setScale: false}, points: {show: false}, y: false},
			select: {show: selectable},
			scales: {x: {time: true, range: () => [first, last]}, y: {range: (_, __, max) => [0, Math.max(max, 1e-9) * 1.05]}},
			axes: [{...axis, space: 72, values: times}, {...axis, size: 92, values: (_, ticks) => ticks.map(write)}],
			series: [{}, ...used.map(({i, name}) => ({label: name, fill: colours[i], stroke: colours[i], width: 0, paths: bars, points: {show: false}})).reverse()],
			hooks: selectable ? {
				ready: [(u) => u.over.addEventListener("mousedown", (event) => this.#drag(event))],
				setSelect: [(u) => {
					if (u.select.width < 3) return;
					const at = (x) => Math.round(1000 * u.posToVal(x, "x"));
					this.#onSelect(at(u.select.left), at(u.select.left + u.select.width), this.#shift);
					u.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
				}],
				draw: [(u) => this.#drawMarks(u, t.marks ?? [], first, last, colour), (u) => this.#drawMarked(u, first, last, colour)],
			} : {},
		};
		const about = `${doc.title} over time, ${t.start.length} windows: ` + used.map((c) => c.name).join(", ");
		const chart = selectable ? el("div", {
			role: "slider", tabindex: "0", "aria-valuemin": "0", "aria-valuemax": String(t.start.length - 1),
			"aria-label": `${about}. Arrow keys move, Enter begins and ends a selection, Shift and Enter a baseline.`,
			onkeydown: (event) => this.#key(event, write, sums),
		}) : el("div", {role: "img", "aria-label": about});
		this.#chart = chart;
		fill(this.#host, chart, el("p", {class: "legend"}, ...used.map(({name, i}) => {
			const swatch = el("span", {class: "swatch"});
			swatch.style.background = colours[i];
			return el("span", {}, swatch, name);
		})));
		if (selectable) this.#place(this.#cursor < 0 ? t.start.length - 1 : Math.min(this.#cursor, t.start.length - 1), write, sums);
		this.#plot = new uPlot(options, [middle, ...stacked.reverse()], chart);
		if (focused) chart.focus();
	}

	// drag keeps the chart until the button is released.
	#drag(event) {
		this.#shift = event.shiftKey;
		this.#dragging = true;
		document.addEventListener("mouseup", () => setTimeout(() => { // once the chart has handled it
			this.#dragging = false;
			const pending = this.#pending;
			this.#pending = null;
			if (pending) this.show(...pending);
		}), {once: true});
	}

	// place gives assistive technology the position of the keyboard.
	#place(at, write, sums) {
		this.#cursor = at;
		const chart = this.#chart;
		chart.setAttribute("aria-valuenow", String(at));
		chart.setAttribute("aria-valuetext", `${clock(this.#doc.timeline.start[at])}, ${write(sums[at])}` + (this.#anchor >= 0 ? `, range from ${clock(this.#doc.timeline.start[this.#anchor])}` : ""));
	}

	#key(event, write, sums) {
		const t = this.#doc.timeline, most = t.start.length - 1;
		const moves = {ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity};
		if (event.key in moves) {
			this.#place(Math.min(Math.max(this.#cursor + moves[event.key], 0), most), write, sums);
		} else if (event.key === "Escape") {
			this.#anchor = -1;
		} else if (event.key === "Enter" || event.key === " ") {
			if (this.#anchor < 0) {
				this.#anchor = this.#cursor;
			} else {
				const from = Math.min(this.#anchor, this.#cursor), to = Math.max(this.#anchor, this.#cursor);
				this.#anchor = -1;
				this.#onSelect(t.start[from], to < most ? t.start[to + 1] : Math.ceil(t.start[to] + 1000 * t.seconds[to]), event.shiftKey);
			}
		} else {
			return;
		}
		event.preventDefault();
		if (this.#plot) this.#plot.redraw(false, false);
	}

	// drawMarks draws what happened: losses and gaps as hatched bands, starts as dashed lines, garbage collections as bars at the bottom.
	#drawMarks(u, marks, first, last, colour) {
		const {ctx, bbox} = u, scale = devicePixelRatio;
		ctx.save();
		ctx.beginPath();
		ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
		ctx.clip();
		for (const mark of marks) {
			const [left, right] = [mark.from, mark.to].map((ms) => u.valToPos(Math.min(Math.max(ms / 1000, first), last), "x", true));
			ctx.strokeStyle = ctx.fillStyle = colour(markColours[mark.kind] ?? "--dim");
			ctx.setLineDash([]);
			ctx.beginPath();
			if (mark.kind === "start") {
				ctx.lineWidth = 2 * scale;
				ctx.setLineDash([4 * scale, 3 * scale]);
				ctx.moveTo(left, bbox.top);
				ctx.lineTo(left, bbox.top + bbox.height);
				ctx.stroke();
			} else if (mark.kind === "gc") {
				ctx.fillRect(left, bbox.top + bbox.height - 5 * scale, Math.max(right - left - scale, 2 * scale), 5 * scale);
			} else {
				ctx.lineWidth = scale;
				const wide = Math.max(right, left + 3 * scale);
				for (let x = left - bbox.height; x < wide; x += 6 * scale) {
					const from = Math.max(left, x), to = Math.min(wide, x + bbox.height);
					if (to <= from) continue;
					ctx.moveTo(from, bbox.top + bbox.height - (from - x));
					ctx.lineTo(to, bbox.top + bbox.height - (to - x));
				}
				ctx.stroke();
			}
		}
		ctx.restore();
	}

	// drawMarked draws the selection, the baseline, and where the keyboard is.
	#drawMarked(u, first, last, colour) {
		const {ctx, bbox} = u;
		const x = (ms) => Math.min(Math.max(u.valToPos(Math.min(Math.max(ms / 1000, first), last), "x", true), bbox.left), bbox.left + bbox.width);
		const band = (from, to, name, text) => {
			const left = x(from || 1000 * first), right = x(to || 1000 * last);
			ctx.save();
			ctx.fillStyle = ctx.strokeStyle = colour(name);
			ctx.globalAlpha = 0.18;
			ctx.fillRect(left, bbox.top, right - left, bbox.height);
			ctx.globalAlpha = 1;
			ctx.lineWidth = 2;
			ctx.strokeRect(left, bbox.top, right - left, bbox.height);
			ctx.font = `600 ${12 * devicePixelRatio}px system-ui, sans-serif`;
			const width = ctx.measureText(text).width + 8;
			if (right - left > width) {
				ctx.fillRect(left, bbox.top, width, 16 * devicePixelRatio);
				ctx.fillStyle = colour("--ground");
				ctx.textAlign = "left";
				ctx.textBaseline = "middle";
				ctx.fillText(text, left + 4, bbox.top + 8 * devicePixelRatio);
			}
			ctx.restore();
		};
		const {from, to, basefrom, baseto} = this.#marked;
		if (basefrom || baseto) band(basefrom, baseto, "--baseline", "baseline");
		if (from || to || basefrom || baseto) band(from || baseto, to, "--accent", "selected");
		if (this.#chart !== document.activeElement) return;
		const t = this.#doc.timeline;
		const bar = (at) => [x(t.start[at]), x(t.start[at] + 1000 * t.seconds[at])];
		const [left, right] = bar(this.#cursor), [begin, end] = this.#anchor < 0 ? [left, right] : bar(this.#anchor);
		ctx.save();
		ctx.strokeStyle = colour("--text");
		ctx.lineWidth = 2;
		ctx.strokeRect(Math.min(left, begin), bbox.top, Math.max(right, end) - Math.min(left, begin), bbox.height);
		ctx.restore();
	}
}
