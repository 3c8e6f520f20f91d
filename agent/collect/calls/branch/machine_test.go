package branch

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
)

// files makes a root directory. Files of the CPU's event source are given without their directory.
func files(device string, texts map[string]string) fstest.MapFS {
	root := fstest.MapFS{"sys/bus/event_source/devices/software/type": {Data: []byte("1\n")}}
	for name, text := range texts {
		if name != "proc/cpuinfo" {
			name = "sys/bus/event_source/devices/" + device + "/" + name
		}
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

const intelInfo = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n"

var formats = map[string]string{
	"type": "4\n", "format/event": "config:0-7\n", "format/umask": "config:8-15\n", "caps/branches": "32\n",
	"proc/cpuinfo": intelInfo,
}

func with(base map[string]string, name, text string) map[string]string {
	m := map[string]string{name: text}
	for k, v := range base {
		if k != name {
			m[k] = v
		}
	}
	return m
}

func TestFindPMU(t *testing.T) {
	for _, c := range []struct {
		name     string
		root     fs.FS
		typ      uint32
		branches int
		err      string
	}{
		{"Intel", files("cpu", formats), 4, 32, ""},
		{"Intel with two kinds of cores", files("cpu_core", with(formats, "type", "8")), 8, 32, ""},
		{"Arm", files("armv8_pmuv3_0", map[string]string{"type": "10\n"}), 10, 0, ""},
		{"records that make no sense", files("cpu", with(formats, "caps/branches", "-3")), 4, 0, ""},
		{"a virtual machine", files("msr", map[string]string{"type": "9\n"}), 0, 0, "no performance counters"},
		{"no /sys", fstest.MapFS{}, 0, 0, "no performance counters"},
		{"a type that is no number", files("cpu", map[string]string{"type": "four"}), 0, 0, "invalid syntax"},
		{"a type that is too large", files("cpu", map[string]string{"type": "4294967296"}), 0, 0, "out of range"},
		{"a file without end", files("cpu", map[string]string{"type": strings.Repeat("4", 1<<20)}), 0, 0,
			"out of range"},
	} {
		p, err := findPMU(c.root)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil || p.typ != c.typ || p.branches() != c.branches {
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
	}
}

func TestRetiredCalls(t *testing.T) {
	for _, c := range []struct {
		name  string
		texts map[string]string
		want  attach.RawEvent
		err   string
	}{
		{"Intel", formats, attach.RawEvent{Type: 4, Config: 0x02c4}, ""},
		{"Intel with more bits of a umask", with(formats, "format/umask", "config:8-15,40-47\n"),
			attach.RawEvent{Type: 4, Config: 0x02c4}, ""},
		{"AMD", with(formats, "proc/cpuinfo", "vendor_id : AuthenticAMD\n"), attach.RawEvent{}, `from "AuthenticAMD"`},
		{"Arm", with(formats, "proc/cpuinfo", "CPU implementer : 0x41\n"), attach.RawEvent{}, `from "unknown"`},
		{"events that look different", with(formats, "format/event", "config:0-15\n"), attach.RawEvent{},
			"format of events"},
		{"no format", map[string]string{"type": "4", "proc/cpuinfo": intelInfo}, attach.RawEvent{}, "format of events"},
		{"no cpuinfo", map[string]string{"type": "4"}, attach.RawEvent{}, "the CPU's name"},
	} {
		p, err := findPMU(files("cpu", c.texts))
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.retiredCalls()
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestExplainStacks(t *testing.T) {
	for _, c := range []struct {
		err      error
		branches int
		want     string
	}{
		{unix.EOPNOTSUPP, 0, "needs Intel with LBR"},
		{unix.ENOENT, 0, "needs Intel with LBR"},
		{unix.EOPNOTSUPP, 16, "keeps 16, but cannot select them by kind"},
		{unix.EBUSY, 32, "another profiler"},
		{unix.EACCES, 32, "permission denied"},
	} {
		err := explainStacks(c.err, c.branches)
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.err, err, c.want)
		}
	}
}

func TestPlausible(t *testing.T) {
	for counted, ok := range map[uint64]bool{0: false, trialCalls - 1: false, trialCalls: true, trialCalls + 1000: true,
		2 * trialCalls: false, 1 << 63: false} {
		if err := plausible(counted); (err == nil) != ok {
			t.Errorf("%d calls: %v", counted, err)
		}
	}
}
