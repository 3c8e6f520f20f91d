package main

import (
	"path/filepath"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
)

func TestParts(t *testing.T) {
	two, err := parse([]string{"-parts", "contexts,busy"})
	if err != nil || len(two.parts) != 2 || two.parts[0].Name != "busy" || two.parts[1].Name != "contexts" {
		t.Errorf("got %v, %v", two.parts, err)
	}
	for _, list := range []string{"", "dept", "depth,", "depth,depth"} {
		if o, err := parse([]string{"-parts", list}); err == nil {
			t.Errorf("%q chose %d parts", list, len(o.parts))
		}
	}
}

// The page has a place for every table.
func TestMarkers(t *testing.T) {
	if err := harness.CheckMarkers(filepath.Join("../..", docs), parts); err != nil {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-guests", "Xalan,Javac", "-rates", "99,999", "-parts", "depth"})
	if err != nil || len(o.guests) != 2 || len(o.rates) != 2 || o.rates[1] != 999 || len(o.parts) != 1 {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err = parse(nil); err != nil || len(o.eventGuests) != len(defaultEventGuests) ||
		len(o.kinds) != len(eventKinds) {
		t.Errorf("by default events are of %v, %v, %v", o.eventGuests, o.kinds, err)
	}
	if o, err = parse([]string{"-guests", "H2"}); err != nil || len(o.eventGuests) != 1 {
		t.Errorf("of H2 alone events are of %v, %v", o.eventGuests, err)
	}
	if o, err = parse([]string{"-short"}); err != nil || len(o.eventGuests) != 1 || len(o.kinds) != 1 {
		t.Errorf("in short events are of %v, %v, %v", o.eventGuests, o.kinds, err)
	}
	for _, args := range [][]string{
		{"-rates", "fast"}, {"-rates", "0"}, {"-short", "-update"}, {"-nonsense"}, {"-parts", "nonsense"},
		{"-kinds", "cpi"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
