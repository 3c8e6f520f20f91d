package record

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

func TestSeconds(t *testing.T) {
	for _, tt := range []struct {
		args             string
		duration, window time.Duration
	}{
		{"", 30 * time.Second, 0},
		{"-d 10", 10 * time.Second, 0},
		{"-d10", 10 * time.Second, 0},
		{"--duration=1.5", 1500 * time.Millisecond, 0},
		{"-d 10s", 10 * time.Second, 0},
		{"-d 5m", 5 * time.Minute, 0},
		{"-d 60 --window 20", time.Minute, 20 * time.Second},
		{"-d 1m --window=500ms", time.Minute, 500 * time.Millisecond},
	} {
		o, err := parseRecord(strings.Fields(tt.args), io.Discard)
		if err != nil || o.duration != tt.duration || o.window != tt.window {
			t.Errorf("record %s: %v, %v, %v", tt.args, o.duration, o.window, err)
		}
	}
	for _, args := range []string{"-d NaN", "-d Inf", "-d 1e300", "-d -1", "-d 0", "-d 0s", "--window 0",
		"--window=-1s", "-d long", "-d 10x"} {
		if _, err := parseRecord(strings.Fields(args), io.Discard); err == nil || !cli.IsMisuse(err) {
			t.Errorf("record %s: %v", args, err)
		}
	}
	if _, err := parseRecord([]string{"-d", "long"}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "such as 30s, 5m or 10 (seconds)") {
		t.Errorf("the error says nothing of a remedy: %v", err)
	}
}

// Flags that can have no effect together are an error that names both; those that have one
// somewhere are none.
func TestRecordFlagsTogether(t *testing.T) {
	for _, test := range []struct {
		args string
		want []string // in the error; nil: there is none
	}{
		{"-e calls --engine=hotspot --stride=7", []string{"--engine=hotspot", "--stride", "--budget"}},
		{"-e calls --engine=hotspot --samples=32", []string{"--engine=hotspot", "--samples"}},
		{"-e cpu,calls --engine hotspot -F 99 --samples 32", []string{"--engine=hotspot", "--samples"}},
		{"-e calls --engine=listener --stride=7", []string{"--engine=listener", "--stride"}},
		{"-e calls --engine=page --logical", []string{"--engine=page", "--logical"}},
		{"-e calls --exact -p 1 --engine=page", []string{"--exact", "--engine"}},
		{"-e calls --exact -p 1 --engine=auto", []string{"--exact", "--engine"}},
		{"-e calls --exact -p 1 --budget=2%", []string{"--exact", "--budget"}},
		{"-e calls --exact=edges -p 1 --stride=7", []string{"--exact", "--stride"}},
		{"-e calls --exact -p 1 --samples=7", []string{"--exact", "--samples"}},
		{"-e calls --exact -p 1 --logical", []string{"--exact", "--logical"}},
		{"-e calls --exact=counters -p 1 --logical", []string{"--exact", "--logical"}},
		{"--exact=counters -p 1", []string{"--exact", "-e calls"}},
		{"-e lock --wakers -p 1", []string{"--wakers", "-e offcpu"}},
		{"-e wall --wakers -p 1", nil},
		{"-e calls --exact=everything -p 1", []string{"everything", "contexts, edges or counters"}},
		{"-e calls,alloc --exact -p 1", []string{"--exact-alloc"}},
		{"-e calls,alloc --exact=edges --exact-alloc -p 1", []string{"--exact=contexts"}},
		{"-e calls,alloc,lock --exact --exact-alloc -p 1", []string{"--exact", "without other events"}},
		{"-e calls,alloc --exact --exact-alloc -p 1", nil},
		{"-e calls --exact=counters -p 1", nil},
		{"-e calls --exact -p 1", nil},
		{"-e calls --exact -p 1 -F 99", nil},
		{"-e calls --stride=7 --samples=32 --logical", nil},
		{"-e calls --engine=auto --stride=7", nil},
		{"-e calls --engine=hotspot --logical --budget=2% -F 99", nil},
		{"-e calls --engine=listener --samples=32", nil},
		{"-e calls --engine=page --stride=7 --samples=32 -F 200", nil},
	} {
		_, err := parseRecord(strings.Fields(test.args), io.Discard)
		if (err == nil) != (test.want == nil) {
			t.Errorf("record %s: %v", test.args, err)
			continue
		}
		for _, flag := range test.want {
			if !strings.Contains(err.Error(), flag) {
				t.Errorf("record %s: %q does not name %s", test.args, err, flag)
			}
		}
	}
}

// What cannot have slow calls is refused.
func TestRecordSlowFlag(t *testing.T) {
	for args, want := range map[string]string{
		"-e wall --slow=a.B.c -p 1":                               "",
		"-e wall --slow=a.B.c -p 1 -o s.pb.gz -o s.html":          "",
		"-e wall --slow=a.B.c":                                    "--slow needs the JVMs",
		"-e offcpu --slow=a.B.c -p 1":                             "--slow needs -e wall",
		"-e wall --slow=a.B.c -p 1 -d 10s --window=2s -o s.pb.gz": "",
		"-e wall --slow=a.B.c --count=a.B.c -p 1":                 "--count",
		"-e wall --slow=a.B.c -p 1 -o s.folded": "s.folded cannot keep slow calls: use an output " +
			"that ends in .pb.gz or .html",
		"-e wall --slow=a.B.c -p 1 -o s.pb.gz -o s.txt": "s.txt cannot keep slow calls",
	} {
		_, err := parseRecord(strings.Fields(args), io.Discard)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !cli.IsMisuse(err)) {
			t.Errorf("record %s: %v, want %q", args, err, want)
		}
	}
}
