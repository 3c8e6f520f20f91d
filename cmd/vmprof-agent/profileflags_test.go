package main

import (
	"io"
	"strings"
	"testing"
)

// Flags that can have no effect together are an error that names both; those that have one
// somewhere are none.
func TestFlagsTogether(t *testing.T) {
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
	if _, err := parseServe([]string{"-e", "cpu,calls", "--engine=hotspot", "--stride=7"}, io.Discard); err == nil {
		t.Error("serve takes --engine=hotspot with --stride")
	}
}
