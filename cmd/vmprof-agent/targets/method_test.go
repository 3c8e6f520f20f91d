package targets

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/hotspot"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// A method that a loaded class does not have fails at once; a class that is not loaded is waited
// for.
func TestCheckKnown(t *testing.T) {
	m, err := hotspot.ParseMethod("com.acme.Search.fnid")
	if err != nil {
		t.Fatal(err)
	}
	has, lacks, absent := hotspot.Known{Method: true, Class: true},
		hotspot.Known{Class: true, Near: []string{"com.acme.Search.find"}},
		hotspot.Known{Near: []string{"org.other.Search.find"}}
	for _, test := range []struct {
		name    string
		known   []hotspot.Known // by pid, from 0
		err     error
		every   bool
		want    string
		warning string
	}{
		{"found", []hotspot.Known{has, has}, nil, true, "", ""},
		{"missing", []hotspot.Known{has, lacks}, nil, true,
			"process 1 has no method com.acme.Search.fnid, though its class is loaded; did you mean " +
				"com.acme.Search.find?", ""},
		{"missing in one of several", []hotspot.Known{has, lacks}, nil, false, "", ""},
		{"missing in all", []hotspot.Known{lacks, lacks}, nil, false, "process 0 has no method", ""},
		{"not loaded", []hotspot.Known{absent}, nil, true, "",
			"the method's class is not loaded (yet): waiting for it; did you mean org.other.Search.find?\" pid=0"},
		{"unknown", []hotspot.Known{{}}, errors.New("unsupported"), true, "", ""},
		{"ambiguous", []hotspot.Known{{}}, &hotspot.AmbiguousError{Method: m, Signatures: []string{"()V", "(I)V"}},
			true, "there are several methods", ""},
	} {
		var log bytes.Buffer
		var pids []int
		for pid := range test.known {
			pids = append(pids, pid)
		}
		err := checkKnown(pids, m, test.every, slog.New(slog.NewTextHandler(&log, nil)),
			func(pid int) (hotspot.Known, error) { return test.known[pid], test.err })
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if (log.Len() == 0) != (test.warning == "") || !strings.Contains(log.String(), test.warning) {
			t.Errorf("%s: log %q, want %q", test.name, &log, test.warning)
		}
	}
}

// Names that may be meant come from processes, and do nothing to a terminal.
func TestDidYouMean(t *testing.T) {
	if got, want := cli.DidYouMean([]string{"func:mallo\x1b[2J",
		"a\u202eb"}), `; did you mean func:mallo\x1b[2J, a\u202eb?`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
