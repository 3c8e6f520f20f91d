// The heat map of a short time: a column for each second, a row for each 20 ms of it. What happens once a second, or stands still for a moment,
// is seen here and nowhere else.
import {el, fill} from "./dom.js";
import {clock} from "./timeline.js";

const rows = 50; // of 20 ms
const left = 34, cell = 3; // pixels

// heatMap shows an answer of /api/v1/course.
export function heatMap(host, answer) {
	const {start, step, counts} = answer;
	if (counts.length === 0) {
		fill(host, el("p", {class: "dim"}, `${answer.note}.`));
		return;
	}
	const seconds = Math.ceil(counts.length / rows), most = Math.max(...counts, 1);
	const height = rows * cell, width = Math.max(host.clientWidth, 200), column = (width - left) / seconds;
	const ratio = devicePixelRatio;
	const canvas = el("canvas", {
		width: Math.round(width * ratio), height: Math.round(height * ratio), tabindex: "0", role: "img",
		"aria-label": `Samples by second and 20 ms: ${seconds} seconds from ${clock(start)}, at most ${most} samples. Arrow keys read single cells.`,
	});
	canvas.style.width = `${width}px`;
	canvas.style.height = `${height}px`;
	const status = el("p", {class: "dim", role: "status"}, "Each column is a second, from top to bottom.");
	let at = null;
	const draw = () => {
		const style = getComputedStyle(document.documentElement);
		const colour = (name) => style.getPropertyValue(name).trim();
		const ctx = canvas.getContext("2d");
		ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
		ctx.clearRect(0, 0, width, height);
		ctx.font = "11px system-ui, sans-serif";
		ctx.fillStyle = colour("--dim");
		ctx.textBaseline = "top";
		ctx.fillText("0 ms", 0, 0);
		ctx.textBaseline = "bottom";
		ctx.fillText("1 s", 0, height);
		counts.forEach((n, i) => {
			if (n < 0) return;
			const x = left + Math.floor(i / rows) * column, y = (i % rows) * cell;
			ctx.globalAlpha = 1;
			ctx.fillStyle = colour("--panel");
			ctx.fillRect(x, y, column - 1, cell);
			if (n === 0) return;
			ctx.globalAlpha = 0.15 + 0.85 * Math.sqrt(n / most);
			ctx.fillStyle = colour("--heat");
			ctx.fillRect(x, y, column - 1, cell);
		});
		ctx.globalAlpha = 1;
		if (at === null) return;
		ctx.strokeStyle = colour("--text");
		ctx.lineWidth = 2;
		ctx.strokeRect(left + Math.floor(at / rows) * column, (at % rows) * cell, column - 1, cell);
	};
	const read = (i) => {
		if (i < 0 || i >= counts.length) return;
		at = i;
		const ms = start + i * step, n = counts[i];
		fill(status, `${clock(ms)}.${String(ms % 1000).padStart(3, "0")}: ${n < 0 ? "not recorded" : `${n} ${n === 1 ? "sample" : "samples"}`}`);
		draw();
	};
	canvas.addEventListener("keydown", (event) => {
		const moves = {ArrowLeft: -rows, ArrowRight: rows, ArrowUp: -1, ArrowDown: 1};
		if (!(event.key in moves)) return;
		event.preventDefault();
		read((at ?? 0) + moves[event.key]);
	});
	canvas.addEventListener("pointermove", (event) => {
		const box = canvas.getBoundingClientRect();
		const second = Math.floor((event.clientX - box.left - left) / column), row = Math.floor((event.clientY - box.top) / cell);
		if (second >= 0 && row >= 0 && row < rows) read(second * rows + row);
	});
	draw();
	fill(host, el("h2", {}, "Samples by 20 ms"), canvas, status);
}
