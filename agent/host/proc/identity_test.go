package proc

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestIdentitySame(t *testing.T) {
	seen := Identity{PID: 23, Start: 12_345_678_901, Exec: 1}
	for _, tt := range []struct {
		name  string
		other Identity
		want  bool
	}{
		{"itself", seen, true},
		{"as stat has it", Identity{PID: 23, Start: 12_340_000_000}, true},
		{"another program", Identity{PID: 23, Start: 12_345_678_901, Exec: 2}, true},
		{"10 ms later", Identity{PID: 23, Start: 12_355_678_901, Exec: 1}, false},
		{"next tick", Identity{PID: 23, Start: 12_350_000_000}, false},
		{"another pid", Identity{PID: 24, Start: 12_345_678_901, Exec: 1}, false},
	} {
		if got := seen.Same(tt.other); got != tt.want {
			t.Errorf("%s: Same = %v, want %v", tt.name, got, tt.want)
		}
	}
	if got, want := seen.String(), "23@12.34s"; got != want {
		t.Errorf("String = %q, want %q", got, want)
	}
}

func TestIdentify(t *testing.T) {
	id, err := Root("").Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := Root("").Check(id); err != nil {
		t.Errorf("Check = %v", err)
	}
	id.Start -= nsPerTick
	if err := Root("").Check(id); !errors.Is(err, ErrGone) {
		t.Errorf("Check of a predecessor = %v, want %v", err, ErrGone)
	}
	if _, err := Root("").Identify(maxPID); !errors.Is(err, ErrGone) { // pids end one below
		t.Errorf("Identify of nobody = %v, want %v", err, ErrGone)
	}
}

const statLine = "4711 (java) S 1 4711 4711 0 -1 1077936384 30211 0 5 0 890 121 0 0 20 0 37 0 123456 7180185600 " +
	"45678 18446744073709551615 94649722945536 94649722965417 140735909646144 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 " +
	"94649722981424 94649722983040 94650769211392 140735909648885 140735909648905 140735909648905 140735909650411 0\n"

func TestParseStat(t *testing.T) {
	java := Stat{PID: 4711, Comm: "java", State: 'S', PPID: 1, Flags: 1077936384, Threads: 37, StartTicks: 123456}
	renamed := func(comm string) Stat { s := java; s.Comm = comm; return s }
	for _, tt := range []struct {
		name, line string
		want       Stat
		err        error
	}{
		{name: "plain", line: statLine, want: java},
		{name: "parentheses in the name", line: strings.Replace(statLine, "java", "a) R 1 (b", 1),
			want: renamed("a) R 1 (b")},
		{name: "newline in the name", line: strings.Replace(statLine, "java", "a\nb", 1), want: renamed("a?b")},
		{name: "no name", line: strings.Replace(statLine, "java", "", 1), want: renamed("")},
		{name: "empty", line: "", err: ErrMalformed},
		{name: "ends after the name", line: "4711 (java)", err: ErrMalformed},
		{name: "ends before the start time", line: statLine[:70], err: ErrMalformed},
		{name: "reversed parentheses", line: "4711 )java(", err: ErrMalformed},
		{name: "pid is no number", line: "x" + statLine, err: ErrMalformed},
		{name: "start overflows", line: strings.Replace(statLine, " 123456 ", " 18446744073709551615 ", 1),
			err: ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat([]byte(tt.line))
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("parseStat = %+v, %v; want %+v, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestStatOfThisProcess(t *testing.T) {
	s, err := Root("").Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if s.PID != os.Getpid() || s.PPID != os.Getppid() || s.Threads < 1 || s.Kernel() || s.Zombie() {
		t.Errorf("%+v", s)
	}
	if kthreadd, err := Root("").Stat(2); err == nil && kthreadd.Comm == "kthreadd" && !kthreadd.Kernel() {
		t.Errorf("kthreadd is not taken for a kernel thread: %+v", kthreadd)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(statLine))
	f.Add([]byte("1 (a) R 1 (b) S"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseStat(b)
		if err != nil && s != (Stat{}) {
			t.Errorf("both %+v and %v", s, err)
		}
		if len(s.Comm) > maxName {
			t.Errorf("name of %d bytes", len(s.Comm))
		}
	})
}
