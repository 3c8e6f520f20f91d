package tests

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// guestSocket is where guests connect: VMPROF_SOCKET_PATH of contrib/guest/vmprof.h.
const guestSocket = "/run/vmprof-agent/guest.sock"

// TestDoctorLeavesGuestsAlone: the doctor tries the engine of cooperating guests, and never is
// there for guests to connect to. They try all the time.
func TestDoctorLeavesGuestsAlone(t *testing.T) {
	needs.Root(t, "sampling")
	var out strings.Builder
	doctor := exec.CommandContext(t.Context(), built.Path, "doctor")
	doctor.Stdout = &out
	if err := doctor.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- doctor.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil || !strings.Contains(out.String(), "engine page") {
				t.Errorf("doctor: %v\n%s", err, &out)
			}
			return
		case <-time.After(time.Millisecond):
			if pid := listening(t, guestSocket); pid == doctor.Process.Pid {
				t.Fatal("a guest would have connected to the doctor")
			}
		}
	}
}

// TestCountersAreFound: whether a machine has performance counters is read off it, by who asks for
// the engine that needs them.
func TestCountersAreFound(t *testing.T) {
	needs.Root(t, "sampling")
	got := agent(t, "record", "-e", "calls", "--engine=branch", "-p", strconv.Itoa(os.Getpid()), "-d", "100ms", "-o",
		output(t, "out.pb.gz"))
	text := strings.Join(strings.Fields(got.stderr), " ") // lines are folded
	_, err := os.Stat("/sys/bus/event_source/devices/cpu")
	if there, reported := err == nil, !strings.Contains(text, "this machine has no performance counters"); there != reported {
		t.Errorf("the machine has counters: %v; record exits with %d and says:\n%s", there, got.code, got.stderr)
	}
}

// TestDoctorOfExperiments: an engine that never ran on hardware is only used if it is asked for.
func TestDoctorOfExperiments(t *testing.T) {
	needs.Root(t, "sampling")
	out, err := exec.CommandContext(t.Context(), built.Path, "doctor").Output()
	if text := strings.Join(strings.Fields(string(out)), " "); err != nil ||
		!strings.Contains(text, "engine branch not used: experimental") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
}

// listening returns which process listens on a socket of the kind that guests connect to, 0 if none
// does.
func listening(t *testing.T, path string) int {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
