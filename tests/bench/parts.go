package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A section is a table of the documentation.
type section struct {
	name  string
	table report.Table
}

// A part is what can be measured alone. If it fails it has no sections.
type part struct {
	name    string
	measure func(ctx context.Context, b bench, o options) ([]section, error)
}

var parts = []part{
	{"costs", func(ctx context.Context, b bench, o options) ([]section, error) {
		costs, err := b.costs(ctx, o.guests, o.rates)
		if err != nil {
			return nil, err
		}
		return []section{{"overhead", overheadTable(costs)}, {"costs", ownTable(costs)}}, nil
	}},
	{"busy", func(ctx context.Context, b bench, o options) ([]section, error) {
		cost, err := b.busy(ctx)
		if err != nil {
			return nil, err
		}
		return []section{{"busy", busyTable(cost)}}, nil
	}},
	{"first", func(ctx context.Context, b bench, o options) ([]section, error) {
		s, err := b.first(ctx)
		if err != nil {
			return nil, err
		}
		return []section{{"first", firstTable(s)}}, nil
	}},
	{"depth", func(ctx context.Context, b bench, o options) ([]section, error) {
		costs, err := b.depths(ctx)
		if err != nil {
			return nil, err
		}
		return []section{{"depth", depthTable(costs)}, {"flat", flatTable(costs)}}, nil
	}},
	{"contexts", func(ctx context.Context, b bench, o options) ([]section, error) {
		costs, err := b.contexts(ctx, o.guests)
		if err != nil {
			return nil, err
		}
		return []section{{"contexts", contextTable(costs)}}, nil
	}},
	{"events", func(ctx context.Context, b bench, o options) ([]section, error) {
		costs, err := b.events(ctx, o.eventGuests, o.kinds)
		if err != nil {
			return nil, err
		}
		return []section{{"events", eventTable(costs, true)}, {"eventcosts", eventOwnTable(costs)}}, nil
	}},
	{"exact", func(ctx context.Context, b bench, _ options) ([]section, error) {
		costs, err := b.exact(ctx)
		if err != nil {
			return nil, err
		}
		return []section{{"exact", exactTable(costs)}}, nil
	}},
}

// partNames are the names of all parts, as the command line has them.
func partNames() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ",")
}

// choose returns the parts that are named in a list, in their own order.
func choose(list string) ([]part, error) {
	names := strings.Split(list, ",")
	var chosen []part
	for _, p := range parts {
		if i := slices.Index(names, p.name); i >= 0 {
			names = slices.Delete(names, i, i+1)
			chosen = append(chosen, p)
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("-parts: there is no part %q: choose from %s", names[0], partNames())
	}
	return chosen, nil
}
