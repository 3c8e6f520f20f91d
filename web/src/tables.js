// Tables next to the flame graph: hot methods, and what surrounds the selected one.
import {amount, around, callTargets, change, interval, leaves, methods, percent, perSecond, plusMinus, points, threadGroups} from "./model.js";
import {colourOf} from "./flame.js";
import {el, fill} from "./dom.js";

const firstRows = 25, mostRows = 1000;

function name(text, onSelect) {
	return el("button", {class: "name", title: text, onclick: () => onSelect(text)}, text);
}

function bar(share) {
	const inner = el("span");
	inner.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
	return el("span", {class: "bar", "aria-hidden": "true"}, inner);
}

function swatchOf(node) {
	const swatch = el("span", {class: "swatch", "aria-hidden": "true"});
	swatch.style.background = colourOf(node);
	return swatch;
}

// methodTable shows the flat profile.
export function methodTable(host, doc, root, rates, {test, all, onAll, onSelect, selected}) {
	let rows = methods(root);
	if (test) rows = rows.filter((m) => test(m.name));
	const total = Math.max(root.value, 1e-9), baseTotal = Math.max(root.base, 1e-9);
	if (doc.base) {
		for (const m of rows) m.change = change({name: m.name, value: m.self, n: m.selfN, base: m.baseSelf, baseCount: m.baseSelfN}, root, doc, "own");
		rows = rows.filter((m) => m.self > 0 || m.baseSelf > 0);
		rows.sort((a, b) => b.change.sure - a.change.sure || Math.abs(b.change.delta) - Math.abs(a.change.delta));
	}
	const shown = rows.slice(0, all ? mostRows : firstRows);
	const head = doc.base
		? [["self before", "n"], ["self now", "n"], ["change", "n"], ["\u00b1", "n wide"], ["verdict", "wide"], ["method", ""]]
		: [["self", "n"], ["\u00b1", "n wide"], ["amount", "n wide"], ["total", "n"], ...(rates ? [["calls/s", "n"]] : []), ["method", ""]];
	const body = shown.map((m) => {
		const share = m.self / total;
		const cells = doc.base
			? [percent(m.baseSelf / baseTotal), percent(share), points(m.change.delta), m.change.noise === Infinity ? "?" : (100 * m.change.noise).toFixed(2), m.change.verdict]
			: [percent(share), plusMinus(interval(share, m.selfN, doc.effect), doc.effect), amount(m.self, doc.unit), percent(m.total / total),
				...(rates ? [rates.of(m.name) === undefined ? "" : amount(rates.of(m.name), "count")] : [])];
		return el("tr", {class: [m.name === selected && "selected", m.change && !m.change.sure && "dim"].filter(Boolean).join(" ") || null},
			...cells.map((c, i) => el("td", {class: head[i][1]}, c)), el("td", {class: "method"}, el("div", {}, swatchOf(m), name(m.name, onSelect))));
	});
	fill(host,
		el("table", {}, el("caption", {}, doc.base ? "Methods by change" : "Hot methods"),
			el("thead", {}, el("tr", {}, ...head.map(([text, cls]) => el("th", {class: cls, scope: "col"}, text)))), el("tbody", {}, ...body)),
		rows.length > shown.length && !all ? el("button", {class: "more", onclick: onAll}, `Show all ${rows.length} methods`) : null,
		rows.length > mostRows && all ? el("p", {class: "dim"}, `The first ${mostRows} of ${rows.length} methods.`) : null);
}

function listOf(title, items, {total, baseTotal, onSelect, empty}) {
	const most = 12;
	const share = (item) => item.value / total;
	const rows = items.slice(0, most).map((item) => el("li", {class: baseTotal ? "both" : null}, bar(share(item)),
		el("span", {class: "share"}, (baseTotal ? `${percent(item.base / baseTotal)} \u2192 ` : "") + percent(share(item))),
		onSelect && item.name !== "[none]" ? name(item.name, onSelect) : el("span", {class: "name"}, item.name === "[none]" ? "called by nobody" : item.name)));
	return [el("h3", {}, title), rows.length > 0 ? el("ul", {class: "list"}, ...rows) : el("p", {class: "dim"}, empty),
		items.length > most ? el("p", {class: "dim"}, `and ${items.length - most} more`) : null];
}

// shares is what a method has before and now, and whether the difference may be chance.
function shares(title, node, root, doc, of) {
	const c = change(node, root, doc, of);
	return el("tr", {}, el("th", {scope: "row"}, title), el("td", {class: "n"}, percent(c.before)), el("td", {class: "n"}, percent(c.now)),
		el("td", {class: "n"}, `${points(c.delta)} \u00b1 ${(100 * c.noise).toFixed(2)}`, el("br"), el("span", {class: "dim"}, c.verdict)));
}

const leafTitles = {alloc: "Allocated classes, with callees", lock: "Awaited locks, with callees"};

// leafList shows what a method allocates, or waits for: values of another kind than the shown one, or of that.
function leafList({doc, root}, selected) {
	const most = 8;
	const list = leaves(root, selected);
	if (list.length === 0) return [];
	const total = Math.max(list.reduce((sum, l) => sum + l.value, 0), 1e-9);
	return [el("h3", {}, leafTitles[doc.kind]), el("ul", {class: "list amounts"}, ...list.slice(0, most).map((l) => el("li", {}, bar(l.value / total),
		el("span", {class: "share"}, perSecond(l.value, doc)), el("span", {class: "name"}, l.name)))), list.length > most ? el("p", {class: "dim"}, `and ${list.length - most} more`) : null];
}

// targetList shows which methods the virtual calls of a method reach.
function targetList(doc, selected, onSelect) {
	const most = 5, mostTargets = 6;
	const sites = callTargets(doc, selected);
	if (sites.length === 0) return [];
	return [el("h3", {}, "Targets of virtual calls"), ...sites.slice(0, most).flatMap((s) => [
		el("p", {class: "dim"}, `${s.line > 0 ? `Line ${s.line}` : "Unknown line"}: ${amount(s.rate, "count")} calls/s${s.isOne ? "" : ", maybe of several calls"}`),
		el("ul", {class: "list"}, ...s.targets.slice(0, mostTargets).map((t) => el("li", {}, bar(t.rate / s.rate), el("span", {class: "share"}, percent(t.rate / s.rate)), name(t.name, onSelect)))),
		s.targets.length > mostTargets ? el("p", {class: "dim"}, `and ${s.targets.length - mostTargets} more`) : null,
	]), sites.length > most ? el("p", {class: "dim"}, `and ${sites.length - most} more places`) : null];
}

// sidePanel shows what surrounds the selected method, or the thread groups if none is selected. events are the kinds whose classes and locks it
// shows, as far as they are loaded.
export function sidePanel(host, doc, root, rates, {selected, thread, onSelect, onThread, commands, events}) {
	const parts = [];
	const total = Math.max(root.value, 1e-9), baseTotal = doc.base ? Math.max(root.base, 1e-9) : 0;
	if (selected) {
		const a = around(root, selected);
		parts.push(el("h2", {}, selected));
		if (doc.base) {
			parts.push(el("table", {class: "shares"}, el("thead", {}, el("tr", {}, el("td", {}), ...["before", "now", "points"].map((h) => el("th", {class: "n", scope: "col"}, h)))),
				el("tbody", {}, shares("with callees", {...a.all, name: selected}, root, doc, "total"), shares("itself", {...a.own, name: selected}, root, doc, "own"))),
			el("p", {}, `With callees ${perSecond(a.all.base, {...doc, seconds: doc.base.seconds}) || amount(a.all.base, doc.unit)} before, ${perSecond(a.all.value, doc)} now.`));
		} else {
			parts.push(el("p", {}, `${percent(a.all.value / total)} with callees, ${percent(a.own.value / total)} itself: ${amount(a.all.value, doc.unit)}, ${perSecond(a.all.value, doc)}`));
		}
		parts.push(el("button", {class: "more", onclick: () => onSelect("")}, "Close"));
		if (rates && rates.of(selected) !== undefined) {
			const rate = rates.of(selected);
			const each = doc.kind === "cpu" && rate > 0 && doc.seconds > 0 ? a.own.value / doc.seconds / rate : 0;
			parts.push(el("p", {}, `Called ${amount(rate, "count")} times per second` + (each > 0 ? `; about ${amount(each, "nanoseconds")} of CPU time a call in itself` : "") + "."));
		}
		// Without a baseline parts are of the method; with one they are of everything, as the method itself changes.
		const of = doc.base ? {total, baseTotal} : {total: Math.max(a.all.value, 1e-9)};
		parts.push(...listOf("Callers", a.callers, {...of, onSelect, empty: "none"}),
			...listOf("Callees", a.callees, {...of, onSelect, empty: "none: all of it is its own"}),
			...targetList(doc, selected, onSelect),
			...events.flatMap((e) => leafList(e, selected)),
			...listOf("Threads", a.threads, {...of, onSelect: onThread, empty: "not recorded"}));
	} else {
		parts.push(el("h2", {}, "Threads"), el("p", {class: "dim"}, "Select a frame for its callers, callees and threads."));
		if (thread) parts.push(el("p", {}, `Only ${thread}. `, el("button", {class: "more", onclick: () => onThread("")}, "Show all threads")));
		parts.push(...listOf("By name", threadGroups(root), {total, baseTotal, onSelect: onThread, empty: "not recorded"}).slice(1));
	}
	if (commands.length > 0) parts.push(el("h3", {}, "In a terminal"), ...commands.map((c) => el("pre", {tabindex: "0"}, c)));
	fill(host, ...parts);
}
