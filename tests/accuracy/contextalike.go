package main

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/report"
)

// A likeness says how well the windows of a recording predict the next ones: geometric means over all pairs. NaN is no
// value.
type likeness struct {
	correlation float64 // -1 to 1: Whaley's precision
	overlap     float64 // 0 to 100
}

// What is compared of windows, as compare has it.
const (
	hotMethods = "methods"
	partialCCT = "PCCT" // nodes and edges of Whaley's tree as one set
)

// windowsAlike compares the windows of a recording as the agent's compare does.
func windowsAlike(p *pprof.Profile) (map[string]likeness, error) {
	var text bytes.Buffer
	if err := report.CompareWindows(&text, report.Named{Name: "recording", Profile: p}, &report.CompareOptions{N: 1}); err != nil {
		return nil, err
	}
	return parseLikeness(text.String())
}

// parseLikeness reads the means in a comparison: of the line above that which begins with "windows" the names of what is
// compared, and of the line that begins with "mean" a correlation and an overlap for each.
func parseLikeness(text string) (map[string]likeness, error) {
	var names, before, mean []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "windows":
			names = before
		case fields[0] == "mean":
			mean = fields[1:]
		}
		before = fields
	}
	if len(names) == 0 || len(mean) != 2*len(names) {
		return nil, fmt.Errorf("the comparison of windows has no means of %q:\n%s", names, text)
	}
	alike := make(map[string]likeness)
	for i, name := range names {
		var l likeness
		for j, to := range []*float64{&l.correlation, &l.overlap} {
			var err error
			if *to, err = parseDecimal(mean[2*i+j]); err != nil {
				return nil, fmt.Errorf("mean of %s: %w", name, err)
			}
		}
		alike[name] = l
	}
	return alike, nil
}

// parseDecimal reads a number, or - for NaN.
func parseDecimal(text string) (float64, error) {
	if text == "-" {
		return math.NaN(), nil
	}
	return strconv.ParseFloat(text, 64)
}

// likenessOf returns NaNs of what was not compared.
func (r *contextRecording) likenessOf(name string) likeness {
	if l, ok := r.alike[name]; ok {
		return l
	}
	return likeness{math.NaN(), math.NaN()}
}
