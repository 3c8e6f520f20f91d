package semaphore

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// answerLimit is how long the agent waits for its guard to answer.
const answerLimit = 2 * time.Second

// errGuard: the guard is gone, or does not answer.
var errGuard = errors.New("the guard process is gone")

// A sentry is the agent's end of its guard.
type sentry struct {
	cmd     *exec.Cmd
	conn    *net.UnixConn
	answers chan string // texts; "" is done
	ended   chan struct{}

	mu sync.Mutex // one order at a time
}

// startGuard starts command as a guard and waits until it is ready. on is called for what the guard tells by itself,
// one call at a time, and once more with the verb 0 when the guard is gone; it must not give orders.
func startGuard(command []string, notices *ebpf.Map, on func(order)) (*sentry, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "guard"), os.NewFile(uintptr(fds[1]), "agent")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	ring, err := unix.FcntlInt(uintptr(notices.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("start guard: %w", err)
	}
	ringFile := os.NewFile(uintptr(ring), "notices")
	defer ringFile.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.ExtraFiles = []*os.File{theirs, ringFile}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's signals are for the agent
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start guard: %w", err)
	}
	theirs.Close() // so that the end of the guard is the end of the socket
	s := &sentry{cmd: cmd, conn: conn.(*net.UnixConn), answers: make(chan string, 1), ended: make(chan struct{})}
	go s.listen(on)
	if err := s.answer(); err != nil {
		s.close()
		return nil, fmt.Errorf("start guard: %w", err)
	}
	return s, nil
}

// listen takes the guard's messages apart until there is no guard.
func (s *sentry) listen(on func(order)) {
	defer close(s.ended)
	buf := make([]byte, maxOrder)
	for {
		n, err := s.conn.Read(buf)
		if err != nil || n == 0 {
			on(order{})
			return
		}
		o, text, err := decodeOrder(buf[:n])
		switch {
		case err != nil: // the guard sends none
		case o.Verb == verbDone:
			s.deliver("")
		case o.Verb == verbFailed:
			s.deliver(text)
		default:
			on(o)
		}
	}
}

// deliver hands an answer over, if somebody waits for one.
func (s *sentry) deliver(text string) {
	select {
	case s.answers <- text:
	default:
	}
}

func (s *sentry) answer() error {
	select {
	case text := <-s.answers:
		if text != "" {
			return errors.New(text)
		}
		return nil
	case <-s.ended:
		return errGuard
	case <-time.After(answerLimit):
		s.conn.Close() // its answer must not be taken for the next order's; without an agent it clears and ends
		return errGuard
	}
}

// give has an order carried out. mem is passed on with it, if it is not nil.
func (s *sentry) give(v verb, id proc.Identity, addr uint64, mem *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rights []byte
	if mem != nil {
		rights = unix.UnixRights(int(mem.Fd()))
	}
	o := order{Verb: v, PID: uint32(id.PID), StartTicks: id.Ticks(), Addr: addr}
	if _, _, err := s.conn.WriteMsgUnix(o.encode(""), rights, nil); err != nil {
		return errGuard
	}
	return s.answer()
}

// close ends the guard, which clears all semaphores before.
func (s *sentry) close() error {
	s.conn.Close()
	exited := make(chan error, 1)
	go func() { exited <- s.cmd.Wait() }()
	select {
	case err := <-exited:
		if err != nil {
			return fmt.Errorf("guard: %w", err)
		}
		return nil
	case <-time.After(farewellLimit + time.Second):
		s.cmd.Process.Kill()
		<-exited
		return fmt.Errorf("guard: %w", errGuard)
	}
}
