import assert from "node:assert/strict";
import {test} from "node:test";
import {amount, around, callRates, callTargets, change, decode, during, interval, laneRows, laneRuns, laneShares, leaves, methods, perSecond, plusMinus, regroup, searcher, threadGroups} from "./src/model.js";

// Two processes, three thread groups; hot is called by run and by itself.
const doc = {
	format: 1, kind: "cpu", unit: "nanoseconds", seconds: 2, effect: 1,
	names: ["", "shop (pid 1)", "shop (pid 2)", "http-*", "gc", "run", "hot", "A.java", "mark"],
	frameKinds: ["marker", "process", "thread", "managed", "stub", "vm"],
	tierNames: ["interpreted", "C1", "C2", "compiled", "inlined"],
	frames: {name: [1, 2, 3, 4, 5, 6, 8], file: [0, 0, 0, 0, 7, 7, 0], kind: [1, 1, 2, 2, 3, 3, 5]},
	nodes: {
		parent: [-1, 0, 1, 2, 3, -1, 5, 6, 0, 8],
		frame: [0, 2, 4, 5, 5, 1, 2, 4, 3, 6],
		self: [0, 0, 10, 30, 20, 0, 0, 20, 0, 20],
		count: [0, 0, 1, 3, 2, 0, 0, 2, 0, 2],
		approx: [0, 0, 0, 50, 100, 0, 0, 0, 0, 0],
		line: [0, 0, 3, 4, 5, 0, 0, 6, 0, 0],
		tiers: [0, 0, [0, 0, 100, 0, 0], [50, 0, 50, 0, 0], 0, 0, 0, [100, 0, 0, 0, 0], 0, 0],
	},
	calls: {caller: [5, 6], callee: [6, 6], perSecond: [1000, 500]},
};

test("decode adds up", () => {
	const root = decode(doc);
	assert.equal(root.value, 100);
	assert.equal(root.children.reduce((sum, c) => sum + c.value, 0), 100);
	assert.throws(() => decode({...doc, format: 2}), /unknown format 2/);
});

test("regroup merges what is equal without processes and threads", () => {
	const root = regroup(decode(doc), {processes: false, threads: false});
	assert.deepEqual(root.children.map((c) => [c.name, c.value]).sort(), [["mark", 20], ["run", 80]]);
	const run = root.children.find((c) => c.name === "run");
	assert.equal(run.self, 30);
	assert.equal(run.line, 3, "the line of the larger part");
	assert.deepEqual(run.tiers, [25, 0, 75, 0, 0]);
	const only = regroup(decode(doc), {processes: false, threads: true, only: "gc"});
	assert.equal(only.value, 20);
	assert.deepEqual(only.children.map((c) => c.name), ["gc"]);
});

test("methods count recursion once", () => {
	const rows = methods(regroup(decode(doc), {processes: false, threads: false}));
	assert.deepEqual(rows.map((m) => [m.name, m.self, m.total]), [["hot", 50, 50], ["run", 30, 80], ["mark", 20, 20]]);
});

test("around finds callers, callees and threads", () => {
	const hot = around(decode(doc), "hot");
	assert.deepEqual([hot.own.value, hot.all.value], [50, 50]);
	assert.deepEqual(hot.callers.map((c) => [c.name, c.value]), [["run", 50]]);
	assert.deepEqual(hot.callees, []);
	assert.deepEqual(hot.threads.map((c) => [c.name, c.value]), [["http-*", 50]]);
	assert.deepEqual(around(decode(doc), "run").callers.map((c) => c.name), ["[none]"]);
	assert.deepEqual(threadGroups(decode(doc)).map((g) => [g.name, g.value]), [["http-*", 80], ["gc", 20]]);
});

test("a baseline has sums of its own", () => {
	const self = [0, 0, 0, 30, 0, 0, 0, 0, 0, 170];
	const root = decode({...doc, base: {seconds: 1, self, count: self.map((v) => v / 10)}});
	assert.deepEqual([root.value, root.base, root.baseCount], [100, 200, 20]);
	const hot = around(regroup(root, {processes: true, threads: true}), "hot");
	assert.deepEqual([hot.all.base, hot.all.baseCount, hot.own.base, hot.own.baseCount], [30, 3, 30, 3]);
	assert.equal(change(hot.all, root).before, 0.15);
	assert.deepEqual(threadGroups(root).map((g) => g.name), ["gc", "http-*"], "the larger of both shares first");
	const mark = methods(root).find((m) => m.name === "mark");
	assert.deepEqual([mark.baseSelf, mark.baseSelfN, mark.baseTotal], [170, 17, 170]);
});

test("call rates are by callee and by pair", () => {
	const rates = callRates(doc);
	assert.equal(rates.of("hot"), 1500);
	assert.equal(rates.between("run", "hot"), 1000);
	assert.equal(rates.of("run"), undefined);
	assert.equal(callRates({}), null);
});

test("a time has its own values, and a baseline", () => {
	const nodes = {parent: [-1, 0, 0], frame: [0, 1, 2], self: [0, 60, 40], count: [0, 6, 4], approx: [0, 0, 0], line: [0, 0, 0], tiers: [0, 0, 0]};
	const parts = {start: [0, 1000, 2000], end: [1000, 2000, 3000], seconds: [1, 1, 1], node: [[1], [1, 1], [2]], count: [[4], [2, 1], [3]], each: 10};
	const all = {...doc, nodes, timeline: {parts}, calls: {}};
	assert.equal(during(all, {}), all);
	const late = during(all, {from: 900, to: 3000});
	assert.deepEqual([late.nodes.self, late.nodes.count, late.seconds, late.start, late.base, late.calls], [[0, 20, 40], [0, 2, 4], 2, 1000, undefined, undefined]);
	assert.deepEqual(during(all, {from: 1100, to: 1200}).nodes.self, [0, 20, 10], "less than a part");
	const both = during({...all, timeline: {parts: {...parts, each: undefined, self: [[44], [20, 10], [30]]}}}, {basefrom: 1, baseto: 1000});
	assert.deepEqual([both.base.self, both.base.seconds, both.nodes.self, both.seconds], [[0, 44, 0], 1, [0, 20, 40], 2]);
	assert.equal(decode(both).base, 44);
	assert.equal(during(doc, {from: 1}), doc, "without parts");
});

test("targets of virtual calls are by place", () => {
	const names = ["", "run", "A.get", "B.get", "log"];
	const calls = {caller: [1, 1, 1, 1, 1, 1], callee: [2, 3, 2, 4, 4, 2], line: [5, 5, 5, 9, 0, 9], offset: [7, 7, 7, -1, -1, -1], perSecond: [10, 30, 1, 4, 9, 3]};
	const sites = callTargets({names, calls}, "run");
	assert.deepEqual(sites.map((s) => [s.line, s.isOne, s.rate]), [[5, true, 41], [9, false, 7]]);
	assert.deepEqual(sites[0].targets, [{name: "B.get", rate: 30}, {name: "A.get", rate: 11}]);
	assert.deepEqual(callTargets({names, calls}, "A.get"), []);
	assert.deepEqual(callTargets({}, "run"), []);
	assert.deepEqual(callTargets(doc, "run"), [], "of files without places");
});

test("leaves are what events are about", () => {
	const node = (name, kind, value, ...children) => ({name, kind, value, n: 1, base: 0, baseCount: 0, children});
	const root = node("all", "root", 10, node("make", "managed", 7, node("byte[]", "class", 4), node("copy", "managed", 3, node("byte[]", "class", 1), node("int[]", "class", 2))), node("int[]", "class", 3));
	assert.deepEqual(leaves(root, "make").map((l) => [l.name, l.value]), [["byte[]", 5], ["int[]", 2]]);
	assert.deepEqual(leaves(root, "int[]"), []);
});

test("intervals", () => {
	assert.equal(interval(0.5, 0), null);
	assert.ok(Math.abs(interval(0.5, 50) - 0.098) < 0.001); // 50 of 100 samples
	assert.equal(interval(1, 100), 0.03); // none of 100 samples was of anything else
	assert.equal(interval(0.5, 50, 0), null); // parts have no intervals
	assert.deepEqual([plusMinus(null), plusMinus(null, 0), plusMinus(0.098), plusMinus(0.123)], ["", "?", "9.80", "12"]);
	const unknown = change({value: 700, n: 70, base: 0, baseCount: 0}, {value: 1000, n: 100, base: 2000, baseCount: 100}, {effect: 0});
	assert.ok(!unknown.sure && unknown.noise === Infinity);
	const root = {value: 1000, n: 100, base: 2000, baseCount: 100};
	const of = (n, baseCount) => change({value: 10 * n, n, base: 20 * baseCount, baseCount}, root);
	assert.ok(of(70, 40).sure && of(30, 0).sure);
	assert.ok(!of(60, 40).sure && !of(52, 48).sure && !of(100, 99).sure && !of(1, 0).sure);
	assert.ok(Math.abs(of(60, 40).delta - 0.2) < 1e-9);
});

test("verdicts of a comparison decide what is sure", () => {
	const root = {value: 1000, n: 100, base: 2000, baseCount: 100};
	const doc = {verdicts: {total: {slow: "more", other: "same"}, own: {slow: "undecided"}}};
	const of = (name, kind) => change({name, value: 600, n: 60, base: 800, baseCount: 40}, root, doc, kind);
	assert.deepEqual([of("slow").verdict, of("slow").sure, of("slow").more], ["more", true, true]);
	assert.deepEqual([of("slow", "own").verdict, of("slow", "own").sure], ["undecided", false]);
	assert.deepEqual([of("other").verdict, of("unknown").verdict, of("unknown").sure], ["same", "undecided", false]);
});

test("amounts", () => {
	for (const [value, unit, want] of [[1.5e9, "nanoseconds", "1.5 s"], [2e6, "nanoseconds", "2 ms"], [999, "count", "999"], [12345, "count", "12.3k"], [1.5e6, "bytes", "1.5 MB"], [0, "bytes", "0 B"]]) {
		assert.equal(amount(value, unit), want);
	}
});

test("times of threads are so many threads on average", () => {
	for (const [value, kind, want] of [[5.01e10, "wall", "5.01 threads"], [1e10, "offcpu", "1 thread"], [4.321e8, "lock", "0.043 threads"], [2e10, "cpu", "2 CPUs"], [2e8, "safepoint", "20 ms/s"]]) {
		assert.equal(perSecond(value, {unit: "nanoseconds", kind, seconds: 10}), want);
	}
	assert.equal(perSecond(2e7, {unit: "bytes", kind: "alloc", seconds: 10}), "2 MB/s");
});

test("search takes expressions and plain text", () => {
	assert.ok(searcher("cart.*total")("com.Cart.total"));
	assert.ok(!searcher("Cart")("com.cart"));
	assert.ok(searcher("f(")("f(int)"));
	assert.equal(searcher(""), null);
});

test("lanes are rows of all windows, in order", () => {
	assert.deepEqual(laneRuns("2a(b70a30)()", ["running", "idle"]), [{steps: 2, parts: [{cause: "running", share: 1}]},
		{steps: 1, parts: [{cause: "idle", share: 0.7}, {cause: "running", share: 0.3}]}, {steps: 1, parts: []}]);
	const window = (start, runs) => ({pid: 1, process: "java (pid 1)", start, step: 100, steps: 10, causes: ["running", "idle", "lock"], tid: [8, 9, 10], thread: ["exec-1", "main", "exec-2"],
		group: ["exec-*", "main", "exec-*"], from: [0, 2, 0], runs});
	const lanes = [window(0, ["10c", "8a", "10b"]), window(1000, ["5a5c", "2a", "10b"])];
	const all = laneRows(lanes);
	assert.deepEqual([all.start, all.end, all.hidden, all.leftOut, all.noRoom, all.rows.map((r) => r.thread)], [0, 2000, 1, 0, null, ["exec-1", "main"]]);
	assert.equal(laneRows([lanes[0], {...lanes[1], noRoom: 3}]).noRoom, 1000);
	assert.deepEqual(laneRows(lanes, {idle: true}).rows.map((r) => r.thread), ["exec-1", "exec-2", "main"], "a group stays together");
	assert.deepEqual(laneRows(lanes, {only: "main"}).rows.map((r) => r.thread), ["main"]);
	const [exec, main] = all.rows;
	assert.deepEqual([exec.all, exec.running, main.all], [2000, 500, 1000]);
	assert.deepEqual(laneShares(exec, 900, 1300), [{cause: "running", share: 0.75}, {cause: "lock", share: 0.25}]);
	assert.deepEqual(laneShares(main, 0, 200), [], "before it began");
	assert.deepEqual(laneShares(main, 900, 1300), [{cause: "running", share: 0.5}]);
});
