// The data model of the pages: decodes what the agent writes (docs/reference/http.md) and computes views of it. It knows no
// DOM, so node's test runner can test it.

export const PROCESS = "process";
export const THREAD = "thread";

// decode makes a tree of a Flame in its JSON form. Each node has: name, file, kind, line, approx, tiers, self, count, value
// (self with all below), base (the same of the baseline), n (count with all below), parent, children.
export function decode(doc) {
	if (doc.format !== 1) throw new Error(`unknown format ${doc.format} of the profile`);
	const {frames, nodes, names} = doc;
	const root = {name: "all", kind: "root", file: "", line: 0, approx: 0, tiers: 0, self: 0, count: 0, value: 0, n: 0, base: 0, baseCount: 0, baseSelf: 0, baseSelfCount: 0, children: []};
	const all = nodes.parent.map((parent, i) => {
		const frame = nodes.frame[i];
		return {
			name: names[frames.name[frame]], file: names[frames.file[frame]], kind: doc.frameKinds[frames.kind[frame]],
			line: nodes.line[i], approx: nodes.approx[i], tiers: nodes.tiers[i],
			self: nodes.self[i], count: nodes.count[i], value: nodes.self[i], n: nodes.count[i],
			base: doc.base ? doc.base.self[i] : 0, baseCount: doc.base ? doc.base.count[i] : 0, baseSelf: doc.base ? doc.base.self[i] : 0,
			baseSelfCount: doc.base ? doc.base.count[i] : 0,
			children: [],
		};
	});
	for (let i = all.length - 1; i >= 0; i--) { // children come after their parents
		const parent = nodes.parent[i] < 0 ? root : all[nodes.parent[i]];
		parent.value += all[i].value;
		parent.n += all[i].n;
		parent.base += all[i].base;
		parent.baseCount += all[i].baseCount;
		all[i].parent = parent;
		parent.children.push(all[i]);
	}
	return root;
}

// A code node runs code; others are processes, threads, classes and marks.
export const isCode = (n) => n.kind !== PROCESS && n.kind !== THREAD && n.kind !== "root";

// sums are the numbers of a node that are added when nodes are merged.
const sums = ["self", "count", "value", "n", "base", "baseCount", "baseSelf", "baseSelfCount"];

// regroup returns a tree without levels that are not wanted: processes, thread groups. Nodes that become equal are merged. With
// only, it keeps the stacks of one thread group.
export function regroup(root, {processes, threads, only}) {
	const out = {...root, children: [], byKey: new Map()};
	const pending = [[root, out, !only]];
	while (pending.length > 0) {
		const [from, to, kept] = pending.pop();
		for (const child of from.children) {
			if (child.kind === THREAD && only && child.name !== only) continue;
			const keep = kept || child.kind === THREAD;
			if ((child.kind === PROCESS && !processes) || (child.kind === THREAD && !threads)) {
				pending.push([child, to, keep]);
				continue;
			}
			const key = child.kind + " " + child.name + " " + child.file;
			let node = to.byKey.get(key);
			if (!node) {
				node = {...child, parent: to, children: [], byKey: new Map(), line: 0, lineValue: -1, approxValue: 0, tierValues: null};
				for (const k of sums) node[k] = 0;
				to.byKey.set(key, node);
				to.children.push(node);
			}
			for (const k of sums) node[k] += child[k];
			node.approxValue += child.approx * child.value;
			node.approx = node.value > 0 ? Math.round(node.approxValue / node.value) : 0;
			if (child.value > node.lineValue) {
				node.line = child.line;
				node.lineValue = child.value;
			}
			if (child.tiers) {
				node.tierValues ??= child.tiers.map(() => 0);
				child.tiers.forEach((share, i) => (node.tierValues[i] += share * child.value));
			}
			node.tiers = node.tierValues && node.value > 0 ? node.tierValues.map((v) => Math.round(v / node.value)) : 0;
			pending.push([child, node, keep]);
		}
	}
	// Sums of the root are those of what was kept.
	for (const k of ["value", "n", "base", "baseCount"]) out[k] = out.children.reduce((sum, c) => sum + c[k], 0);
	return out;
}

export function* walk(root) {
	const pending = [root];
	while (pending.length > 0) {
		const node = pending.pop();
		yield node;
		pending.push(...node.children);
	}
}

// methods is the flat profile: by name, the value of the method itself and with all it called, recursion counted once.
export function methods(root) {
	const byName = new Map();
	const onPath = new Map();
	const pending = [[root, false]];
	while (pending.length > 0) {
		const [node, leave] = pending.pop();
		if (leave) {
			onPath.set(node.name, onPath.get(node.name) - 1);
			continue;
		}
		if (isCode(node)) {
			let m = byName.get(node.name);
			if (!m) byName.set(node.name, (m = {name: node.name, kind: node.kind, file: node.file, self: 0, total: 0, n: 0, selfN: 0, baseSelf: 0, baseSelfN: 0, baseTotal: 0}));
			m.self += node.self;
			m.selfN += node.count;
			m.baseSelf += node.baseSelf;
			m.baseSelfN += node.baseSelfCount;
			const depth = onPath.get(node.name) ?? 0;
			if (depth === 0) {
				m.total += node.value;
				m.n += node.n;
				m.baseTotal += node.base;
			}
			onPath.set(node.name, depth + 1);
			pending.push([node, true]);
		}
		for (const child of node.children) pending.push([child, false]);
	}
	return [...byName.values()].sort((a, b) => b.self - a.self || b.total - a.total || (a.name < b.name ? -1 : 1));
}

// around is what surrounds a method: its callers and callees by value, and the thread groups that ran it. Recursion is left out.
// all and own are what the method has with and without its callees, as numbers that change takes.
export function around(root, name) {
	const callers = new Map(), callees = new Map(), threads = new Map();
	const nothing = () => ({value: 0, n: 0, base: 0, baseCount: 0});
	const all = nothing(), own = nothing();
	const plus = (to, node) => {
		for (const k of ["value", "n", "base", "baseCount"]) to[k] += node[k];
	};
	const add = (map, key, kind, node) => {
		if (!map.has(key)) map.set(key, {name: key, kind, ...nothing()});
		plus(map.get(key), node);
	};
	const pending = [[root, false, ""]];
	while (pending.length > 0) {
		const [node, below, thread] = pending.pop();
		const group = node.kind === THREAD ? node.name : thread;
		const is = node.name === name && isCode(node);
		if (is) {
			plus(own, {value: node.self, n: node.count, base: node.baseSelf, baseCount: node.baseSelfCount});
			if (!below) {
				plus(all, node);
				const called = node.parent && isCode(node.parent);
				add(callers, called ? node.parent.name : "[none]", called ? node.parent.kind : "", node);
				if (group) add(threads, group, THREAD, node);
			}
			for (const child of node.children) if (child.name !== name) add(callees, child.name, child.kind, child);
		}
		for (const child of node.children) pending.push([child, below || is, group]);
	}
	return {all, own, callers: byWeight(callers, root), callees: byWeight(callees, root), threads: byWeight(threads, root)};
}

// byWeight sorts things by value, or by the larger of both shares if there is a baseline.
function byWeight(map, root) {
	const weight = (m) => (root.base > 0 ? Math.max(m.value / Math.max(root.value, 1e-9), m.base / root.base) : m.value);
	return [...map.values()].sort((a, b) => weight(b) - weight(a) || (a.name < b.name ? -1 : 1));
}

// threadGroups are the values of all thread groups.
export function threadGroups(root) {
	const groups = new Map();
	for (const node of walk(root)) {
		if (node.kind !== THREAD) continue;
		const known = groups.get(node.name) ?? {name: node.name, kind: THREAD, value: 0, n: 0, base: 0, baseCount: 0};
		for (const k of ["value", "n", "base", "baseCount"]) known[k] += node[k];
		groups.set(node.name, known);
	}
	return byWeight(groups, root);
}

// callRates indexes counted calls: by callee, and by caller and callee.
export function callRates(doc) {
	const of = new Map(), between = new Map();
	const calls = doc.calls;
	if (!calls) return null;
	calls.caller.forEach((caller, i) => {
		const from = doc.names[caller], to = doc.names[calls.callee[i]];
		of.set(to, (of.get(to) ?? 0) + calls.perSecond[i]);
		const key = from + "\n" + to;
		between.set(key, (between.get(key) ?? 0) + calls.perSecond[i]);
	});
	return {of: (name) => of.get(name), between: (caller, callee) => between.get(caller + "\n" + callee)};
}

// during returns a document with the values of a time only, and with those of another as its baseline, if it has values by time (parts). What
// else is known of frames, such as their lines, remains that of the whole. Calls are left out.
export function during(doc, {from, to, basefrom, baseto}) {
	const parts = doc.timeline?.parts;
	if (!parts || !(from || to || basefrom || baseto)) return doc;
	const sum = (begin, end) => {
		const self = doc.nodes.self.map(() => 0), count = doc.nodes.self.map(() => 0);
		let seconds = 0, start = null;
		const middle = (i) => (parts.start[i] + parts.end[i]) / 2;
		let chosen = parts.start.map((_, i) => i).filter((i) => middle(i) >= (begin || -Infinity) && middle(i) < (end || Infinity));
		if (chosen.length === 0) chosen = parts.start.map((_, i) => i).filter((i) => parts.start[i] < (end || Infinity) && parts.end[i] > begin).slice(0, 1);
		chosen.forEach((i) => {
			start ??= parts.start[i];
			seconds += parts.seconds[i];
			let node = 0;
			parts.node[i].forEach((step, j) => {
				node += step;
				count[node] += parts.count[i][j];
				self[node] += parts.self ? parts.self[i][j] : parts.each * parts.count[i][j];
			});
		});
		return {self, count, seconds, start};
	};
	const {self, count, seconds, start} = sum(from || baseto, to);
	const slow = doc.slow && {...doc.slow, calls: 0, list: doc.slow.list.filter((c) => c.start + c.took / 1e6 >= (from || baseto || -Infinity) && c.start + c.took / 1e6 < (to || Infinity))};
	return {...doc, slow, start: start ?? doc.start, seconds, nodes: {...doc.nodes, self, count}, calls: undefined, base: basefrom || baseto ? sum(basefrom, baseto) : undefined};
}

// callTargets are the places in a method that call several methods, with the calls per second of each: the most frequent place first. A place
// whose offset is known is one virtual call; else it is a line, which may have several calls.
export function callTargets(doc, name) {
	const sites = new Map();
	const calls = doc.calls;
	calls?.caller.forEach((caller, i) => {
		if (doc.names[caller] !== name || !calls.line) return;
		const line = calls.line[i], offset = calls.offset[i];
		if (line <= 0 && offset < 0) return;
		const key = `${line} ${offset}`;
		if (!sites.has(key)) sites.set(key, {line, isOne: offset >= 0, rate: 0, of: new Map()});
		const site = sites.get(key), callee = doc.names[calls.callee[i]];
		site.rate += calls.perSecond[i];
		site.of.set(callee, (site.of.get(callee) ?? 0) + calls.perSecond[i]);
	});
	return [...sites.values()].filter((s) => s.of.size > 1).sort((a, b) => b.rate - a.rate)
		.map(({of, ...site}) => ({...site, targets: [...of].map(([name, rate]) => ({name, rate})).sort((a, b) => b.rate - a.rate || (a.name < b.name ? -1 : 1))}));
}

// leaves are what events in a method and what it calls are about: classes of allocated objects, or locks. Other kinds have none.
export function leaves(root, name) {
	const found = new Map();
	const pending = [[root, false]];
	while (pending.length > 0) {
		const [node, below] = pending.pop();
		if (below && node.kind === "class") {
			const known = found.get(node.name) ?? {name: node.name, kind: node.kind, value: 0, n: 0, base: 0, baseCount: 0};
			for (const k of ["value", "n", "base", "baseCount"]) known[k] += node[k];
			found.set(node.name, known);
		}
		const is = below || (node.name === name && isCode(node) && node.kind !== "class");
		for (const child of node.children) pending.push([child, is]);
	}
	return byWeight(found, root);
}

// interval is half of the 95 % interval of a share, from the number of samples or events behind it; null if values are exact, or if there is no
// interval (effect is 0). What none of all samples met may be three of their number (the rule of three), and shares are smaller by that.
export function interval(share, n, effect = 1) {
	if (!(n > 0) || effect === 0) return null;
	return Math.max(1.96 * share * Math.sqrt((Math.max(1 - share, 0) * effect) / n), (3 * share * share * effect) / n);
}

// spread is half of the 95 % interval of the share that n of all samples are, also where that is 0 or 1 (Agresti and Coull 1998).
function spread(n, all, effect) {
	if (!(all > 0)) return 0;
	const p = (n + 2) / (all + 4);
	return 1.96 * Math.sqrt((p * (1 - p) * effect) / (all + 4));
}

// sureErrors is beyond chance for all methods of a page together: of 150 that did not change, one is sure in one page of 100.
const sureErrors = 4;

// change compares a node's shares of the root with those of the baseline: the difference, and how much of it may be chance. Where the document has
// verdicts, these say whether it is sure: they are those of the comparison's text, of methods with their callees (total) or without (own), per unit of
// work. So a method may cost more although its share is smaller. Without them, as in a file, a difference is sure from sureErrors standard errors on.
export function change(node, root, {effect = 1, verdicts} = {}, of = "total") {
	const now = root.value > 0 ? node.value / root.value : 0;
	const before = root.base > 0 ? node.base / root.base : 0;
	const noise = effect === 0 ? Infinity : Math.hypot(spread(node.n, root.n, effect), spread(node.baseCount, root.baseCount, effect)); // 0: no interval
	const delta = now - before;
	if (!verdicts) {
		const sure = Math.abs(delta) * 1.96 > noise * sureErrors;
		return {now, before, delta, noise, sure, more: delta > 0, verdict: sure ? (delta > 0 ? "more" : "less") : "undecided"};
	}
	const verdict = verdicts[of][node.name] ?? "undecided";
	return {now, before, delta, noise, sure: verdict === "more" || verdict === "less", more: verdict === "more", verdict};
}

// plusMinus writes half of an interval of shares in percentage points; "" if values are exact, and "?" if it is not known.
export function plusMinus(half, effect = 1) {
	if (effect === 0) return "?";
	return half === null ? "" : (100 * half).toFixed(half >= 0.1 ? 0 : 2);
}

// points writes a difference of shares in percentage points.
export function points(delta) {
	return `${delta < 0 ? "\u2212" : "+"}${(100 * Math.abs(delta)).toFixed(2)}`;
}

// laneRuns decodes what one thread did: consecutive equal steps, each with the shares of causes, the largest first.
export function laneRuns(text, causes) {
	const runs = [];
	const cause = (letter) => causes["abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ".indexOf(letter)] ?? "[unknown]";
	for (const [, steps, whole, parts] of text.matchAll(/(\d*)(?:([a-zA-Z])|\(([^)]*)\))/g)) {
		const shares = whole ? [{cause: cause(whole), share: 1}] : [...parts.matchAll(/([a-zA-Z])(\d+)/g)].map(([, letter, percent]) => ({cause: cause(letter), share: percent / 100}));
		runs.push({steps: Number(steps || 1), parts: shares});
	}
	return runs;
}

// laneRows makes one row of each thread, of all windows, and sorts them: by process, then by group of threads, then by time that is neither idle nor unknown. Of a
// row, segments are {from, to, parts}, in ms since 1970 and in order. only is the one group to show. From noRoom on, lanes are missing.
export function laneRows(lanes, {only, idle} = {}) {
	const rows = new Map();
	const without = new Map(); // threads without a lane, by process: several windows may lack the same
	let start = Infinity, end = -Infinity, hidden = 0, noRoom = Infinity;
	for (const l of lanes) {
		start = Math.min(start, l.start);
		end = Math.max(end, l.start + l.steps * l.step);
		without.set(l.pid, Math.max(without.get(l.pid) ?? 0, l.leftOut ?? 0));
		if (l.noRoom) noRoom = Math.min(noRoom, l.start);
		l.runs.forEach((text, i) => {
			const key = `${l.pid} ${l.tid[i]}`;
			if (!rows.has(key)) rows.set(key, {process: l.process, tid: l.tid[i], segments: [], all: 0, busy: 0, running: 0});
			const row = rows.get(key);
			row.thread = l.thread[i];
			row.group = l.group[i];
			let at = l.start + l.from[i] * l.step;
			for (const {steps, parts} of laneRuns(text, l.causes)) {
				const to = at + steps * l.step;
				row.segments.push({from: at, to, parts});
				for (const {cause, share} of parts) {
					const time = share * (to - at);
					row.all += time;
					if (cause !== "idle" && cause !== "unknown") row.busy += time;
					if (cause === "running") row.running += time;
				}
				at = to;
			}
		});
	}
	const processes = new Map(), groups = new Map();
	const sum = (map, key, value) => map.set(key, (map.get(key) ?? 0) + value);
	const shown = [...rows.values()].filter((r) => {
		if (only && r.group !== only) return false;
		if (idle || r.busy >= 0.02 * r.all) return true;
		hidden++;
		return false;
	});
	for (const r of shown) {
		sum(processes, r.process, r.busy);
		sum(groups, r.process + "\n" + r.group, r.busy);
	}
	const text = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
	shown.sort((a, b) => processes.get(b.process) - processes.get(a.process) || text(a.process, b.process)
		|| groups.get(b.process + "\n" + b.group) - groups.get(a.process + "\n" + a.group) || text(a.group, b.group) || b.busy - a.busy || text(a.thread, b.thread) || a.tid - b.tid);
	return {start, end, rows: shown, hidden, leftOut: [...without.values()].reduce((a, b) => a + b, 0), noRoom: noRoom < Infinity ? noRoom : null};
}

// laneShares is what a row did between two times: {cause, share} of that time, the largest first.
export function laneShares(row, from, to) {
	let low = 0, high = row.segments.length; // the first that ends later
	while (low < high) {
		const middle = (low + high) >> 1;
		if (row.segments[middle].to <= from) low = middle + 1;
		else high = middle;
	}
	const shares = new Map();
	for (; low < row.segments.length && row.segments[low].from < to; low++) {
		const s = row.segments[low];
		const part = (Math.min(s.to, to) - Math.max(s.from, from)) / (to - from);
		for (const {cause, share} of s.parts) shares.set(cause, (shares.get(cause) ?? 0) + share * part);
	}
	return [...shares].map(([cause, share]) => ({cause, share})).sort((a, b) => b.share - a.share);
}

const prefixes = ["", "k", "M", "G", "T", "P"];

function scaled(x, step, units, digits = 3) {
	let i = 0;
	while (x >= step * 0.9995 && i < units.length - 1) {
		x /= step;
		i++;
	}
	return Number(x.toPrecision(digits)).toString() + units[i];
}

// amount writes a value with its unit.
export function amount(value, unit) {
	switch (unit) {
		case "nanoseconds":
			if (value < 1e9) return scaled(value / 1e3, 1000, [" \u00b5s", " ms"]);
			return scaled(value / 1e9, Infinity, [" s"], value >= 1e12 ? 4 : 3);
		case "bytes":
			return scaled(value, 1000, prefixes.map((p) => " " + p + "B"));
	}
	return scaled(value, 1000, prefixes);
}

// Kinds whose values are times of threads: in a second they are so many threads on average.
const ofThreads = ["wall", "offcpu", "lock"];

// perSecond writes a value of a kind as a rate.
export function perSecond(value, {unit, kind, seconds}) {
	if (!(seconds > 0)) return "";
	if (kind === "cpu" && unit === "nanoseconds") return `${+(value / 1e9 / seconds).toPrecision(value > 1e8 * seconds ? 3 : 2)} CPUs`;
	if (ofThreads.includes(kind) && unit === "nanoseconds") {
		const threads = +(value / 1e9 / seconds).toPrecision(value > 1e8 * seconds ? 3 : 2);
		return `${threads} ${threads === 1 ? "thread" : "threads"}`;
	}
	return amount(value / seconds, unit) + "/s";
}

export function percent(share) {
	const p = 100 * share;
	return (p >= 9.995 ? p.toFixed(1) : p.toFixed(2)) + " %";
}

// searcher returns a test for names: a regular expression if the text is one, and otherwise the text itself. Case counts only
// where the text has capitals.
export function searcher(text) {
	if (!text) return null;
	const flags = /[A-Z]/.test(text) ? "" : "i";
	try {
		const expression = new RegExp(text, flags);
		return (name) => expression.test(name);
	} catch {
		const plain = flags ? text.toLowerCase() : text;
		return (name) => (flags ? name.toLowerCase() : name).includes(plain);
	}
}
