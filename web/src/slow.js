// The slowest calls of a method: how long each took, because of what, and where.
import {amount, percent} from "./model.js";
import {colourOfCause} from "./lanes.js";
import {el, fill} from "./dom.js";
import {clock} from "./timeline.js";

const ends = {
	unwound: ["\u2264", "took no longer than that: its return was not seen, as after an exception"],
	running: [">", "had not ended when the recording did"],
};

// bar shows the causes of a call as parts of its length, which is a share of that of the slowest.
function bar(call, longest) {
	const inner = el("span", {class: "causes"}, ...call.causes.map(({cause, time}) => {
		const part = el("span");
		part.style.width = `${(100 * time) / Math.max(call.took, 1)}%`;
		part.style.background = colourOfCause(cause);
		return part;
	}));
	inner.style.width = `${(100 * call.took) / Math.max(longest, 1)}%`;
	return el("span", {class: "took", "aria-hidden": "true"}, inner);
}

function causesOf(call) {
	const least = 0.01;
	return call.causes.filter((c) => c.time >= least * call.took).map((c) => {
		const swatch = el("span", {class: "swatch"});
		swatch.style.background = colourOfCause(c.cause);
		return el("span", {}, swatch, `${c.cause} ${amount(c.time, "nanoseconds")}`);
	});
}

// stacksOf lists the heaviest stacks, each from the method on.
function stacksOf(call, onSelect) {
	return el("ol", {class: "stacks"}, ...call.stacks.map((s) => el("li", {},
		el("span", {class: "dim"}, `${percent(s.time / Math.max(call.took, 1))} ${amount(s.time, "nanoseconds")}, ${s.cause}: `),
		...s.frames.flatMap((name, i) => [i > 0 ? " \u203a " : null, el("button", {class: "name", title: `Show ${name} in the flame graph`, onclick: () => onSelect(name)}, name)]))));
}

const when = (ms) => `${clock(ms)}.${String(Math.floor(ms % 1000)).padStart(3, "0")}`;

// slowTable shows the slowest calls of a document, if it has any. open is the key of the call whose stacks are shown, onOpen gets another one, or
// none; onThread a group of threads, onTime the time of a call, in ms since 1970.
export function slowTable(host, slow, {open, only, onOpen, onThread, onTime, onSelect}) {
	host.hidden = !slow;
	if (!slow) return void fill(host);
	const calls = slow.list.map((call, i) => ({...call, number: i + 1, key: `${call.tid}-${call.start}`})).filter((c) => !only || c.group === only);
	const longest = Math.max(...calls.map((c) => c.took), 1);
	const several = new Set(slow.list.map((c) => c.process)).size > 1;
	const used = new Set(calls.map((c) => c.end));
	const focused = host.contains(document.activeElement) ? document.activeElement.dataset.key : null;
	const rows = calls.flatMap((c) => {
		const isOpen = c.key === open, [sign] = ends[c.end] ?? [""];
		const row = el("tr", {class: isOpen ? "selected" : null},
			el("td", {class: "n"}, el("button", {class: "more", "aria-expanded": String(isOpen), "data-key": c.key, title: isOpen ? "Hide its stacks" : "Show its stacks", onclick: () => onOpen(isOpen ? "" : c.key)}, String(c.number))),
			el("td", {class: "n"}, sign + amount(c.took, "nanoseconds")),
			el("td", {class: "bars wide"}, bar(c, longest)),
			el("td", {class: "wide"}, onTime ? el("button", {class: "name", title: "Show this time in the lanes", onclick: () => onTime(c.start, c.start + c.took / 1e6)}, when(c.start)) : when(c.start)),
			el("td", {class: "thread"}, el("button", {class: "name", title: c.group === only ? "Show all threads" : `Show only ${c.group}`, onclick: () => onThread(c.group === only ? "" : c.group)}, several ? `${c.thread} \u00b7 ${c.process}` : c.thread)),
			el("td", {class: "why legend"}, ...causesOf(c)));
		return isOpen ? [row, el("tr", {class: "detail"}, el("td", {colspan: "6"}, stacksOf(c, onSelect)))] : [row];
	});
	const head = [["call", "n"], ["took", "n"], ["", "wide"], ["start", "wide"], ["thread", ""], ["because of", ""]];
	fill(host, el("h2", {}, "Slow calls"),
		el("p", {class: "dim"}, slow.list.length > 0 ? `The ${slow.list.length} slowest${slow.calls > 0 ? ` of ${amount(slow.calls, "count")}` : ""} calls of ` : "No call of ", el("code", {}, slow.method || "the method"),
			slow.list.length > 0 ? " that ended in this time." : " has ended in this time."),
		rows.length > 0 ? el("table", {}, el("thead", {}, el("tr", {}, ...head.map(([text, cls]) => (text ? el("th", {class: cls, scope: "col"}, text) : el("td", {class: cls}))))), el("tbody", {}, ...rows)) : null,
		calls.length < slow.list.length ? el("p", {class: "dim"}, `${slow.list.length - calls.length} of other threads. `, el("button", {class: "more", onclick: () => onThread("")}, "Show all threads")) : null,
		...Object.entries(ends).filter(([end]) => used.has(end)).map(([, [sign, text]]) => el("p", {class: "dim"}, `${sign} ${text}`)));
	if (focused) [...host.querySelectorAll("[data-key]")].find((e) => e.dataset.key === focused)?.focus();
}
