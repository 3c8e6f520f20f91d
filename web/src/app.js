// The page: in a file that record, report or compare wrote, or of a running agent (serve).
import "uplot/dist/uPlot.min.css";
import "./style.css";
import {PROCESS, THREAD, callRates, decode, during, percent, perSecond, regroup, searcher, walk} from "./model.js";
import {Flame, differences, legend} from "./flame.js";
import {Timeline, clock} from "./timeline.js";
import {heatMap} from "./heat.js";
import {Lanes} from "./lanes.js";
import {slowTable} from "./slow.js";
import {methodTable, sidePanel} from "./tables.js";
import {serviceCards} from "./services.js";
import {State} from "./state.js";
import {el, fill} from "./dom.js";

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'");

const selectedTimes = (state) => Object.fromEntries(["from", "to", "basefrom", "baseto"].map((k) => [k, Number(state.get(k))]));

// A source has what a page shows: kinds(), load(state) for a Flame, services(state), files, commands(state).
class FileSource {
	constructor(data) {
		this.data = data;
		this.name = data.title;
		this.live = false;
	}

	async kinds() {
		return this.data.kinds.map((k) => ({name: k.kind, title: k.title}));
	}

	#whole(state) {
		return this.data.kinds.find((k) => k.kind === state.get("kind")) ?? this.data.kinds[0];
	}

	async load(state) {
		return during(this.#whole(state), selectedTimes(state));
	}

	async services() {
		return null;
	}

	// timeline is that of the whole recording. A time can be selected if the file has values by time.
	async timeline(state) {
		const doc = this.#whole(state);
		return doc.timeline ? {...doc, timeline: {...doc.timeline, selectable: Boolean(doc.timeline.parts)}} : null;
	}

	commands() {
		return this.data.commands ?? [];
	}

	downloads() {
		return (this.data.files ?? []).map((file) => el("button", {
			onclick: () => {
				const text = document.getElementById(file.id).textContent.trim();
				const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
				const url = URL.createObjectURL(new Blob([bytes], {type: "application/octet-stream"}));
				const a = el("a", {href: url, download: file.name});
				a.click();
				setTimeout(() => URL.revokeObjectURL(url), 10_000);
			},
		}, `Download ${file.name}`));
	}
}

class AgentSource {
	constructor() {
		this.name = "vmprof-agent";
		this.live = true;
	}

	async #get(path, parameters) {
		const query = new URLSearchParams(Object.entries(parameters).filter(([, v]) => v));
		const response = await fetch(`api/v1/${path}?${query}`);
		if (!response.ok) throw new Error((await response.text()).trim() || response.statusText);
		return response.json();
	}

	#selection(state) {
		return Object.fromEntries(["kind", "service", "pid", "from", "to", "basefrom", "baseto"].map((k) => [k, state.get(k)]));
	}

	async kinds() {
		return (await this.#get("kinds", {})).kinds;
	}

	load(state) {
		return this.#get("flame", this.#selection(state));
	}

	services(state) {
		const {kind, from, to, basefrom, baseto} = this.#selection(state);
		return this.#get("services", {kind, from, to, basefrom, baseto});
	}

	// course is when the samples of the selected time were taken.
	course(state) {
		return this.#get("course", this.#selection(state));
	}

	// why is how the selected time differs from the baseline, or the last windows from those before.
	why(state) {
		return this.#get("why", this.#selection(state));
	}

	// timeline is what was used in the last minutes, or hours if there is a history; null if that is not known.
	async timeline(state) {
		const {kind, service, from, basefrom} = this.#selection(state);
		const span = Number(state.get("span"));
		const begin = span > 0 ? Math.min(...[Date.now() - 1000 * span, from, basefrom].filter(Boolean)) : "";
		const answer = await this.#get("timeline", {kind, service, from: Math.floor(begin)});
		return answer.start.length > 1 ? {...answer, timeline: answer} : null;
	}

	commands(state, doc, history) {
		const {kind, service, from, to} = this.#selection(state);
		if (history && (from || to)) { // what is recorded now is something else
			const seconds = (ms) => String(Math.floor(ms / 1000));
			const time = {from: from ? seconds(from) : "24h", ...(to ? {to: seconds(to)} : {}), ...(service ? {service} : {})};
			const view = {alloc: " --view=allocs", lock: " --view=locks"}[doc.kind] ?? "";
			return [`vmprof-agent report ${Object.entries(time).map(([name, value]) => `--${name}=${quoted(value)}`).join(" ")}${view}`,
				`go tool pprof -http=: ${quoted(new URL(`profiles/${kind || doc.kind}?${new URLSearchParams(time)}`, location.href.split("#")[0]).href)}`];
		}
		const pid = state.get("pid") || (state.get("service") && doc.processes?.length === 1 ? String(doc.processes[0].pid) : "");
		const of = pid && pid !== "0" ? ` -p ${quoted(pid)}` : "";
		return [`vmprof-agent record${of} -e ${quoted(doc.kind)} -d 30 -o profile.html`,
			`go tool pprof -http=: ${quoted(new URL(`profiles/${doc.kind}?seconds=30` + (of ? `&pid=${pid}` : ""), location.href.split("#")[0]).href)}`];
	}

	downloads(state, doc) {
		return [el("a", {href: `profiles/${encodeURIComponent(doc.kind)}?seconds=10`, class: "button"}, "Record 10 s as .pb.gz")];
	}
}

class Page {
	constructor(source) {
		this.source = source;
		this.state = new State();
		this.all = false;
		this.build();
		this.state.onChange(() => this.refresh());
	}

	build() {
		const main = document.getElementById("app");
		this.title = el("h1", {}, this.source.name);
		this.about = el("p", {class: "dim"});
		this.kindTabs = el("div", {class: "tabs", role: "group", "aria-label": "What to show"});
		this.search = el("input", {type: "search", id: "search", placeholder: "Search methods (/)", "aria-label": "Search methods", autocomplete: "off", spellcheck: "false"});
		this.searched = el("span", {class: "dim", role: "status"});
		this.processes = el("input", {type: "checkbox", id: "processes"});
		this.threads = el("input", {type: "checkbox", id: "threads"});
		this.upward = el("input", {type: "checkbox", id: "upward"});
		this.resetButton = el("button", {onclick: () => this.flame.reset()}, "Reset zoom");
		this.downloads = el("span", {class: "downloads"});
		// Its place is taken from the beginning, so that nothing moves when the services are there.
		this.services = el("nav", {class: "services", "aria-label": "Services", hidden: !this.source.live}, el("h2", {}, "Services"), el("p", {class: "dim"}, "Loading\u2026"));
		this.timelineBox = el("section", {class: "timeline", "aria-label": "Timeline", hidden: true});
		this.range = el("p", {class: "range", hidden: true});
		this.heat = el("section", {class: "heat", "aria-label": "Samples by 20 ms", hidden: true});
		this.laneBox = el("section", {class: "lanes", "aria-label": "Threads over time", hidden: true});
		this.slowBox = el("section", {class: "slow", "aria-label": "Slow calls", hidden: true});
		this.marks = el("details", {class: "marks", hidden: true});
		this.why = el("section", {class: "why", "aria-label": "What changed", hidden: true});
		this.message = el("p", {class: "message", role: "status", hidden: true});
		this.graph = el("div", {class: "graph", id: "flamegraph"});
		this.table = el("section", {class: "methods", "aria-label": "Methods"});
		this.side = el("aside", {class: "side", "aria-label": "Details"});
		this.notes = el("details", {class: "notes", hidden: true});
		this.verdict = el("details", {class: "notes verdict", hidden: true});
		const check = (input, text) => el("label", {class: "check"}, input, " " + text);
		this.legend = el("p", {class: "legend"});
		this.spans = el("div", {class: "tabs spans", role: "group", "aria-label": "Length of the timeline", hidden: true});
		fill(main,
			el("header", {}, el("div", {class: "titles"}, this.title, this.about), this.links()),
			this.kindTabs,
			el("div", {class: "tools"}, this.search, this.searched, check(this.processes, "by process"), check(this.threads, "by thread"),
				check(this.upward, "root at the bottom"), this.resetButton, this.downloads),
			el("div", {class: "columns" + (this.source.live ? " live" : "")}, this.services,
				el("div", {class: "center"}, this.spans, this.timelineBox, this.marks, this.range, this.heat, this.laneBox, this.slowBox, this.why, this.message, this.verdict, this.graph, this.legend, this.table, this.notes), this.side));
		this.flame = new Flame(this.graph, (node) => {
			if (node.kind === PROCESS || node.kind === THREAD || node.kind === "root") this.state.set({sel: ""});
			else this.state.set({sel: node.name});
		});
		this.timeline = new Timeline(this.timelineBox, (from, to, isBaseline) => this.state.set(isBaseline ? {basefrom: from, baseto: to} : {from, to}, true));
		this.lanes = new Lanes(this.laneBox, {
			onThread: (thread) => this.state.set({thread}, true),
			onZoom: (from, to) => this.state.set({zoom: from === undefined ? "" : `${from.toFixed(2)}-${to.toFixed(2)}`}, true),
			onIdle: (idle) => this.state.set({idle: idle ? "1" : ""}, true),
		});
		let typing;
		this.search.addEventListener("input", () => {
			clearTimeout(typing);
			typing = setTimeout(() => this.state.set({q: this.search.value}), 150);
		});
		this.processes.addEventListener("change", () => this.state.set({processes: this.processes.checked ? "1" : "0"}));
		this.threads.addEventListener("change", () => this.state.set({threads: this.threads.checked ? "1" : ""}));
		this.upward.addEventListener("change", () => this.state.set({upward: this.upward.checked ? "1" : ""}));
		document.addEventListener("keydown", (event) => {
			if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
				event.preventDefault();
				this.search.focus();
			}
			if (event.key === "Escape" && event.target === this.search) {
				this.search.value = "";
				this.state.set({q: ""});
			}
		});
		if (this.source.live) setInterval(() => this.tick(), 10_000);
	}

	links() {
		if (!this.source.live) return null;
		const link = (href, text) => el("a", {href}, text);
		return el("nav", {class: "links", "aria-label": "Other pages"}, link("ui/", "pprof"), link("versions", "Code versions"), link("plain", "Without scripts"), link("metrics", "Metrics"));
	}

	// tick loads the last windows, unless somebody reads.
	tick() {
		if (!this.servicesNow || document.hidden || this.state.get("from") || [this.graph, this.laneBox, this.slowBox].some((e) => e.matches(":hover") || e.contains(document.activeElement))) return;
		this.loaded = "";
		this.refresh();
	}

	async refresh() {
		const state = this.state;
		const key = ["kind", "service", "pid", "from", "to", "basefrom", "baseto", "span"].map((k) => state.get(k)).join("\n");
		try {
			if (key !== this.loaded) {
				if (this.loaded !== "") this.say("Loading\u2026"); // tick loads the same again
				this.loaded = key;
				const [kinds, doc] = await Promise.all([this.kinds ?? this.source.kinds(), this.source.load(state)]);
				if (key !== this.loaded) return; // another choice since
				this.kinds = kinds;
				this.doc = doc;
				this.root = decode(doc);
				this.rates = callRates(doc);
				this.views = new Map();
				this.events = new Map();
				this.all = false;
				if (this.source.live) { // the flame graph comes first, and what is around it when it is there
					this.message.hidden = true;
					this.showGraph();
					document.body.dataset.drawn ??= String(Math.round(performance.now())); // for tests
				}
				const [services, past] = await Promise.all([this.source.services(state), this.source.timeline(state)]);
				if (key !== this.loaded) return;
				this.servicesNow = services;
				this.past = past;
			}
			this.message.hidden = true;
		} catch (error) {
			this.loaded = null;
			this.say(`This cannot be shown: ${error.message}`);
			if (!this.doc) return;
		}
		this.show();
		document.body.dataset.ready = "yes"; // for tests
	}

	// say shows a message in place of the flame graph, or above an older one.
	say(text) {
		this.message.hidden = false;
		fill(this.message, text);
	}

	// showGraph draws the flame graph, and returns what it drew: the tree, the one thread that it is of, and the search.
	showGraph() {
		const {state, doc} = this;
		if (document.activeElement !== this.search) this.search.value = state.get("q");
		const several = this.root.children.length > 1;
		const processes = state.get("processes") ? state.get("processes") === "1" : several;
		this.processes.checked = processes;
		this.threads.checked = state.get("threads") === "1";
		this.upward.checked = state.get("upward") === "1";
		const only = state.get("thread");
		const drawn = this.view({processes, threads: this.threads.checked, only});
		if (this.drawn !== drawn || this.drawnUpward !== this.upward.checked) {
			this.flame.show(doc, drawn, this.rates, {inverted: !this.upward.checked});
			this.drawn = drawn;
			this.drawnUpward = this.upward.checked;
			this.searchedFor = null;
		}
		const test = searcher(state.get("q"));
		if (this.searchedFor !== state.get("q")) {
			this.searchedFor = state.get("q");
			const share = this.flame.search(test);
			fill(this.searched, test ? `found in ${percent(share)}` : "");
		}
		return {drawn, only, test};
	}

	// view is the tree of the document in a grouping.
	view(grouping) {
		const key = JSON.stringify(grouping);
		if (!this.views.has(key)) this.views.set(key, regroup(this.root, grouping));
		return this.views.get(key);
	}

	show() {
		const {state, doc} = this;
		const {drawn, only, test} = this.showGraph();
		document.title = `${state.get("service") || this.source.name}: ${doc.title}`;
		fill(this.kindTabs, ...this.kinds.map((k) => el("button", {"aria-pressed": String(k.name === doc.kind), onclick: () => state.set({kind: k.name, sel: ""}, true)}, k.title)));
		this.kindTabs.hidden = this.kinds.length < 2;
		const start = doc.start ? new Date(doc.start) : null;
		const when = start ? `${start.toLocaleString("sv")}, ` : "";
		fill(this.about, `${when}${+doc.seconds.toPrecision(4)} s`, doc.base ? `, compared with ${+doc.base.seconds.toPrecision(4)} s` : "", this.root.value > 0 ? `: ${perSecond(this.root.value, doc)}` : "");
		const marked = selectedTimes(state);
		this.timeline.show(this.past ?? doc, marked);
		this.showSpans();
		this.showMarks();
		this.showRange(marked);
		this.showHeat(marked);
		const zoom = state.get("zoom").split("-").map(Number);
		this.lanes.show(doc, {only, idle: state.get("idle") === "1", zoom: zoom.length === 2 && zoom[0] < zoom[1] ? zoom : null, selected: marked.from && marked.to ? [marked.from, marked.to] : null});
		this.showSlow(only);
		this.showWhy(marked);
		this.showServices();
		if (doc.base && !(drawn.base > 0) && drawn.value > 0) {
			this.message.hidden = false;
			fill(this.message, "The baseline has no samples: nothing was recorded then, or its stacks were not kept.");
		}
		if (!(drawn.value > 0 || drawn.base > 0)) {
			this.message.hidden = false;
			fill(this.message, this.source.live ? "Nothing was recorded in this time. The first samples appear about ten seconds after the agent has started." : "The recording has no samples of this kind.");
		}
		const onSelect = (name) => state.set({sel: name}, true);
		methodTable(this.table, doc, drawn, this.rates, {test, all: this.all, selected: state.get("sel"), onSelect, onAll: () => {
			this.all = true;
			this.show();
		}});
		sidePanel(this.side, doc, this.view({processes: true, threads: true, only}), this.rates, {selected: state.get("sel"), thread: only, onSelect,
			onThread: (name) => state.set({thread: name === only ? "" : name}, true), commands: this.source.commands(state, doc, this.past?.history),
			events: state.get("sel") ? this.eventsOf() : []});
		fill(this.downloads, ...this.source.downloads(state, doc));
		this.notes.hidden = !doc.notes?.length;
		if (doc.notes?.length) fill(this.notes, el("summary", {}, `Notes (${doc.notes.length})`), el("ul", {}, ...doc.notes.map((n) => el("li", {}, n))));
		const text = this.source.data?.text;
		this.verdict.hidden = !text;
		if (text) {
			if (!this.verdict.firstChild) this.verdict.open = true;
			fill(this.verdict, el("summary", {}, "Comparison"), el("pre", {tabindex: "0"}, text));
		}
		this.showLegend(drawn);
	}

	// eventsOf returns the allocations and waits of what is shown, as far as they are loaded. Others are loaded and shown later.
	eventsOf() {
		return ["alloc", "lock"].filter((kind) => this.kinds.some((k) => k.name === kind)).map((kind) => {
			if (kind === this.doc.kind) return {doc: this.doc, root: this.root};
			const {events} = this;
			if (!events.has(kind)) {
				events.set(kind, null);
				this.source.load(this.state.with({kind})).then((doc) => {
					events.set(kind, doc.kind === kind ? {doc, root: decode(doc)} : null);
					if (events === this.events) this.show();
				}, () => {}); // the rest of the panel does not need it
			}
			return events.get(kind);
		}).filter(Boolean);
	}

	showLegend(drawn) {
		const entry = (text, colour) => {
			const swatch = el("span", {class: colour ? "swatch" : "swatch hatch"});
			if (colour) swatch.style.background = colour;
			return el("span", {}, swatch, text);
		};
		let hatched = false;
		for (const n of walk(drawn)) hatched ||= n.approx >= 50;
		fill(this.legend, ...(this.doc.base ? differences : legend).map(([, text, colour]) => entry(text, colour)), hatched && entry("approximate"),
			this.doc.base && el("span", {}, "Width: mean of both shares."));
	}

	// showSpans offers lengths of the timeline, if there is a history.
	showSpans() {
		this.spans.hidden = !this.past?.history;
		if (this.spans.hidden) return;
		const now = this.state.get("span");
		fill(this.spans, ...[["300", "5 min"], ["3600", "1 h"], ["21600", "6 h"], ["", "24 h"]].map(([span, text]) =>
			el("button", {"aria-pressed": String(span === now), onclick: () => this.state.set({span}, true)}, text)));
	}

	// showMarks lists what the timeline marks, the last first.
	showMarks() {
		const marks = this.past?.marks ?? [];
		this.marks.hidden = marks.length === 0;
		const most = 50;
		const symbols = {start: "\u250a", gc: "\u25ac", lost: "\u25a8", gap: "\u25a8"};
		fill(this.marks, el("summary", {}, `Marks (${marks.length})`), el("ul", {}, ...marks.slice(-most).reverse().map((m) => el("li", {}, el("span", {class: `mark ${m.kind}`, "aria-hidden": "true"}, symbols[m.kind] ?? ""),
			el("button", {class: "more", title: "Select what follows", onclick: () => this.state.set({from: m.from, to: ""}, true)}, clock(m.from)), ` ${m.text}`))),
			marks.length > most ? el("p", {class: "dim"}, `and ${marks.length - most} before`) : null);
	}

	// showRange says which times are shown, and offers what can be done with them.
	showRange({from, to, basefrom, baseto}) {
		this.range.hidden = this.timelineBox.hidden || this.past?.timeline.selectable === false;
		if (this.range.hidden) return;
		const set = (text, changes) => el("button", {class: "more", onclick: () => this.state.set(changes, true)}, text);
		const span = (a, b) => `${a ? clock(a) : "the beginning"} to ${b ? clock(b) : this.source.live ? "now" : "the end"}`;
		const baseline = basefrom || baseto;
		fill(this.range,
			from || to || baseline ? el("span", {}, `Selected: ${span(from || baseto, to)}.`) : el("span", {class: "dim"}, "Drag over the timeline to select a time. Hold Shift to set a baseline."),
			baseline ? el("span", {}, `Baseline: ${span(basefrom, baseto)}.`) : null,
			from && to && !baseline ? set("Compare with the time before", {basefrom: Math.max(2 * from - to, 1), baseto: from}) : null,
			(from || to) && !baseline ? set("Make it the baseline", {basefrom: from || 1, baseto: to || Date.now(), from: "", to: ""}) : null,
			baseline ? set("Remove the baseline", {basefrom: "", baseto: ""}) : null,
			from || to ? set("Show all", {from: "", to: "", basefrom: "", baseto: "", why: ""}) : null);
	}

	// showHeat shows single samples of less than a minute.
	showHeat({from, to}) {
		const {state} = this;
		this.heat.hidden = !this.source.live || this.doc.kind !== "cpu" || !(from && to && to - from <= 60_000);
		const key = this.heat.hidden ? "" : ["service", "pid", "from", "to"].map((k) => state.get(k)).join("\n");
		if (this.heatOf === key) return;
		this.heatOf = key;
		fill(this.heat);
		if (key) this.source.course(state).then((answer) => this.heatOf === key && heatMap(this.heat, answer), (error) => this.heatOf === key && fill(this.heat, el("p", {}, error.message)));
	}

	// showSlow shows the slowest calls of a method, if one was followed.
	showSlow(only) {
		const {state, doc} = this;
		slowTable(this.slowBox, doc.slow, {only, open: state.get("call"),
			onOpen: (call) => state.set({call}),
			onThread: (thread) => state.set({thread}, true),
			onTime: doc.lanes?.length ? (from, to) => state.set({zoom: `${(from - (to - from) / 10).toFixed(2)}-${(to + (to - from) / 10).toFixed(2)}`}, true) : null,
			onSelect: (sel) => state.set({sel}, true)});
	}

	// showWhy says what changed. It is asked for: the statistics take the agent about as long as a flame graph.
	showWhy({from, to, basefrom, baseto}) {
		const {state} = this;
		this.why.hidden = !this.source.live || this.range.hidden || this.doc.kind === "calls";
		if (this.why.hidden) return;
		const wanted = from || to || basefrom || baseto || state.get("why");
		if (!wanted) {
			this.explained = null;
			fill(this.why, el("button", {class: "more", onclick: () => state.set({why: "1"}, true)}, "What changed in the last minutes?"));
			return;
		}
		const key = ["kind", "service", "pid", "from", "to", "basefrom", "baseto"].map((k) => state.get(k)).join("\n");
		if (this.explained === key) return;
		this.explained = key;
		fill(this.why, el("h2", {}, "What changed"), el("p", {class: "dim", role: "status"}, "Comparing\u2026"));
		this.source.why(state).then((answer) => this.explained === key && this.drawWhy(answer), (error) => {
			if (this.explained === key) fill(this.why, el("h2", {}, "What changed"), el("p", {}, `This cannot be compared: ${error.message}`));
		});
	}

	drawWhy(answer) {
		const times = Object.fromEntries(["from", "to", "basefrom", "baseto"].map((k) => [k, answer[k]]));
		const select = (changes) => this.state.set({...times, ...changes}, true);
		const sign = (verdict) => el("span", {class: `sign ${{more: "up", less: "down"}[verdict] ?? ""}`, "aria-hidden": "true"}, {more: "\u25b2", less: "\u25bc", same: "=", undecided: "?"}[verdict]);
		const code = (text) => el("code", {}, text);
		const title = (k) => this.kinds.find((other) => other.name === k)?.title ?? k;
		fill(this.why, el("h2", {}, "What changed"),
			answer.to ? el("p", {class: "dim"}, `${clock(answer.from)} to ${clock(answer.to)}, compared with ${clock(answer.basefrom)} to ${clock(answer.baseto)}`) : null,
			el("ul", {},
				...answer.findings.map((f) => el("li", {}, sign(f.verdict), el("span", {},
					el("button", {class: "name", title: "Show in the flame graph", onclick: () => select({sel: f.method, kind: f.kind})}, code(f.method)),
					f.caller ? " under " : null, f.caller ? code(f.caller) : null, `: ${f.text}`))),
				...answer.whole.map((f) => el("li", {}, sign(f.verdict), el("span", {}, f.text, " ",
					f.kind !== this.doc.kind ? el("button", {class: "more", "aria-label": `Show ${title(f.kind)}`, onclick: () => select({kind: f.kind, sel: ""})}, "Show") : null)))),
			...answer.notes.map((n) => el("p", {class: "dim"}, `${n}.`)));
	}

	showServices() {
		if (this.servicesNow) serviceCards(this.services, this.servicesNow, {service: this.state.get("service"), pid: this.state.get("pid"),
			onSelect: (changes) => this.state.set({sel: "", thread: "", ...changes}, true)});
	}
}

const inside = document.getElementById("data");
const page = new Page(inside ? new FileSource(JSON.parse(inside.textContent)) : new AgentSource());
page.refresh();
