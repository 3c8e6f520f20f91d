//go:build linux && amd64

package monitors_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
	agentevents "github.com/vmprof-agent/vmprof-agent/agent/collect/events"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

const (
	// liveTimes is how often all threads together acquire a monitor: some ten seconds of two
	// threads.
	liveTimes = 80_000_000
	// sigmas is how far off a share may be by chance: one test of about 20,000 shares fails.
	sigmas = 4
	// systematic is what differences between traps may add, as a fraction of a share.
	systematic = 0.05
)

// Shares of classes and of methods in the acquisitions of a program with known shares.
func TestLiveShares(t *testing.T) {
	needs.Root(t, "to listen to monitor enters")
	breakpoints.Need(t)
	for i, jdk := range needs.JDKs(t) {
		threads := 1 + i%2 // the number of threads is independent of the VM
		t.Run(fmt.Sprintf("%d/%d", jdk.Version, threads), func(t *testing.T) { checkShares(t, jdk, threads) })
	}
}

func checkShares(t *testing.T, jdk jvm.JDK, threads int) {
	guest, err := events.Start(t.Context(), jdk, events.Locking)
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	warm, err := guest.Run(threads, liveTimes/threads/40) // until it is compiled
	if err != nil {
		t.Fatal(err)
	}
	truth, locks := recordEnters(t, guest, func() events.Truth {
		truth, err := guest.Run(threads, liveTimes/threads)
		if err != nil {
			t.Fatal(err)
		}
		again, err := guest.Run(threads, liveTimes/threads/40)
		if err != nil || again.Checksum != warm.Checksum {
			t.Errorf("checksum %s, %v; before it was recorded it was %s", again.Checksum, err, warm.Checksum)
		}
		for i := range again.Acquired {
			truth.Acquired[i].Times += again.Acquired[i].Times
		}
		return truth
	})
	for _, basis := range locks.Basis {
		t.Log(basis)
	}
	estimated, hits := map[string]float64{}, map[string]float64{}
	var sum, all float64
	for _, row := range locks.Rows {
		if row.What != "enter" || row.Values[0] < 10*float64(row.Events) ||
			!strings.HasPrefix(row.Thread, events.Thread) {
			continue // probes in the VM count these directly
		}
		key := methodOf(locks, row.Context) + " " + row.Class
		estimated[key] += row.Values[0]
		hits[key] += float64(row.Events)
		sum += row.Values[0]
	}
	for _, a := range truth.Acquired {
		all += float64(a.Times)
	}
	for _, a := range truth.Acquired {
		key := a.Method + " " + a.Class
		want, got := float64(a.Times)/all, estimated[key]/sum
		allowed := want * (systematic + sigmas/math.Sqrt(max(hits[key], 1)))
		t.Logf("%-50s %6.2f %%, estimated %6.2f %% (%+.1f %%) from %.0f hits", key, 100*want, 100*got, 100*(got/want-1),
			hits[key])
		if math.Abs(got-want) > allowed || hits[key] < 100 {
			t.Errorf("%s: share %.4f from %.0f hits, want %.4f within %.4f", key, got, hits[key], want, allowed)
		}
	}
	t.Logf("all: %.0f, estimated %.0f", all, sum)
	// Here a trap takes many times as long as the time between two acquisitions, and its duration
	// is known to some percent only: so the sum is known to a factor. A wrong unit would still
	// show. (See TestRatesOnBusyHost.)
	if sum < all/30 || sum > 30*all {
		t.Errorf("%.0f acquisitions, want about %.0f", sum, all)
	}
}

// recordEnters records the acquisitions of a process during run.
func recordEnters(t *testing.T, guest *events.Guest, run func() events.Truth) (events.Truth, *profile.Events) {
	t.Helper()
	options := &agentevents.Options{MonitorEnters: true}
	options.Kinds[profile.Locks] = true
	a, err := agent.New(t.Context(), agent.Options{PIDs: []int{guest.PID()}, Events: options, NoTime: true,
		Breakpoints: breakpoint.Always})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	w := a.Open(nil)
	begin := time.Now()
	truth := run()
	t.Logf("ran for %v", time.Since(begin))
	p, err := w.Close(t.Context())
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range p.Processes {
		for _, note := range process.Notes {
			t.Log(note)
		}
		if process.Threads != nil {
			t.Error("where time went is in the profile")
		}
		for _, e := range process.Events {
			if e.Kind == profile.Locks {
				return truth, e
			}
		}
	}
	t.Fatal("no acquisitions were recorded")
	return truth, nil
}

// methodOf returns the innermost method of a context.
func methodOf(e *profile.Events, context cct.NodeID) string {
	name, _, _ := strings.Cut(e.Tree.Node(context).Key.Value().Function, "(")
	return name
}
