// The lanes: what each thread did over time, one row for each. Colours stand for causes, and the height of a colour for its share of a moment.
import {laneRows, laneShares, percent} from "./model.js";
import {el, fill} from "./dom.js";
import {clock} from "./timeline.js";

// Colours of causes, in the order in which they are stacked, from the bottom. Those of idle threads are dim.
const colours = new Map(Object.entries({
	running: "#4caf6a", runnable: "#e09a1f", throttled: "#c4551d", monitor: "#d63d4f", lock: "#e0679a", wait: "#a06ad8", park: "#7d6fe0", sleep: "#6f8299",
	socket: "#3f83e8", poll: "#58a9d8", pipe: "#2f9fa8", terminal: "#4fb5a5", disk: "#8f6a42", "page fault": "#b58d5c", safepoint: "#d24fc3", vm: "#8f8f3f",
	"vm call": "#b7a83f", futex: "#b55a8a", process: "#5a8f7a", signal: "#7aa08f", "file lock": "#a8506e", "kernel lock": "#8a3450", ipc: "#4f7f9f",
	memory: "#a07a2f", worker: "#7f9a6a", stopped: "#4d5560", other: "#8a8f98", unknown: "#9aa3b5",
}));
const order = [...colours.keys()];

// colourOfCause is the colour of a cause, of a dim one where a thread is idle.
export function colourOfCause(cause) {
	if (cause === "idle") return getComputedStyle(document.documentElement).getPropertyValue("--line").trim();
	return colours.get(cause) ?? colours.get("other");
}

const rank = (cause) => (cause === "idle" ? order.length + 1 : order.indexOf(cause) < 0 ? order.length : order.indexOf(cause));

const rowHeight = 16, gap = 5, axisHeight = 18, most = 300;

const seconds = (ms, apart) => `${(ms / 1000).toFixed(apart >= 1000 ? 0 : apart >= 100 ? 1 : 2)} s`;

export class Lanes {
	#host;
	#onThread;
	#onZoom;
	#onIdle;
	#tip = el("div", {class: "tip", role: "tooltip", hidden: true});
	#shown = null;
	#at = null; // {row, x} that the keyboard is at

	// onThread gets a group of threads, onZoom two times in ms since 1970, or none, onIdle whether idle threads are to be shown.
	constructor(host, {onThread, onZoom, onIdle}) {
		this.#host = host;
		this.#onThread = onThread;
		this.#onZoom = onZoom;
		this.#onIdle = onIdle;
		document.body.append(this.#tip);
		let width = 0;
		new ResizeObserver(() => {
			if (this.#shown && Math.abs(host.clientWidth - width) > 4) this.#draw();
			width = host.clientWidth;
		}).observe(host);
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#shown && this.#draw());
		document.addEventListener("keydown", (event) => {
			if (event.key === "Escape") this.#tip.hidden = true;
		});
	}

	// show draws the lanes of a document, if it has any: of the selected time, or of what the user has zoomed into.
	show(doc, {only, idle, zoom, selected}) {
		const key = JSON.stringify([only, idle, zoom, selected]);
		if (this.#shown?.doc === doc && this.#shown.key === key) return;
		this.#host.hidden = !doc.lanes?.length;
		this.#tip.hidden = true;
		this.#at = null;
		if (this.#host.hidden) {
			this.#shown = null;
			fill(this.#host);
			return;
		}
		const of = laneRows(doc.lanes, {only, idle});
		let [from, to] = zoom ?? selected ?? [of.start, of.end];
		from = Math.max(from, of.start);
		to = Math.min(to, of.end);
		if (!(from < to)) [from, to] = [of.start, of.end];
		this.#shown = {doc, key, only, idle, zoom, ...of, from, to, rows: of.rows.slice(0, most), more: Math.max(of.rows.length - most, 0)};
		this.#draw();
	}

	#draw() {
		const s = this.#shown, host = this.#host;
		const several = new Set(s.rows.map((r) => r.process)).size > 1;
		let y = axisHeight;
		const places = s.rows.map((row, i) => {
			const before = s.rows[i - 1];
			if (before && (before.process !== row.process || before.group !== row.group)) y += gap;
			const place = y;
			y += rowHeight;
			return place;
		});
		const names = el("div", {class: "names"}, ...s.rows.map((row, i) => {
			const button = el("button", {class: "name", "aria-pressed": String(row.group === s.only), title: `${row.thread} (tid ${row.tid}), ${row.process}. ${row.group === s.only ? "Show all threads" : `Show only ${row.group}`}`,
				"data-key": row.group, onclick: () => this.#onThread(row.group === s.only ? "" : row.group)}, several ? `${row.thread} · ${row.process}` : row.thread);
			button.style.top = `${places[i]}px`;
			return button;
		}));
		const canvas = el("canvas", {"data-key": "canvas", tabindex: "0", role: "img", "aria-label": `What ${s.rows.length} threads did over ${seconds(s.to - s.from, 100)}. Arrow keys read single moments, Enter shows only threads like the one there.`});
		const status = el("p", {class: "dim", role: "status"}, "Drag over the lanes to look closer. Click a thread to see only its group.");
		const box = el("div", {class: "lanebox"}, names, canvas);
		const check = el("input", {type: "checkbox", id: "idle", checked: Boolean(s.idle), onchange: (event) => this.#onIdle(event.target.checked)});
		const used = new Set(s.rows.flatMap((r) => r.segments.filter((g) => g.to > s.from && g.from < s.to).flatMap((g) => g.parts.map((p) => p.cause))));
		const focused = host.contains(document.activeElement) ? document.activeElement.dataset.key : null;
		fill(host, el("h2", {}, "Threads over time"),
			el("p", {class: "lanetools"}, el("label", {class: "check"}, check, ` idle threads${s.hidden ? ` (${s.hidden} hidden)` : ""}`),
				s.zoom ? el("button", {class: "more", onclick: () => this.#onZoom()}, "Show all of the time") : null,
				s.only ? el("button", {class: "more", onclick: () => this.#onThread("")}, "Show all threads") : null),
			s.rows.length === 0 ? el("p", {class: "dim"}, s.only ? "No lane of these threads." : "All threads were idle.") : box, status,
			el("p", {class: "legend"}, ...[...used].sort((a, b) => rank(a) - rank(b)).map((cause) => {
				const swatch = el("span", {class: "swatch"});
				swatch.style.background = colourOfCause(cause);
				return el("span", {}, swatch, cause);
			})),
			s.more ? el("p", {class: "dim"}, `and ${s.more} more threads`) : null,
			s.leftOut ? el("p", {class: "dim"}, `${s.leftOut} threads have no lane, as there were too many.`) : null,
			s.noRoom === null ? null : el("p", {class: "dim"}, `From ${clock(s.noRoom)} on lanes are missing: the file had no room for more. Record for a shorter time, fewer processes, or with a longer --window.`),
			s.start - s.doc.start > 1000 ? el("p", {class: "dim"}, `The lanes begin at ${clock(s.start)}: there is no room for those of earlier windows.`) : null);
		names.style.height = `${y}px`;
		const width = Math.max(box.clientWidth - names.offsetWidth, 120);
		canvas.width = Math.round(width * devicePixelRatio);
		canvas.height = Math.round(y * devicePixelRatio);
		canvas.style.width = `${width}px`;
		canvas.style.height = `${y}px`;
		Object.assign(s, {canvas, status, places, width, height: y});
		this.#paint();
		this.#listen(canvas);
		if (focused) [...host.querySelectorAll("[data-key]")].find((e) => e.dataset.key === focused)?.focus();
	}

	// paint draws all lanes. Each column of pixels shows its time.
	#paint() {
		const s = this.#shown, ctx = s.canvas.getContext("2d");
		const style = getComputedStyle(document.documentElement);
		const colour = (name) => style.getPropertyValue(name).trim();
		const idle = colour("--line");
		ctx.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
		ctx.clearRect(0, 0, s.width, s.height);
		const perPixel = (s.to - s.from) / s.width;
		this.#axis(ctx, colour, perPixel);
		s.rows.forEach((row, i) => {
			const top = s.places[i], high = rowHeight - 2;
			for (let x = 0; x < s.width; x++) {
				const shares = laneShares(row, s.from + x * perPixel, s.from + (x + 1) * perPixel);
				if (shares.length === 0) continue;
				shares.sort((a, b) => rank(a.cause) - rank(b.cause));
				const all = shares.reduce((sum, p) => sum + p.share, 0);
				let bottom = top + high;
				for (const {cause, share} of shares) {
					if (cause === "idle") continue;
					const h = (high * share) / Math.max(all, 1e-9);
					ctx.fillStyle = colourOfCause(cause);
					ctx.fillRect(x, bottom - h, 1.02, h);
					bottom -= h;
				}
				const line = Math.min(bottom - top, (2 * high) / 7 - (top + high - bottom)); // a line is enough for what does nothing
				if (line > 0 && shares.some((p) => p.cause === "idle")) {
					ctx.fillStyle = idle;
					ctx.fillRect(x, bottom - line, 1.02, line);
				}
			}
		});
		s.image = ctx.getImageData(0, 0, s.canvas.width, s.canvas.height);
	}

	// mark draws where the keyboard is, or what is being selected, over the lanes.
	#mark(drag = null) {
		const s = this.#shown, ctx = s.canvas.getContext("2d");
		const style = getComputedStyle(document.documentElement);
		const colour = (name) => style.getPropertyValue(name).trim();
		ctx.putImageData(s.image, 0, 0);
		if (this.#at) {
			ctx.strokeStyle = colour("--text");
			ctx.lineWidth = 2;
			ctx.strokeRect(this.#at.x - 2, s.places[this.#at.row] - 1, 5, rowHeight);
		}
		if (drag) {
			ctx.fillStyle = ctx.strokeStyle = colour("--accent");
			ctx.globalAlpha = 0.2;
			ctx.fillRect(Math.min(...drag), axisHeight, Math.abs(drag[1] - drag[0]), s.height);
			ctx.globalAlpha = 1;
		}
	}

	#axis(ctx, colour, perPixel) {
		const s = this.#shown;
		let apart = 1;
		for (let i = 0; apart / perPixel < 70; i++) apart = [2, 5, 10][i % 3] * 10 ** Math.floor(i / 3);
		ctx.font = "11px system-ui, sans-serif";
		ctx.textBaseline = "middle";
		for (let at = Math.ceil((s.from - s.start) / apart) * apart; at <= s.to - s.start; at += apart) {
			const x = (at + s.start - s.from) / perPixel;
			ctx.fillStyle = colour("--line");
			ctx.fillRect(x, axisHeight - 4, 1, s.height);
			ctx.fillStyle = colour("--dim");
			const text = seconds(at, apart);
			ctx.textAlign = x + ctx.measureText(text).width > s.width ? "right" : "left";
			ctx.fillText(text, x, axisHeight / 2);
		}
	}

	#rowAt(y) {
		return this.#shown.places.findIndex((top) => y >= top && y < top + rowHeight);
	}

	// describe says what a thread did at a place of its lane.
	#describe(i, x) {
		const s = this.#shown, row = s.rows[i], perPixel = (s.to - s.from) / s.width;
		const from = s.from + x * perPixel, half = Math.max(1.5 * perPixel, 0.5);
		const shares = laneShares(row, from - half, from + half);
		return {row, time: `${seconds(from - s.start, perPixel * 10)} (${clock(from)})`, shares};
	}

	#read(i, x, clientX, clientY) {
		const {row, time, shares} = this.#describe(i, x);
		const rows = [el("dt", {}, "time"), el("dd", {}, time)];
		for (const {cause, share} of shares.filter((p) => p.share >= 0.005)) rows.push(el("dt", {}, cause), el("dd", {}, percent(share)));
		if (shares.length === 0) rows.push(el("dt", {}, ""), el("dd", {}, "did not exist, or is not recorded"));
		if (row.all > 0) rows.push(el("dt", {}, "all the time"), el("dd", {}, `${percent(row.running / row.all)} running, ${percent(1 - row.busy / row.all)} idle or unknown`));
		fill(this.#tip, el("strong", {}, row.thread), el("dl", {}, el("dt", {}, "tid"), el("dd", {}, String(row.tid)), ...rows));
		this.#tip.hidden = false;
		const box = this.#tip.getBoundingClientRect();
		this.#tip.style.left = `${Math.max(8, Math.min(clientX + 12, document.documentElement.clientWidth - box.width - 8))}px`;
		this.#tip.style.top = `${clientY + 16 + box.height > window.innerHeight ? Math.max(8, clientY - box.height - 12) : clientY + 16}px`;
		return `${row.thread}, ${time}: ${shares.map((p) => `${p.cause} ${percent(p.share)}`).join(", ") || "nothing"}`;
	}

	#listen(canvas) {
		const s = this.#shown;
		let began = null;
		const place = (event) => {
			const box = canvas.getBoundingClientRect();
			return [event.clientX - box.left, event.clientY - box.top];
		};
		canvas.addEventListener("pointerdown", (event) => {
			began = place(event)[0];
			canvas.setPointerCapture(event.pointerId);
		});
		canvas.addEventListener("pointermove", (event) => {
			const [x, y] = place(event);
			if (began !== null && Math.abs(x - began) > 3) this.#mark([began, x]);
			const i = this.#rowAt(y);
			if (i < 0 || x < 0) this.#tip.hidden = true;
			else this.#read(i, x, event.clientX, event.clientY);
		});
		canvas.addEventListener("pointerleave", () => (this.#tip.hidden = true));
		canvas.addEventListener("pointerup", (event) => {
			const [x, y] = place(event), start = began;
			began = null;
			if (start === null) return;
			const perPixel = (s.to - s.from) / s.width;
			if (Math.abs(x - start) > 3) {
				this.#onZoom(s.from + Math.max(Math.min(x, start), 0) * perPixel, s.from + Math.min(Math.max(x, start), s.width) * perPixel);
				return;
			}
			const i = this.#rowAt(y);
			if (i >= 0) this.#onThread(s.rows[i].group === s.only ? "" : s.rows[i].group);
		});
		canvas.addEventListener("keydown", (event) => {
			const moves = {ArrowLeft: [0, -4], ArrowRight: [0, 4], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
			if (event.key === "Enter" && this.#at) {
				const {group} = s.rows[this.#at.row];
				this.#onThread(group === s.only ? "" : group);
			}
			if (!(event.key in moves) || s.rows.length === 0) return;
			event.preventDefault();
			const [down, right] = moves[event.key], at = this.#at ?? {row: down > 0 ? -1 : 0, x: s.width / 2};
			this.#at = {row: Math.min(Math.max(at.row + down, 0), s.rows.length - 1), x: Math.min(Math.max(at.x + right, 0), s.width - 1)};
			const box = canvas.getBoundingClientRect();
			fill(s.status, this.#read(this.#at.row, this.#at.x, box.left + this.#at.x, box.top + s.places[this.#at.row]));
			this.#mark();
		});
		canvas.addEventListener("blur", () => (this.#tip.hidden = true));
	}
}
