package probes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/sleeper"
)

// specsOf parses specs with blanks between them.
func specsOf(t *testing.T, text string) (specs []valueprobe.Spec) {
	t.Helper()
	for _, one := range strings.Fields(text) {
		spec, err := valueprobe.Parse(one)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, spec)
	}
	return specs
}

// A misspelt probe fails before anything is recorded, with names that may be meant.
func TestFindValues(t *testing.T) {
	guest := sleeper.Start(t)
	for _, test := range []struct{ probes, want string }{
		{"libc.so.6:func:malloc=arg1", ""},
		{"func:malloc=arg1", ""},
		{"libc.so.6:func:mallok=arg1", "--probe libc.so.6:func:mallok: not in /"},
		{"libc.so.6:func:mallok", "did you mean func:malloc"},
		{"func:realloK", "--probe func:realloK: no file that the process maps has it; did you mean func:realloc"},
		{"func:malloc func:mallok", "--probe func:mallok: "},
		{"libnothere.so:func:malloc", ""}, // which may be loaded later
		{"libc.so.6:func:nothing_is_called_like_this", "nothing_is_called_like_this: not in /"},
	} {
		specs := specsOf(t, test.probes)
		var err error
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); { // until the loader has mapped libc
			if err = FindValues(t.Context(), specs, []int{guest.Process.Pid}); (err == nil) == (test.want == "") {
				break
			}
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.probes, err, test.want)
		}
	}
}

// USDT probes and C++ names of a libjvm.
func TestValueSearch(t *testing.T) {
	for _, jdk := range needs.JDKs(t) {
		path := filepath.Join(jdk.Home, "lib", "server", "libjvm.so")
		f, err := os.Open(path)
		if err != nil {
			continue // a JDK 8 has it elsewhere
		}
		defer f.Close()
		file, err := elffile.OpenFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for probe, want := range map[string]string{
			"libjvm.so:usdt:hotspot:gc__begni": "did you mean usdt:hotspot:gc__begin",
			"libjvm.so:func:AllocTracer::send_allocation_in_new_tlap": "did you mean " +
				"func:AllocTracer::send_allocation_in_new_tlab",
			"libjvm.so:func:AllocTraser::send_allocation_in_new_tlab=arg1": "did you mean " +
				"func:AllocTracer::send_allocation_in_new_tlab",
			"libjvm.so:func:AllocTracer::send_allocation_in_new_tlab=arg4":   "",
			"libjvm.so:func:ObjectMonitor::nothing_here_is_called_like_this": "did you mean func:ObjectMonitor::",
		} {
			spec, err := valueprobe.Parse(probe)
			if err != nil {
				t.Fatal(err)
			}
			s := valueSearch{spec: spec}
			s.look(&attach.MappedFile{Path: path, File: f, ELF: file}, probesite.New(file, f))
			if err := s.err(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v, %s: %v, want %q", jdk, probe, err, want)
			}
		}
	}
}

func TestValuesMissed(t *testing.T) {
	specs := specsOf(t, "func:mallok")
	sleeper.Start(t) // maps libc
	p := &profile.Profile{Duration: time.Second, Processes: []*profile.Process{{PID: 1, Comm: "java"}}}
	stored, err := sink.Pprof(p, sink.OfEvents(profile.Values))
	if err != nil {
		t.Fatal(err)
	}
	if err := ValuesMissed(t.Context(), specs,
		&profile.EventStats{Wanted: map[string]time.Duration{"value": time.Second}},
		stored); err != nil {
		t.Error(err)
	}
	if err := ValuesMissed(t.Context(), specs, &profile.EventStats{}, stored); err == nil ||
		!strings.Contains(err.Error(), "no process that was recorded has func:mallok; did you mean func:malloc") {
		t.Error(err)
	}
	p.Processes[0].Notes = []string{"values at func:mallok in /lib/libc.so.6 are not recorded: because"}
	if stored, err = sink.Pprof(p, sink.OfEvents(profile.Values)); err != nil {
		t.Fatal(err)
	}
	if err := ValuesMissed(t.Context(), specs, &profile.EventStats{}, stored); err == nil ||
		!strings.Contains(err.Error(), "are not recorded: because") {
		t.Error(err)
	}
}
