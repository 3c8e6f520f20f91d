package main

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

// siteObjects is the number of objects that all threads together allocate: some 1.4 GB, or 5,500
// buffers.
const siteObjects = 8_000_000

// measureSites records a program that allocates known objects in known methods.
func (t eventTrial) measureSites(ctx context.Context, m meter) ([]figure, error) {
	guest, err := events.Start(ctx, t.jdk, events.Allocating, "-XX:+DTraceAllocProbes")
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	if _, err := guest.Run(t.threads, siteObjects/t.threads/20); err != nil { // until it is compiled
		return nil, err
	}
	s, err := m.seeRun(ctx, guest, t.threads, siteObjects/t.threads, "-e", "alloc", "--exact-alloc")
	if err != nil {
		return nil, err
	}
	rows, err := events.Read(s.recording.Profile, "alloc_objects", "alloc_space")
	if err != nil {
		return nil, err
	}
	return judgeSites(s.truth, rows), nil
}

// arraysBesides is how many more bytes of an array's class may be counted, as a fraction of the
// known ones: the JVM's other threads have arrays, too.
const arraysBesides = 0.01

// judgeSites requires that exact counts are exact, and that samples are off by random errors only.
// Exact counts are of classes, in the whole process.
func judgeSites(truth events.Truth, rows []events.Row) (figures []figure) {
	sampled, exact := events.Split(rows)
	sampled = events.Own(sampled)
	objects, bytes := events.Weights{}, events.Weights{}
	for _, a := range truth.Allocations {
		objects[a.Class] += float64(a.Objects)
		bytes[a.Class] += float64(a.Bytes)
	}
	countedObjects, countedBytes := events.ByClass(exact, 0), events.ByClass(exact, 1)
	for _, class := range slices.Sorted(maps.Keys(objects)) {
		if strings.HasSuffix(class, "[]") {
			figures = append(figures, figure{
				group: "exact bytes, arrays", what: class, truth: bytes[class], measured: countedBytes[class],
				tolerance: within(arraysBesides, bytes[class]),
			})
			continue
		}
		figures = append(figures,
			figure{group: "exact objects", what: class, truth: objects[class], measured: countedObjects[class]},
			figure{group: "exact bytes", what: class, truth: bytes[class], measured: countedBytes[class]})
	}
	all := bytes.Total()
	for _, a := range truth.Allocations {
		of := events.Where(events.InMethod(sampled, a.Method), func(r events.Row) bool { return r.Class == a.Class })
		figures = append(figures, sampledShare(figure{
			group: "sampled bytes, share", what: a.Class + " in " + a.Method, truth: float64(a.Bytes) / all,
			measured: share(events.Sum(of, 1), events.Sum(sampled, 1)),
		}, events.Count(sampled)))
	}
	// Objects in buffers that are not full are not observed, and those in buffers from before are:
	// one buffer per thread.
	const whole = 0.02
	return append(figures, figure{
		group: "sampled bytes, all", truth: all, measured: events.Sum(sampled, 1), tolerance: within(whole, all),
		aim: true,
	})
}

// sampledShare converts the figure from shares of 0 to 1 to percent, with the tolerance that n
// samples need. There is none without samples.
func sampledShare(f figure, n int64) figure {
	if n > 0 {
		f.tolerance = sigmas * math.Sqrt(f.truth*(1-f.truth)/float64(n))
	}
	f.unit, f.truth, f.measured, f.tolerance = "%", 100*f.truth, 100*f.measured, 100*f.tolerance
	return f
}

// share is part as a fraction of whole, 0 if that is 0.
func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
