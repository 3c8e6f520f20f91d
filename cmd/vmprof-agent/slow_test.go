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
		"-e wall --slow=a.B.c -p 1 -d 10s --window=2s -o s.pb.gz": "",
		"-e wall --slow=a.B.c --count=a.B.c -p 1":                 "--count",
		"-e wall --slow=a.B.c -p 1 -o s.folded":                   "s.folded cannot keep slow calls: use an output that ends in .pb.gz or .html",
		"-e wall --slow=a.B.c -p 1 -o s.pb.gz -o s.txt":           "s.txt cannot keep slow calls",
	} {
		checkSlowFlag(t, "record "+args, want, func() error {
			_, err := parseRecord(strings.Fields(args), io.Discard)
			return err
		})
	}
	for args, want := range map[string]string{
		"-e wall --slow=a.B.c -p 1":                 "",
		"-e wall --slow=a.B.c -p 1 --budget=5%":     "",
		"-e wall --slow=a.B.c":                      "--slow needs the JVMs",
		"-e cpu --slow=a.B.c -p 1":                  "--slow needs -e wall",
		"-e wall,calls --slow=a.B.c -p 1":           "remove -e calls",
		"-e wall --slow=a -p 1":                     "want class.method",
	} {
		checkSlowFlag(t, "serve "+args, want, func() error {
			_, err := parseServe(strings.Fields(args), io.Discard)
			return err
		})
	}
}

func checkSlowFlag(t *testing.T, args, want string, parse func() error) {
	t.Helper()
	err := parse()
	if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !isUsage(err)) {
		t.Errorf("%s: %v, want %q", args, err, want)
	}
}
