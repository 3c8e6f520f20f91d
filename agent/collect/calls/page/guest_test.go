//go:build linux

package page

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

const peerVariable = "VMPROF_PAGE_TEST_PEER"

// playPeer connects to the socket named by the variable, passes the connection to a child, and
// waits to be killed.
func playPeer() {
	conn, err := net.Dial("unixpacket", os.Getenv(peerVariable))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	file, err := conn.(*net.UnixConn).File()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	child := exec.Command("sleep", "30")
	child.ExtraFiles = []*os.File{file}
	if err := child.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(child.Process.Pid)
	select {}
}

// The peer is the process that connected: when it has ended, the peer is gone, even if a child
// still holds the connection.
func TestPeer(t *testing.T) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), peerVariable+"="+l.Addr().String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(child, syscall.SIGKILL) }()

	p, err := peerOf(conn, "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if p.id.PID != cmd.Process.Pid || p.uid != uint32(os.Getuid()) || p.id.Start == 0 {
		t.Errorf("peer %+v, want process %d", p, cmd.Process.Pid)
	}
	if p.gone() {
		t.Error("gone too early")
	}
	waited := make(chan struct{})
	go func() { p.wait(); close(waited) }()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-waited:
	case <-time.After(10 * time.Second):
		t.Fatal("the end of the peer was not noticed")
	}
	if !p.gone() {
		t.Error("not gone after its end")
	}
}

// Waiting ends when the peer is closed.
func TestPeerClose(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("unixpacket", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p, err := peerOf(conn, "")
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	go func() { p.wait(); close(waited) }()
	wait.For(t, wait.Long, "a goroutine waits", func() bool {
		all := make([]byte, 1<<20)
		all = all[:runtime.Stack(all, true)]
		return slices.ContainsFunc(strings.Split(string(all), "\n\n"), func(stack string) bool {
			return strings.Contains(stack, "[IO wait") && strings.Contains(stack, ".(*peer).wait(")
		})
	})
	p.close()
	<-waited
}
