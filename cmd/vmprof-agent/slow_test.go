package main

import (
	"io"
	"strings"
	"testing"
)

// What cannot have slow calls is refused.
func TestSlowFlag(t *testing.T) {
	for args, want := range map[string]string{
		"-e wall --slow=a.B.c -p 1":                               "",
		"-e wall --slow=a.B.c -p 1 -o s.pb.gz -o s.html":          "",
		"-e wall --slow=a.B.c":                                    "--slow needs the JVMs",
		"-e offcpu --slow=a.B.c -p 1":                             "--slow needs -e wall",
		"-e wall --slow=a.B.c -p 1 -d 10s --window=2s -o s.pb.gz": "remove --window",
		"-e wall --slow=a.B.c --count=a.B.c -p 1":                 "--count",
		"-e wall --slow=a.B.c -p 1 -o s.folded":                   "s.folded cannot keep slow calls: use an output that ends in .pb.gz or .html",
		"-e wall --slow=a.B.c -p 1 -o s.pb.gz -o s.txt":           "s.txt cannot keep slow calls",
	} {
		_, err := parseRecord(strings.Fields(args), io.Discard)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !isUsage(err)) {
			t.Errorf("record %s: %v, want %q", args, err, want)
		}
	}
}
