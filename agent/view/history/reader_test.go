package history

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// The sums of the timeline are those of the profiles.
func TestTimeline(t *testing.T) {
	r := newRig(t, Options{})
	r.add(t, sinktest.Shop())
	r.add(t, sinktest.ShopEvents())
	slices, err := Read(r.path).Timeline(t.Context(), began, r.now, "")
	if err != nil || len(slices) != 2 {
		t.Fatalf("%d slices, %v", len(slices), err)
	}
	shop := sinktest.Shop()
	var cpu time.Duration
	for _, s := range slices[0].Services {
		for _, d := range s.CPU {
			cpu += d
		}
	}
	if want := time.Duration(totalsOf(shop).samples) * shop.Period; cpu != want {
		t.Errorf("%v of CPU time, want %v", cpu, want)
	}
	kinds := make(map[profile.CodeKind]bool)
	for _, s := range slices[0].Services {
		for k, d := range s.CPU {
			kinds[profile.CodeKind(k)] = kinds[profile.CodeKind(k)] || d > 0
		}
	}
	if !kinds[profile.GuestCode] || !kinds[profile.Collecting] || !kinds[profile.NativeCode] {
		t.Errorf("kinds of code: %v", kinds)
	}
	events := sumsOf(sinktest.ShopEvents())
	if len(events) == 0 || fmt.Sprint(slices[1].Services) != fmt.Sprint(events) {
		t.Errorf("sums %v, want %v", slices[1].Services, events)
	}
}

func TestSelection(t *testing.T) {
	r := newRig(t, Options{})
	rng := rand.New(rand.NewPCG(5, 6))
	for range 6 {
		r.add(t, varied(rng, 14, 5))
	}
	read := Read(r.path)
	p, err := read.Query(t.Context(), Selection{From: began.Add(16 * time.Second), To: began.Add(44 * time.Second),
		Service: "service-3", Content: sink.Time})
	if err != nil {
		t.Fatal(err)
	}
	// The second window has less than half of its time in the selection, the last one too.
	if !p.Start.Equal(began.Add(20*time.Second)) || p.Duration != 20*time.Second {
		t.Errorf("%v from %v", p.Duration, p.Start)
	}
	if len(p.Processes) != 2 || p.Processes[0].Service != "service-3" || len(p.Processes[0].Events) != 0 ||
		len(p.Processes[0].Threads) == 0 {
		t.Errorf("%d processes, %+v", len(p.Processes), p.Processes[0])
	}
	if !strings.Contains(p.Comments[0], "2 windows of 10s") {
		t.Errorf("%q", p.Comments)
	}
	selected := uint64(0)
	for _, proc := range p.Processes {
		for _, thread := range proc.Threads {
			selected += thread.Tree.Total()
		}
	}
	all, err := read.Query(t.Context(), Selection{From: began.Add(16 * time.Second), To: began.Add(44 * time.Second),
		Content: sink.Time})
	if err != nil || p.Counts.Folded != selected || all.Counts.Folded <= selected {
		t.Errorf("the account has %d samples, the processes have %d; all have %d, %v", p.Counts.Folded, selected,
			all.Counts.Folded, err)
	}
	// Less than half of any window: what touches it.
	p, err = read.Query(t.Context(), Selection{From: began.Add(11 * time.Second), To: began.Add(13 * time.Second)})
	if err != nil || p.Duration != 10*time.Second || !p.Start.Equal(began.Add(10*time.Second)) {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := read.Query(t.Context(), Selection{From: began.Add(time.Hour),
		To: began.Add(2 * time.Hour)}); !errors.Is(err, ErrNone) ||
		!strings.Contains(err.Error(), "it has 2026-11-25 ") {
		t.Errorf("a time without windows: %v", err)
	}
	if _, err := Read(filepath.Join(r.path, "none")).Query(t.Context(), Selection{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
