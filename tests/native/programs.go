package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A program works until it is killed. DIR in its commands is a directory of its own.
type program struct {
	name    string
	command []string // what is executed
	before  []string // what is executed first, and ends by itself
	load    []string // what is executed beside it, and gives it work
	listens string   // where it has to listen first: network and address
	input   string   // what it reads, again and again; "" for nothing
	source  string   // what is compiled first: command is the compiler, to which the paths are added
	config  string   // what the file DIR/config has
	nobody  bool     // it refuses to run as root
	short   bool
}

// String is the trial's name.
func (p program) String() string { return p.name }

// nginxPort is the port of this test's server.
const nginxPort = "18080"

// inPHP sorts, and matches a regular expression.
const inPHP = `while (true) { $a = []; for ($i = 0; $i < 20000; $i++) $a[] = md5("x$i");
	usort($a, fn($x, $y) => strcmp($x, $y)); preg_match_all('/a\d+/', implode(',', $a)); }`

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
		{name: "xz", command: []string{"xz", "-6c"}, input: log()},
		{name: "zstd", command: []string{"zstd", "-12c", "-T1"}, input: log()},
		{name: "gzip", command: []string{"gzip", "-9c"}, input: log()},
		{name: "C++", command: []string{"g++", "-O2", "-x", "c++"}, source: inCPP, short: true},
		{name: "Rust", command: []string{"rustc", "-O"}, source: inRust},
		{name: "perl", command: []string{"perl", "-e", `while (1) { my %h; $h{$_ % 1000} .= "x$_" for 1 .. 20000;
			my @s = sort { $a cmp $b } values %h; my $n = () = join(",", @s) =~ /x1\d+/g; }`}},
		{name: "PHP", command: []string{"php", "-r", inPHP}},
		{name: "PHP, pcre.jit=0", command: []string{"php", "-d", "pcre.jit=0", "-r", inPHP}},
		{name: "Ruby", command: []string{"ruby", "-e", `loop { a = (1..20000).map { |i| (i * 7919 % 20011).to_s }
			a.sort_by { |s| s.reverse }.join(",").scan(/1\d+/).tally }`}},
		{name: "redis", command: []string{"redis-server", "--port", "0", "--unixsocket", "DIR/socket", "--save", "", "--dir", "DIR"},
			listens: "unix DIR/socket",
			load:    []string{"redis-benchmark", "-s", "DIR/socket", "-q", "-l", "-t", "lrange_100"}},
		{name: "nginx", command: []string{"nginx", "-p", "DIR", "-e", "DIR/errors", "-c", "DIR/config"},
			config: "daemon off; master_process off; pid DIR/pid; user root; events {} http { access_log DIR/log; " +
				"gzip on; gzip_types *; gzip_min_length 0; " +
				"client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/fastcgi; " +
				"uwsgi_temp_path DIR/uwsgi; scgi_temp_path DIR/scgi; server { " +
				"listen 127.0.0.1:" + nginxPort + "; root /usr/share/common-licenses; } }",
			listens: "tcp 127.0.0.1:" + nginxPort,
			load: []string{"ab", "-q", "-n", "100000000", "-c", "4", "-H", "Accept-Encoding: gzip",
				"http://127.0.0.1:" + nginxPort + "/GPL-3"}},
		{name: "PostgreSQL", command: []string{"postgres", "--single", "-D", "DIR/data", "postgres"}, nobody: true,
			before: []string{"initdb", "-D", "DIR/data"},
			input:  "SELECT count(*), max(md5(x::text)) FROM generate_series(1, 50000) x WHERE md5(x::text) LIKE 'a%';\n"},
	} {
		if p.short || !short {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// prepared is a program that can be started.
type prepared struct {
	program
	dir string
}

// prepare compiles the program, or does what else is needed first. Its directory is a new one in dir.
func (p program) prepare(ctx context.Context, dir string) (prepared, error) {
	ready := prepared{p, filepath.Join(dir, p.name)}
	if err := os.Mkdir(ready.dir, 0o777); err != nil {
		return ready, err
	}
	if err := os.Chmod(ready.dir, 0o777); err != nil {
		return ready, err
	}
	if p.source != "" {
		source, binary := filepath.Join(ready.dir, "source"), filepath.Join(ready.dir, "program")
		if err := os.WriteFile(source, []byte(p.source), 0o600); err != nil {
			return ready, err
		}
		ready.before = append(slices.Clone(p.command), "-o", binary, source)
		ready.command = []string{binary}
	}
	if p.config != "" {
		text := strings.ReplaceAll(p.config, "DIR", ready.dir)
		if err := os.WriteFile(filepath.Join(ready.dir, "config"), []byte(text), 0o644); err != nil {
			return ready, err
		}
	}
	if ready.before != nil {
		cmd, err := ready.cmd(ctx, ready.before)
		if err != nil {
			return ready, err
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return ready, fmt.Errorf("%s: %w\n%s", ready.before[0], err, out)
		}
	}
	return ready, nil
}

// cmd is one of the commands, which ends with ctx.
func (p prepared) cmd(ctx context.Context, command []string) (*exec.Cmd, error) {
	var args []string
	for _, arg := range command {
		args = append(args, strings.ReplaceAll(arg, "DIR", p.dir))
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if p.nobody {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			return nil, err
		}
		uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		cmd.Dir = p.dir
	}
	return cmd, nil
}

// start starts the program, and what gives it work. They end with ctx; wait returns when they have.
func (p prepared) start(ctx context.Context) (pid int, wait func(), err error) {
	var started []*exec.Cmd
	wait = func() {
		for _, cmd := range started {
			_ = cmd.Wait() // it was killed
		}
	}
	for _, command := range [][]string{p.command, p.load} {
		if command == nil {
			continue
		}
		cmd, err := p.cmd(ctx, command)
		if err != nil {
			return 0, wait, err
		}
		if p.input != "" {
			cmd.Stdin = &endless{text: p.input}
		}
		if err := cmd.Start(); err != nil {
			return 0, wait, err
		}
		started = append(started, cmd)
		if err := p.waitListening(ctx); err != nil {
			return 0, wait, err
		}
	}
	return started[0].Process.Pid, wait, nil
}

// waitListening waits until the program listens, if that is what it does.
func (p prepared) waitListening(ctx context.Context) error {
	network, address, listens := strings.Cut(strings.ReplaceAll(p.listens, "DIR", p.dir), " ")
	if !listens {
		return nil
	}
	const patience, pause = 30 * time.Second, 10 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			return c.Close()
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not listen: %w", p.name, err)
		}
		time.Sleep(pause)
	}
}

// log is what compressors work on.
func log() string {
	var b strings.Builder
	seed := uint32(1)
	for i := range 100000 {
		seed = seed*1664525 + 1013904223
		fmt.Fprintf(&b, "line %d: %s took %d us\n", i, strings.Repeat("request ", int(seed>>30)), seed>>12)
	}
	return b.String()
}

// An endless reader returns a text again and again.
type endless struct {
	text string
	at   int
}

var _ io.Reader = (*endless)(nil)

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}
