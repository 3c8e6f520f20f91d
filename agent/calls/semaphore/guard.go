package semaphore

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// GuardVerb is the argument that makes the agent's program a guard: see Guard.
const GuardVerb = "guard"

// Descriptors of a guard: the socket that its agent holds the other end of, and the map of the kernel side's notices.
const (
	guardSocket  = 3
	guardNotices = 4
)

const (
	watchInterval = 250 * time.Millisecond // how often a guard looks for what takes too long
	hangLimit     = 250 * time.Millisecond // for a page of a process to be read or written
	maxHung       = 8                      // writers that hang in processes' memory; each is a thread
	farewellLimit = 2 * time.Second        // for all semaphores to be cleared
)

var errNotAGuard = errors.New("this verb is for the semaphore engine's own use")

// A guard sets and clears the semaphores of its wards.
type guard struct {
	conn    *net.UnixConn
	notices *ringbuf.Reader
	wards   wards
	told    chan order // to the agent, beside the answers
	hungs   int
}

// Guard is the guard process. It writes semaphores as the kernel side and the agent ask for until the agent is gone,
// however it went; then it clears them and returns. It ignores the signals that end an agent, as a terminal or a
// service manager sends those to both.
func Guard() error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	socket := os.NewFile(guardSocket, "agent")
	conn, err := net.FileConn(socket)
	if err != nil {
		return errNotAGuard
	}
	socket.Close()
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return errNotAGuard
	}
	m, err := ebpf.NewMapFromFD(guardNotices)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotAGuard, err)
	}
	notices, err := ringbuf.NewReader(m)
	if err != nil {
		return fmt.Errorf("open notices: %w", err)
	}
	g := &guard{conn: unixConn, notices: notices, wards: wards{byPID: map[uint32]*ward{}}, told: make(chan order, 64)}
	return g.run()
}

func (g *guard) run() error {
	w, err := g.newWriter()
	if err != nil {
		g.answer(verbFailed, err.Error())
		return err
	}
	g.answer(verbDone, "")
	go g.watch(w)
	go g.report()
	g.serve()
	g.farewell()
	return nil
}

func (g *guard) newWriter() (*writer, error) {
	w := &writer{notices: g.notices, wards: &g.wards, tell: g.tell}
	started := make(chan error, 1)
	go w.run(started)
	return w, <-started
}

// tell sends something to the agent soon. What an agent does not fetch is dropped: a stray process comes by again.
func (g *guard) tell(o order) {
	select {
	case g.told <- o:
	default:
	}
}

func (g *guard) report() {
	for o := range g.told {
		g.conn.Write(o.encode("")) // an agent that is gone is noticed by serve
	}
}

func (g *guard) answer(v verb, text string) { g.conn.Write(order{Verb: v}.encode(text)) }

// watch ends bursts that take too long, and replaces a writer that hangs: a process can make a page of its memory
// wait for ever (userfaultfd), and the others must not wait with it.
func (g *guard) watch(w *writer) {
	for range time.Tick(watchInterval) {
		for pid, ward := range g.wards.all() {
			if ward.late() {
				go func() { w.fail(pid, ward, ward.clear()) }()
			}
		}
		stuck := w.hung(hangLimit)
		if stuck == nil {
			continue
		}
		w.done.Store(true)
		for pid, ward := range g.wards.all() {
			if ward == stuck {
				g.wards.take(pid, ward)
				g.tell(order{Verb: verbHung, PID: pid, StartTicks: ward.ticks})
			}
		}
		if g.hungs++; g.hungs > maxHung {
			g.conn.Close() // ends serve, and so this process with its threads
			return
		}
		next, err := g.newWriter()
		if err != nil {
			g.conn.Close()
			return
		}
		w = next
	}
}

// serve carries out the agent's orders until there is no agent.
func (g *guard) serve() {
	buf, control := make([]byte, maxOrder), make([]byte, unix.CmsgSpace(4))
	for {
		n, c, _, _, err := g.conn.ReadMsgUnix(buf, control)
		if err != nil || n == 0 {
			return
		}
		mem, err := receivedFile(control[:c])
		o, _, bad := decodeOrder(buf[:n])
		if err := errors.Join(err, bad); err != nil {
			g.answer(verbFailed, err.Error())
			continue
		}
		if err := g.obey(o, mem); err != nil {
			g.answer(verbFailed, err.Error())
			continue
		}
		g.answer(verbDone, "")
	}
}

func (g *guard) obey(o order, mem *os.File) error {
	if o.Verb == verbAdd {
		if mem == nil {
			return errors.New("no memory came with the process")
		}
		w := &ward{ticks: o.StartTicks, cell: cell{mem: mem, addr: int64(o.Addr)}}
		if before := g.wards.put(o.PID, w); before != nil {
			go before.leave() // its process is gone, or executed another program
		}
		return nil
	}
	w := g.wards.find(o.PID, o.StartTicks)
	if w == nil {
		return errNoWard
	}
	switch o.Verb {
	case verbRemove:
		g.wards.take(o.PID, w)
		return within(hangLimit, w.leave)
	case verbHold:
		return within(hangLimit, w.hold)
	case verbRelease:
		return within(hangLimit, w.release)
	}
	return fmt.Errorf("unknown order %d", o.Verb)
}

// farewell clears all semaphores, each on its own, so that none waits for a process that hangs.
func (g *guard) farewell() {
	var all sync.WaitGroup
	for _, w := range g.wards.all() {
		all.Go(func() { w.leave() }) // nobody is left to be told
	}
	within(farewellLimit, func() error { all.Wait(); return nil })
}

var errHung = errors.New("memory of the process does not answer")

// within returns what f returns, or errHung after limit, and leaves f to itself.
func within(limit time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return errHung
	}
}

// receivedFile returns the file that came with a message, or nil.
func receivedFile(control []byte) (*os.File, error) {
	if len(control) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("read control message: %w", err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err == nil && len(fds) == 1 {
			return os.NewFile(uintptr(fds[0]), "mem"), nil
		}
	}
	return nil, errors.New("control message without a file")
}
