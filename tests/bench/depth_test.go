package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// ticks is a reading of so many samples of 2,000 ns and other ticks of 150 ns.
func ticks(samples, others uint64) reading {
	r := reading{runs: samples + others, time: time.Duration(2000*samples + 150*others)}
	r.counts[bpf.SamplesAttempted] = samples
	r.counts[bpf.SamplesDelivered] = samples - samples/10
	r.counts[bpf.RingBytes] = 88 * r.counts[bpf.SamplesDelivered]
	r.counts[bpf.NsTotal] = 1900 * samples
	r.counts[bpf.SamplesJava] = samples / 2
	r.counts[bpf.FramesJava] = 15 * (samples / 2)
	r.counts[bpf.SamplesLinked] = samples / 4
	return r
}

func TestNanosPerSample(t *testing.T) {
	for name, tt := range map[string]struct{ work, rest reading }{
		"a guest that rests":       {ticks(3000, 200), ticks(0, 400)},
		"one that does not quite":  {ticks(3000, 200), ticks(40, 360)},
		"a busy machine":           {ticks(300, 3000), ticks(0, 400)},
		"a guest that has it all":  {ticks(3000, 0), ticks(0, 400)},
		"more ticks while resting": {ticks(300, 100), ticks(1, 4000)},
	} {
		if got := nanosPerSample(tt.work, tt.rest); math.Abs(got-2000) > 1e-6 {
			t.Errorf("%s: a sample takes %v ns, want 2000", name, got)
		}
	}
	if got := nanosPerSample(ticks(0, 100), ticks(0, 400)); got != 0 {
		t.Errorf("a guest without samples has one of %v ns", got)
	}
}

func TestCostOfSamples(t *testing.T) {
	work, rest := ticks(1000, 1000), ticks(0, 400)
	got, err := costOfSamples(modeChain, work, rest)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(got.nanos-2000) > 1e-6 || got.own != 1900 || got.bytes != 88 || got.frames != 15 || got.walked != 0.75 {
		t.Errorf("got %+v", got)
	}
	// The empty program knows no processes: all its ticks are alike.
	if got, err := costOfSamples(modeEmpty, work, rest); err != nil || got != (sampleCost{nanos: 1075}) {
		t.Errorf("the empty program costs %+v, %v", got, err)
	}
	for name, tt := range map[string]struct {
		m          mode
		work, rest reading
	}{
		"no tick of the guest": {modeWalk, ticks(0, 300), rest},
		"no tick at rest":      {modeWalk, work, reading{}},
		"no tick at all":       {modeEmpty, reading{}, rest},
	} {
		if got, err := costOfSamples(tt.m, tt.work, tt.rest); err == nil {
			t.Errorf("%s: a sample costs %+v", name, got)
		}
	}
	later := work
	later.runs, later.time = later.runs+5, later.time+time.Microsecond
	later.counts[bpf.RingBytes] += 7
	if d := later.minus(work); d.runs != 5 || d.time != time.Microsecond || d.counts[bpf.RingBytes] != 7 ||
		d.counts[bpf.SamplesAttempted] != 0 {
		t.Errorf("the difference is %+v", d)
	}
}

func TestHeldPrograms(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"0": "pos:\t0\nflags:\t0100000\nmnt_id:\t24\nino:\t3\n",
		"5": "pos:\t0\nprog_type:\t7\nprog_jited:\t1\nprog_tag:\t3b185187f1855c4c\nprog_id:\t412\n",
		"6": "pos:\t0\nlink_type:\tperf\nlink_id:\t9\nprog_tag:\t3b185187f1855c4c\nprog_id:\t411\n",
		"7": "pos:\t0\nmap_type:\t2\nmap_id:\t77\n",
		"8": "prog_id:\tnonsense\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ids, err := heldPrograms(dir)
	if err != nil || !slices.Equal(ids, []ebpf.ProgramID{412}) {
		t.Errorf("got %v, %v", ids, err)
	}
	if _, err := heldPrograms(filepath.Join(dir, "absent")); err == nil {
		t.Error("a process that is gone holds programs")
	}
}

func TestCheckDepth(t *testing.T) {
	for frames, ok := range map[float64]bool{1: false, 854: false, 856: true, 955: true, 966: true, 967: false} {
		if err := checkDepth(950, frames); (err == nil) != ok {
			t.Errorf("%v frames below 950 calls: %v", frames, err)
		}
	}
}

// madeUp makes up six rounds at two depths and one rate.
func madeUp() *sampleCosts {
	var costs sampleCosts
	for round := range 6 {
		noise := float64(round)
		for _, depth := range []int{950, 10} { // a round in which the deep ones come first
			at := place{"", depth, 999}
			costs.add(at, modeEmpty, sampleCost{nanos: 100 + noise})
			costs.add(at, modeChain, sampleCost{nanos: 1500 + noise + float64(depth), bytes: 90 + float64(depth)/10,
				walked: 0.0625})
			costs.add(at, modeLinks, sampleCost{nanos: 1200 + noise, bytes: 88})
			costs.add(at, modePartial, sampleCost{nanos: 1300, bytes: 104})
			costs.add(at, modeWalk, sampleCost{nanos: 25 * float64(depth), bytes: 64 + 8*float64(depth),
				frames: float64(depth) + 5})
		}
	}
	return &costs
}

func TestDepthTables(t *testing.T) {
	costs := madeUp()
	table := depthTable(costs)
	if want := []string{
		"950", "999", "955", "102 [100-105]", "2452 [2450-2455]", "6.2", "185", "1202 [1200-1205]", "88",
		"1300 [1300-1300]", "104", "23750 [23750-23750]", "7664",
	}; !slices.Equal(table.Rows[0], want) || len(table.Header) != len(want) {
		t.Errorf("got  %q\nwant %q", table.Rows[0], want)
	}
	flat := flatTable(costs)
	if want := [][]string{
		{"999", "chain: ns below 950 calls over 10", "1.621 [1.620-1.623]", "≤ 1.2", "MISSED"},
		{"999", "chain: bytes below 950 calls over 10", "2.033 [2.033-2.033]", "≤ 1.2", "MISSED"},
		{"999", "chain: ns above the empty program's below 950 calls", "2350 [2350-2350]", "≤ 1500", "MISSED"},
		{"999", "links only: ns below 950 calls over 10", "1.000 [1.000-1.000]", "≤ 1.2", "ok"},
		{"999", "links only: bytes below 950 calls over 10", "1.000 [1.000-1.000]", "≤ 1.2", "ok"},
		{"999", "links only: ns above the empty program's below 950 calls", "1100 [1100-1100]", "≤ 1500", "ok"},
	}; !slices.EqualFunc(flat.Rows, want, slices.Equal[[]string]) {
		t.Errorf("got  %q\nwant %q", flat.Rows, want)
	}
}

func TestContextTable(t *testing.T) {
	xalan := place{guest: "Xalan", rate: 999}
	costs := &sampleCosts{
		places: []place{xalan},
		rounds: map[place]map[mode][]sampleCost{xalan: madeUp().rounds[place{"", 950, 999}]},
	}
	table := contextTable(costs)
	got := table.Rows[0]
	if len(table.Rows) != 1 || len(got) != len(table.Header) || got[0] != "Xalan" || got[2] != "955" {
		t.Errorf("got %q", table.Rows)
	}
	if verdict := got[len(got)-2:]; !slices.Equal(verdict, []string{"2350 [2350-2350]", "MISSED"}) {
		t.Errorf("the verdict is %q", verdict)
	}
}

func TestLearning(t *testing.T) {
	how := depthManner{learn: time.Hour, settle: time.Second}
	if got := how.learning(modeWalk, 999); got != how.settle {
		t.Errorf("a mode that learns nothing takes %v", got)
	}
	slow, fast := how.learning(modeChain, 100), how.learning(modeChain, 1000)
	if slow != 10*fast || slow > 80*time.Second || fast <= 0 {
		t.Errorf("learning takes %v at 100 Hz, %v at 1000 Hz", slow, fast)
	}
	how.learn = time.Millisecond
	if got := how.learning(modeChain, 100); got != how.learn {
		t.Errorf("learning takes %v, at most %v was said", got, how.learn)
	}
}
