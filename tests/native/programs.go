package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A program works until it is killed.
type program struct {
	name string
	// command is what is executed. It works on input, again and again, unless that is empty.
	command []string
	input   bool
	source  string // what is compiled first: command is the compiler, to which the paths are added
	short   bool
}

// String is the trial's name.
func (p program) String() string { return p.name }

//go:embed programs/virtual.cc
var inCPP string

//go:embed programs/maps.rs
var inRust string

func programs(short bool) (chosen []program) {
	for _, p := range []program{
		{name: "openssl", command: []string{"openssl", "speed", "-seconds", "600", "rsa2048"}},
		{name: "sqlite3", command: []string{"sqlite3", ":memory:", "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL " +
			"SELECT x + 1 FROM n) SELECT count(*) FROM n WHERE printf('%d %s', x, hex(x)) LIKE '%12%' AND x % 7 IN (1, 2)"},
			short: true},
		{name: "xz", command: []string{"xz", "-6c"}, input: true},
		{name: "zstd", command: []string{"zstd", "-12c", "-T1"}, input: true},
		{name: "gzip", command: []string{"gzip", "-9c"}, input: true},
		{name: "C++", command: []string{"g++", "-O2", "-x", "c++"}, source: inCPP, short: true},
		{name: "Rust", command: []string{"rustc", "-O"}, source: inRust},
		{name: "perl", command: []string{"perl", "-e", `while (1) { my %h; $h{$_ % 1000} .= "x$_" for 1 .. 20000;
			my @s = sort { $a cmp $b } values %h; my $n = () = join(",", @s) =~ /x1\d+/g; }`}},
		{name: "PHP", command: []string{"php", "-r", `while (true) { $a = []; for ($i = 0; $i < 20000; $i++)
			$a[] = md5("x$i"); usort($a, fn($x, $y) => strcmp($x, $y)); preg_match_all('/a\d+/', implode(',', $a)); }`}},
		{name: "Ruby", command: []string{"ruby", "-e", `loop { a = (1..20000).map { |i| (i * 7919 % 20011).to_s }
			a.sort_by { |s| s.reverse }.join(",").scan(/1\d+/).tally }`}},
	} {
		if p.short || !short {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// build compiles the program, if that is needed.
func (p program) build(ctx context.Context, dir string) ([]string, error) {
	if p.source == "" {
		return p.command, nil
	}
	source, binary := filepath.Join(dir, p.name+".source"), filepath.Join(dir, p.name+".program")
	if err := os.WriteFile(source, []byte(p.source), 0o600); err != nil {
		return nil, err
	}
	args := append(p.command[1:len(p.command):len(p.command)], "-o", binary, source)
	if out, err := exec.CommandContext(ctx, p.command[0], args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile: %w\n%s", err, out)
	}
	return []string{binary}, nil
}

// start starts the program, which ends with ctx.
func (p program) start(ctx context.Context, command []string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	if p.input {
		text, err := corpus()
		if err != nil {
			return nil, err
		}
		cmd.Stdin = &endless{text: text}
	}
	return cmd, cmd.Start()
}

// corpus is what compressors work on: text that looks like a log.
func corpus() ([]byte, error) {
	var b bytes.Buffer
	seed := uint32(1)
	for i := range 100000 {
		seed = seed*1664525 + 1013904223
		fmt.Fprintf(&b, "line %d: %s took %d us\n", i, strings.Repeat("request ", int(seed>>30)), seed>>12)
	}
	return b.Bytes(), nil
}

// An endless reader returns a text again and again.
type endless struct {
	text []byte
	at   int
}

var _ io.Reader = (*endless)(nil)

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}
