package breakpoint

import (
	"errors"
	"runtime"
	"testing"
	"time"
)

func TestPolicy(t *testing.T) {
	for _, c := range []struct {
		policy  Policy
		virtual bool
		want    error
	}{
		{Auto, false, nil},
		{"", false, nil},
		{Always, false, nil},
		{Never, false, ErrOff},
		{Auto, true, ErrUnsafe},
		{"", true, ErrUnsafe},
		{Always, true, errTried},
		{Never, true, ErrOff},
	} {
		if err := c.policy.check(c.virtual, func() error { return errTried }); !errors.Is(err, c.want) ||
			(err == nil) != (c.want == nil) {
			t.Errorf("policy %q, virtual %v: %v, want %v", c.policy, c.virtual, err, c.want)
		}
	}
	var p Policy
	for _, policy := range policies() {
		if err := p.UnmarshalText([]byte(policy)); err != nil || p != policy {
			t.Errorf("set %q: %q, %v", policy, p, err)
		}
	}
	if err := p.UnmarshalText([]byte("sometimes")); err == nil {
		t.Error("an unknown policy was taken")
	}
}

var errTried = errors.New("tried")

func TestHypervisorFlag(t *testing.T) {
	for info, want := range map[string]bool{
		"processor\t: 0\nflags\t\t: fpu tsc_known_freq hypervisor lahf_lm\nbugs\t\t:\n": true,
		"processor\t: 0\nflags\t\t: fpu hypervisor\n":                                   true,
		"processor\t: 0\nflags\t\t: fpu lahf_lm\nmodel name\t: hypervisor\n":            false,
		"processor\t: 0\nflags\t\t: fpu hypervisors\n":                                  false,
	} {
		if got := hypervisorFlag.MatchString(info); got != want {
			t.Errorf("%q: %v, want %v", info, got, want)
		}
	}
}

// The kernel takes a debug exception without a cause for one of an INT1 instruction.
func TestLostTrapIsSurvived(t *testing.T) {
	if err := catchLostTraps(); err != nil {
		t.Fatal(err)
	}
	before := lostTraps()
	lose()
	if n := lostTraps() - before; n != lostOnce {
		t.Errorf("%d lost exceptions were counted, want %d", n, lostOnce)
	}
}

func TestLiveTryBreakpoints(t *testing.T) {
	err := Try(10 * time.Millisecond)
	if errors.Is(err, ErrLost) {
		t.Skip(err)
	}
	needPrivilege(t, err)
}

// A trial does not delay the agent's garbage collector: a breakpoint in a loop once did for
// minutes.
func TestLiveTrialLetsCollectorRun(t *testing.T) {
	over := make(chan error, 1)
	go func() { over <- Try(2 * time.Second) }()
	const least = 5 // in two seconds; each takes a millisecond, or some hundred of them on a busy machine
	for collections := 0; ; collections++ {
		select {
		case err := <-over:
			if errors.Is(err, ErrLost) {
				t.Skip(err)
			}
			needPrivilege(t, err)
			if collections < least {
				t.Errorf("%d collections ended during the trial", collections)
			}
			return
		default:
			runtime.GC()
		}
	}
}
