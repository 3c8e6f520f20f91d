package proc

import (
	"errors"
	"os"
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
