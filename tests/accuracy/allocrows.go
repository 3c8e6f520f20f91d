package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	views "github.com/vmprof-agent/vmprof-agent/agent/view/report"
	eventviews "github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// planAllocRows records a program that counts its allocations, on JDKs of all ages, with several
// collectors, with buffers and without, and with few threads and many. The total must be right, and
// of 100 intervals of sites and classes 95 should contain the truth.
func planAllocRows(jdks []jvm.JDK) plan {
	return harness.Trials[meter, allocRowTrial, allocRowResult]{
		All: func(short bool) []allocRowTrial {
			if short {
				return []allocRowTrial{{version: jdks[0].Version, collector: "G1", threads: 30}}
			}
			return allocRowTrials()
		},
		Run: harness.OneByOne(meter.recordAllocRows),
		Tables: func(results []allocRowResult) []harness.Table {
			return []harness.Table{{Marker: "events-alloc-rows", Table: allocRowTable(results)}}
		},
		OK: func(results []allocRowResult) bool {
			return !slices.ContainsFunc(results, func(r allocRowResult) bool { return !r.ok() })
		},
	}.Plan
}

const (
	// allocRowObjects is how many objects all threads allocate together: some 350 MB. Without
	// buffers each takes longer.
	allocRowObjects, allocRowSlow = 2_000_000, 500_000
	// allocRowTotal is how far off the total may be: the JVM's other threads allocate, too.
	allocRowTotal = 0.01
	// allocRowPoints is how precisely shares are printed, in percentage points.
	allocRowPoints = 0.1
)

// An allocRowTrial is one recording.
type allocRowTrial struct {
	version   int // version of the JDK
	collector string
	outside   bool // objects are allocated outside of buffers: -XX:-UseTLAB
	virtual   bool
	threads   int
}

func allocRowTrials() (trials []allocRowTrial) {
	for _, version := range []int{8, 11, 17, 21, 25, 26} {
		for _, collector := range []string{"Serial", "G1", "Z"} {
			for _, outside := range []bool{false, true} {
				for _, virtual := range []bool{false, true} {
					for _, threads := range []int{1, 30, 300} {
						if collector == "Z" && version < 15 || virtual && version < 21 {
							continue
						}
						trials = append(trials, allocRowTrial{version, collector, outside, virtual, threads})
					}
				}
			}
		}
	}
	return trials
}

func (t allocRowTrial) String() string {
	name := fmt.Sprintf("alloc rows, JDK %d, %s", t.version, t.collector)
	if t.outside {
		name += ", no buffers"
	}
	if t.virtual {
		return fmt.Sprintf("%s, %d virtual threads", name, t.threads)
	}
	return fmt.Sprintf("%s, %d threads", name, t.threads)
}

// An allocRow is the share of a class or of a method in a report, and the true one, in percent.
type allocRow struct {
	name                 string
	share, within, truth float64 // within is infinite if no interval was printed
}

func (r allocRow) known() bool { return !math.IsInf(r.within, 1) }
func (r allocRow) holds() bool { return math.Abs(r.share-r.truth) <= r.within+allocRowPoints }

// An allocRowResult is the result of a trial.
type allocRowResult struct {
	allocRowTrial
	total, truth, within float64
	status               string
	rows                 []allocRow
}

// admits reports whether the profile says itself that a part is missing.
func (r allocRowResult) admits() bool { return !strings.HasPrefix(r.status, "status: good") }

func (r allocRowResult) count() (known, held int) {
	for _, row := range r.rows {
		if row.known() {
			known++
			if row.holds() {
				held++
			}
		}
	}
	return known, held
}

// ok allows for chance in one recording: of some 15 intervals, three are wrong in 3 of 100
// recordings.
func (r allocRowResult) ok() bool {
	known, held := r.count()
	return math.Abs(r.total-r.truth) <= max(allocRowTotal*r.truth, r.within) && known-held <= 3
}

func (r allocRowResult) print(w io.Writer) {
	known, held := r.count()
	fmt.Fprintf(w, "%v: truth %.0f, recorded %.0f ± %.0f; %d intervals, %d contain the truth; %s: %s\n",
		r.allocRowTrial, r.truth, r.total, r.within, known, held, r.status,
		report.Verdict(r.ok()))
	for _, row := range r.rows {
		if row.known() && !row.holds() {
			fmt.Fprintf(w, "  %s: truth %.1f %%, recorded %.1f ± %.1f\n", row.name, row.truth, row.share, row.within)
		}
	}
}

var allocRowPattern = regexp.MustCompile(`^ *([0-9.]+)% +±([0-9.]+|\?) +.* (\S+)$`)

// readAllocRows returns the rows of a report whose truth is known.
func readAllocRows(text string, truth map[string]float64) (rows []allocRow, err error) {
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		m := allocRowPattern.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || seen[m[3]] {
			continue
		}
		share, known := truth[m[3]]
		if !known {
			continue
		}
		seen[m[3]] = true
		row := allocRow{name: m[3], within: math.Inf(1), truth: share}
		if row.share, err = strconv.ParseFloat(m[1], 64); err != nil {
			return nil, fmt.Errorf("parse %q: %w", line, err)
		}
		if m[2] != "?" {
			if row.within, err = strconv.ParseFloat(m[2], 64); err != nil {
				return nil, fmt.Errorf("parse %q: %w", line, err)
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (m meter) recordAllocRows(ctx context.Context, t allocRowTrial) (r allocRowResult, err error) {
	r.allocRowTrial = t
	jdk, err := find(ctx, t.version)
	if err != nil {
		return r, err
	}
	flags := []string{"-Xmx512m", "-XX:+Use" + t.collector + "GC"}
	objects := allocRowObjects
	if t.outside {
		flags, objects = append(flags, "-XX:-UseTLAB"), allocRowSlow
	}
	if t.virtual {
		flags = append(flags, "-Dguest.virtual=true")
	}
	program := events.Allocating
	program.Flags = program.Flags[:2] // with buffers as the JVM chooses them
	guest, err := events.Start(ctx, jdk, program, flags...)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, guest.Close()) }()
	if _, err := guest.Run(t.threads, objects/t.threads); err != nil {
		return r, err
	}
	s, err := m.seeRun(ctx, guest, t.threads, objects/t.threads, "-e", "alloc")
	if err != nil {
		return r, err
	}
	p := s.recording.Profile
	total, err := eventviews.TotalOf(p, profile.Allocations)
	if err != nil {
		return r, err
	}
	r.total, r.within, r.status = total.Sum, total.Within, views.Status(p)
	shares := map[string]float64{}
	for _, a := range s.truth.Allocations {
		r.truth += float64(a.Bytes)
		shares[a.Class] += float64(a.Bytes)
		shares[a.Method] += float64(a.Bytes)
	}
	for name := range shares {
		shares[name] *= 100 / r.truth
	}
	var text bytes.Buffer
	if err := eventviews.Allocations(&text, p, &layout.Options{}); err != nil {
		return r, err
	}
	if r.rows, err = readAllocRows(text.String(), shares); err == nil {
		r.print(m.out)
	}
	return r, err
}

// allocRowTable has a row for each JDK and kind of JVM.
func allocRowTable(results []allocRowResult) report.Table {
	table := report.Table{Header: []string{"JDK", "collector", "buffers", "threads", "total off", "status", "intervals",
		"which contain the truth"}}
	known, held := 0, 0
	for _, r := range results {
		buffers, threads, status := "yes", fmt.Sprint(r.threads), "good"
		if r.outside {
			buffers = "no"
		}
		if r.virtual {
			threads += " virtual"
		}
		if r.admits() {
			status, _, _ = strings.Cut(strings.TrimPrefix(r.status, "status: "), ":")
		}
		k, h := r.count()
		known, held = known+k, held+h
		table.Add(fmt.Sprint(r.version), r.collector, buffers, threads,
			fmt.Sprintf("%+.1f %%", 100*(r.total/r.truth-1)), status, fmt.Sprint(k), fmt.Sprint(h))
	}
	table.Add("all", "", "", "", "", "", fmt.Sprint(known), fmt.Sprint(held))
	return table
}
