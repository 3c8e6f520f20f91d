package probes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// Each value of an execution is an event in a row of its own. Only the first counts the execution.
func TestValueEvents(t *testing.T) {
	k := newKernelSide(t)
	site := func(text string) (cookie uint32) {
		t.Helper()
		spec, err := valueprobe.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		v := attach.Values{Objects: k.Programs, Uprobes: k.uprobes, Register: k.register}
		sites, _, err := v.Prepare(spec, k.find(t)) // without any hits
		if err != nil {
			t.Fatal(err)
		}
		k.values.add(sites[0], &valueWatch{spec: spec})
		return sites[0].Cookie
	}
	three, none := site("func:f=rdi:s32,rsi,rdx:str/3"), site("func:g/3")
	long := strings.Repeat("é", 80)
	described := func(cookie uint32, failed uint8, text string, values ...uint64) (events []string) {
		t.Helper()
		seen := bpf.ProbeObservation{What: bpf.ObservedValues, Probe: cookie, Every: 3, Failed: failed,
			Count: uint8(len(values))}
		copy(seen.Values[:], values)
		o := bpf.Observation{Seen: &seen, Text: []byte(text)}
		base := fold.Event{TID: 7}
		if !k.ValueEvents(&o, base, func(e *fold.Event) {
			if e.Kind != profile.Values || e.TID != 7 || e.Sums.Events != 1 {
				t.Errorf("%+v", e)
			}
			events = append(events, fmt.Sprintf("%s %s: %.0f %.0f nth=%d", e.Labels.Probe, e.Labels.Value,
				e.Sums.Values[0], e.Sums.Values[1], e.Nth))
		}) {
			return []string{"not recorded"}
		}
		return events
	}
	for _, c := range []struct {
		name string
		got  []string
		want []string
	}{
		{"three values", described(three, 0, "text", 1<<64-5, 100, 4), []string{
			"func:f=rdi:s32 -7--4: 3 -15 nth=0", "func:f=rsi 64-127: 3 300 nth=1", "func:f=rdx:str text: 3 0 nth=2"}},
		{"one cannot be read", described(three, 2, "", 1, 100, 0), []string{
			"func:f=rdi:s32 1: 3 3 nth=0", "func:f=rsi (unreadable): 3 0 nth=1", "func:f=rdx:str : 3 0 nth=2"}},
		{"fewer than were asked for", described(three, 0, "", 1), []string{
			"func:f=rdi:s32 1: 3 3 nth=0", "func:f=rsi (unreadable): 3 0 nth=1",
			"func:f=rdx:str (unreadable): 3 0 nth=2"}},
		{"a long text", described(three, 0, long, 1, 1, uint64(len(long))), []string{
			"func:f=rdi:s32 1: 3 3 nth=0", "func:f=rsi 1: 3 3 nth=1", "func:f=rdx:str " + long[:100] + "…: 3 0 nth=2"}},
		{"no values", described(none, 0, ""), []string{"func:g : 3 0 nth=0"}},
		{"a probe that nobody attached", described(99, 0, ""), []string{"not recorded"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", c.name, c.got, c.want)
		}
	}
}

func TestValueText(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"text":                         "text",
		"a\x1bb":                       `a\x1bb`,
		strings.Repeat("x", 100):       strings.Repeat("x", 100),
		strings.Repeat("x", 101):       strings.Repeat("x", 100) + "…",
		"x" + strings.Repeat("é", 60):  "x" + strings.Repeat("é", 49) + "…",
		strings.Repeat("x", 98) + "日本": strings.Repeat("x", 98) + "…",
	} {
		if got := valueText(in, false); got != want || !utf8.ValidString(got) {
			t.Errorf("%.20q of %d bytes: %q, want %q", in, len(in), got, want)
		}
		if got := valueText(in, true); got != strings.TrimSuffix(want, "…")+"…" {
			t.Errorf("%.20q of %d bytes, cut by the kernel side: %q", in, len(in), got)
		}
	}
}

// Profiles of a process report why the values of a probe requested by name are missing, but not for
// every file that lacks the probe.
func TestValuesExplained(t *testing.T) {
	redZone := fmt.Errorf("leaf at 0x1234: %w", probesite.ErrRedZone)
	for _, c := range []struct {
		spec string
		err  error
		want bool
	}{
		{"usdt:vmprof:leaf=arg1", redZone, true},
		{"usdt:vmprof:leaf=arg1", probesite.ErrNotFound, false},
		{"usdt:vmprof:leaf=arg1", fmt.Errorf("read file: %w", elffile.ErrNotELF), false},
		{"/usr/share/shop.data:usdt:vmprof:leaf=arg1", fmt.Errorf("read file: %w", elffile.ErrNotELF), true},
		{"/usr/lib/libshop.so:usdt:vmprof:leaf=arg1", probesite.ErrNotFound, true},
	} {
		spec, err := valueprobe.Parse(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		p := fold.NewProcess(proc.Identity{PID: 4711}, true)
		w := &valueWatch{spec: spec}
		for i := range 2 {
			if got, want := w.explain(p.Process, "/usr/bin/shop", c.err), c.want && i == 0; got != want {
				t.Errorf("%s, %v: new %v, want %v", c.spec, c.err, got, want)
			}
		}
		if notes := p.Describe().Notes; len(notes) > 1 || (len(notes) == 1) != c.want {
			t.Errorf("%s, %v: notes %q", c.spec, c.err, notes)
		}
	}
}

// TestMayPass: which failures to attach a probe for values are worth another attempt.
func TestMayPass(t *testing.T) {
	for _, c := range []struct {
		err    error
		passes bool
	}{
		{nil, false}, {errors.New("in a leaf function"), false}, {&proc.PanicError{Value: "hostile"}, true},
		{context.Canceled, true},
		{fmt.Errorf("process 1: %w", proc.ErrTimeout), true}, {proc.ErrCrowded, true}, {errTooManyProbes, true},
		{fmt.Errorf("open: %w", unix.EMFILE), true},
	} {
		if got := mayPass(c.err); got != c.passes {
			t.Errorf("mayPass(%v): %v", c.err, got)
		}
	}
}
