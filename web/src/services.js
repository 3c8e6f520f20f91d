// Services as cards: what each uses, how that went, and what changed.
import {perSecond} from "./model.js";
import {el, fill, svg} from "./dom.js";

const most = 40; // services, and processes of one

const names = {cpu: "CPU", alloc: "allocates", lock: "locks", safepoint: "stopped"};

// rate writes a value per second. Of CPU time that is how many CPUs are busy.
const rate = (value, {kind, unit}) => perSecond(value, {kind, unit, seconds: 1});

// sparkline draws values, from 0 to the largest.
function sparkline(points) {
	const width = 56, height = 16, top = Math.max(...points, 1e-9);
	const at = (v, i) => `${((width * i) / Math.max(points.length - 1, 1)).toFixed(1)},${(height - 1 - ((height - 2) * v) / top).toFixed(1)}`;
	return svg("svg", {class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true", preserveAspectRatio: "none"},
		svg("polyline", {points: points.map(at).join(" ")}));
}

function changeText({percent, within, verdict}) {
	if (percent === undefined) return verdict === "more" ? "new" : "gone";
	const sign = percent < 0 ? "\u2212" : "+";
	return `${sign}${Math.abs(percent).toFixed(0)} %` + (within === undefined ? "" : ` \u00b1 ${Math.max(within, 1).toFixed(0)}`);
}

// rateRows has a row for each kind that is recorded: its value, its course, and a badge if it changed.
function rateRows(rates, onChange) {
	return el("ul", {class: "rates"}, ...(rates ?? []).map((r) => el("li", {}, el("span", {class: "dim"}, names[r.kind] ?? r.kind), el("span", {class: "n"}, rate(r.value, r)), sparkline(r.points),
		r.change ? el("button", {
			class: `badge ${r.change.verdict === "more" ? "up" : "down"}`, onclick: () => onChange(r.kind),
			title: `${rate(r.change.before, r)} \u2192 ${rate(r.change.now, r)}: show what changed`,
		}, `${r.change.verdict === "more" ? "\u25b2" : "\u25bc"} changed ${changeText(r.change)}`) : null)));
}

// stateBar shows what the threads did, as parts of a bar and in words. Idle threads are no part of it.
function stateBar(states) {
	const total = Math.max(states.reduce((sum, s) => sum + s.threads, 0), 1e-9);
	return el("div", {class: "states", title: "threads by what they do, on average; those with nothing to do are left out"},
		el("div", {class: "parts", "aria-hidden": "true"}, ...states.map((s) => {
			const part = el("span", {class: `state-${s.name}`});
			part.style.width = `${(100 * s.threads) / total}%`;
			return part;
		})),
		el("p", {class: "dim"}, "threads: ", states.map((s) => `${s.name} ${s.threads < 10 ? s.threads.toFixed(2) : s.threads.toFixed(0)}`).join(", ")));
}

// serviceCards shows the services, and the processes of the selected one. onSelect gets changes of the state.
export function serviceCards(host, list, {service, pid, onSelect}) {
	const total = Math.max(list.services.reduce((sum, s) => sum + s.value, 0), 1e-9);
	const meter = (share) => {
		const inner = el("span");
		inner.style.width = `${100 * share}%`;
		return el("span", {class: "bar", "aria-hidden": "true"}, inner);
	};
	const card = (text, value, isCurrent, changes, {extra, rates, states} = {}) => el("li", {class: extra ?? null},
		el("div", {class: "head"}, el("button", {"aria-current": isCurrent ? "true" : null, onclick: () => onSelect(changes)},
			el("span", {class: "name"}, text), el("span", {class: "share"}, perSecond(value, list))), meter(value / total)),
		rates?.length ? rateRows(rates, (kind) => {
			const {from, to, basefrom, baseto} = list.compared;
			onSelect({...changes, kind, from, to, basefrom, baseto});
		}) : null, states?.length ? stateBar(states) : null);
	fill(host, el("h2", {}, "Services"), el("ul", {class: "cards"}, card("whole machine", total, !service && !pid, {service: "", pid: ""}, {rates: list.rates, states: list.states}),
		...list.services.slice(0, most).flatMap((s) => [
			card(s.service, s.value, s.service === service && !pid, {service: s.service, pid: ""}, {rates: s.rates, states: s.states}),
			...(s.service === service && s.processes.length > 1 ? s.processes.slice(0, most).map((p) =>
				card(`${p.comm} (${p.pid})`, p.value, String(p.pid) === pid, {service: s.service, pid: p.pid}, {extra: "process"})) : []),
		])), list.services.length > most ? el("p", {class: "dim"}, `and ${list.services.length - most} more`) : null);
}
