package guests

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// The layouts of contrib/guest/vmprof.h, written a second time: the two must agree.
const (
	pageSize   = 4096
	pageSlots  = 60
	slotsBegin = 256
	slotSize   = 64

	messageHello  = 1
	messageMethod = 2
	messageForget = 3
)

// A slot is one thread's countdown in the page.
type slot struct{ Armed, Skip, Left, Stride, Burst uint32 }

// A method is a guest's registration, in one or several packets.
type method struct {
	ID          uint32
	Begin, Time uint64
	Size, Line  uint32
	Name, File  string
	Sites       []vmSite
}

type vmSite struct{ Offset, Line uint32 }

type forgotten struct {
	ID          uint32
	Begin, Time uint64
}

// A listener is at the path where guests look for the agent.
type listener struct {
	path   string
	socket *net.UnixListener
}

func listen(t testing.TB) *listener {
	path := filepath.Join(t.TempDir(), "guest.sock")
	socket, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return &listener{path, socket}
}

// A peer is the agent's side of one connection, without a kernel side: the test arms slots by hand.
type peer struct {
	conn    *net.UnixConn
	pid     int32 // process ID of the guest
	runtime string
	page    []byte

	mu        sync.Mutex
	methods   []method
	forgotten []forgotten
	err       error // what was wrong with a message
	done      chan struct{}
}

// patience is how long tests wait for a guest.
const patience = wait.Long

// connect waits for a guest and its hello.
func (l *listener) connect(t testing.TB) *peer {
	t.Helper()
	l.socket.SetDeadline(time.Now().Add(patience))
	conn, err := l.socket.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{conn: conn, done: make(chan struct{})}
	t.Cleanup(func() { conn.Close() })
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		cred, credErr := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err = credErr; err == nil {
			p.pid = cred.Pid
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	hello := make([]byte, 4096)
	n, err := conn.Read(hello)
	if err != nil || n != 24 || binary.NativeEndian.Uint32(hello) != messageHello ||
		binary.NativeEndian.Uint32(hello[4:]) != 1 {
		t.Fatalf("hello %x, %v", hello[:n], err)
	}
	p.runtime = string(bytes.TrimRight(hello[8:24], "\x00"))
	return p
}

// refuse tells the guest that it is not wanted.
func (p *peer) refuse(t testing.TB, reason uint32) {
	t.Helper()
	if _, err := p.conn.Write(words(2, reason)); err != nil {
		t.Fatal(err)
	}
	p.conn.Close()
}

// welcome gives the guest a page, and reads its messages from then on.
func (p *peer) welcome(t testing.TB) {
	t.Helper()
	fd, err := unix.MemfdCreate("vmprof-page", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, pageSize); err != nil {
		t.Fatal(err)
	}
	if p.page, err = unix.Mmap(fd, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(p.page) })
	if _, _, err := p.conn.WriteMsgUnix(words(1, 1, pageSize, pageSlots), unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	go p.read()
}

func words(w ...uint32) (b []byte) {
	for _, v := range w {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return b
}

func (p *peer) read() {
	defer close(p.done)
	packet := make([]byte, 2*4096)
	for {
		n, err := p.conn.Read(packet)
		if err != nil || n == 0 {
			return
		}
		p.mu.Lock()
		if err := p.take(packet[:n]); err != nil && p.err == nil {
			p.err = err
		}
		p.mu.Unlock()
	}
}

func (p *peer) take(b []byte) error {
	if len(b) < 24 || len(b) > 4096 {
		return fmt.Errorf("packet of %d bytes", len(b))
	}
	u32, u64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	kind, id, begin, at := u32(b), u32(b[4:]), u64(b[8:]), u64(b[16:])
	switch {
	case kind == messageForget && len(b) == 24:
		p.forgotten = append(p.forgotten, forgotten{id, begin, at})
		return nil
	case kind != messageMethod || len(b) < 40:
		return fmt.Errorf("message %d of %d bytes", kind, len(b))
	}
	m := method{ID: id, Begin: begin, Time: at, Size: u32(b[24:]), Line: u32(b[28:])}
	names, files := int(binary.NativeEndian.Uint16(b[32:])), int(binary.NativeEndian.Uint16(b[34:]))
	sites := (40 + names + files + 3) &^ 3
	if want := sites + 8*int(u32(b[36:])); len(b) != want {
		return fmt.Errorf("method packet of %d bytes instead of %d", len(b), want)
	}
	m.Name, m.File = string(b[40:40+names]), string(b[40+names:40+names+files])
	for s := b[sites:]; len(s) > 0; s = s[8:] {
		m.Sites = append(m.Sites, vmSite{u32(s), u32(s[4:])})
	}
	if last := len(p.methods) - 1; last >= 0 && p.methods[last].ID == id && p.methods[last].Begin == begin &&
		p.methods[last].Time == at {
		p.methods[last].Sites = append(p.methods[last].Sites, m.Sites...)
		return nil
	}
	p.methods = append(p.methods, m)
	return nil
}

// registered waits until that many methods are registered, and returns them and the unregistered
// ones.
func (p *peer) registered(t testing.TB, methods, gone int) ([]method, []forgotten) {
	t.Helper()
	var m []method
	var f []forgotten
	err := wait.Until(t.Context(), patience, fmt.Sprintf("%d methods are registered and %d forgotten", methods, gone),
		func() (bool, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			m, f = p.methods, p.forgotten
			return len(m) >= methods && len(f) >= gone, p.err
		})
	if err != nil {
		t.Fatalf("%d methods registered and %d forgotten: %v", len(m), len(f), err)
	}
	return m, f
}

// word is the n-th field of a slot.
func (p *peer) word(i, n int) *uint32 {
	return (*uint32)(unsafe.Pointer(&p.page[slotsBegin+slotSize*i+4*n]))
}

// slot reads a slot.
func (p *peer) slot(i int) slot {
	return slot{
		Armed: atomic.LoadUint32(p.word(i, 0)), Skip: atomic.LoadUint32(p.word(i, 1)),
		Left:   atomic.LoadUint32(p.word(i, 2)),
		Stride: atomic.LoadUint32(p.word(i, 3)), Burst: atomic.LoadUint32(p.word(i, 4)),
	}
}

// arm writes a slot, its field armed last. Its thread must be idle.
func (p *peer) arm(i int, s slot) {
	atomic.StoreUint32(p.word(i, 1), s.Skip)
	atomic.StoreUint32(p.word(i, 2), s.Left)
	atomic.StoreUint32(p.word(i, 3), s.Stride)
	atomic.StoreUint32(p.word(i, 4), s.Burst)
	atomic.StoreUint32(p.word(i, 0), s.Armed)
}

// hangUp ends the connection, as the agent's death does.
func (p *peer) hangUp() {
	p.conn.Close()
	<-p.done
}
