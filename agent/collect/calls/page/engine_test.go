//go:build linux

package page

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
	headers "github.com/vmprof-agent/vmprof-agent/contrib/guest"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// Calls of an unprivileged process with several threads arrive, with the right names, in the right
// proportions, and no state is left afterwards.
func TestLiveGuest(t *testing.T) {
	s := newStage(t, nil)
	tune(t, s, 100, 31, 32)
	g := startGuest(t, s.socket, "skewed", "3", "1.5")
	if all := s.Connected(); len(all) != 1 || all[g.Process.Pid] != "testguest" {
		t.Errorf("guests %+v", all)
	}
	g.finish(t)
	got := s.drained(t)

	threads := map[uint32]int{}
	for _, c := range got {
		threads[c.Header.Tid]++
		if c.Header.Pid != uint32(g.Process.Pid) || c.Engine != bpf.EnginePage {
			t.Fatalf("call %+v", c)
		}
	}
	if len(threads) != 3 {
		t.Errorf("calls by thread: %v, want three", threads)
	}
	if overlap := cct.Overlap(&s.graph, &g.truth); overlap < 95 {
		t.Errorf("overlap %.1f%%", overlap)
		for e, n := range g.truth.Edges() {
			t.Logf("%v: %.4f, want %.4f", e, s.graph.Weight(e)/s.graph.Total(), n/g.truth.Total())
		}
	}
	c, err := s.objects.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	if c[bpf.CallHits] != c[bpf.CallsAttempted] || c[bpf.CallHitsRefused] != 0 {
		t.Errorf("%d hits, %d sampled, %d refused", c[bpf.CallHits], c[bpf.CallsAttempted], c[bpf.CallHitsRefused])
	}
	if cost := s.Cost(); cost.Hits != c[bpf.CallHits] || cost.HitTime <= 0 || cost.Arming <= 0 || cost.TickTime <= 0 {
		t.Errorf("cost %+v of %d hits", cost, c[bpf.CallHits])
	}
	st := s.Stats()
	if st.Accepted != 1 || st.Resolved != uint64(len(got)) || st.Messages != 63 {
		t.Errorf("stats %+v of %d calls", st, len(got))
	}
	s.checkNothingLeft(t)
}

// checkNothingLeft checks that no state of any process is left.
func (s *stage) checkNothingLeft(t testing.TB) {
	t.Helper()
	wait.For(t, wait.Long, "guests to be removed", func() bool { return s.Stats().Guests == 0 })
	wait.For(t, wait.Long, "probes to be detached", func() bool {
		s.probes.mu.Lock()
		defer s.probes.mu.Unlock()
		return len(s.probes.free) == bpf.MaxBurstSites
	})
	var pid uint32
	var k bpf.PageGuest
	if s.Engine.objects.PageGuests.Iterate().Next(&pid, &k) {
		t.Errorf("the kernel side still knows guest %d", pid)
	}
	if n := s.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are still charged", n)
	}
}

// Of the adversary's calls (native to m1, m1 to m10, m1 to m11, repeated), every STRIDE-th is
// sampled, SAMPLES times.
func TestLiveStride(t *testing.T) {
	s := newStage(t, nil)
	const stride, samples = 7, 16
	// If the kernel moves the thread to another CPU, Spent may lack the time that is not in the
	// scheduler's account yet: one scheduler tick (see burst_spent), of which there are at least
	// 100 a second.
	const behind = 10 * time.Millisecond
	tune(t, s, 100, stride, samples)
	startGuest(t, s.socket, "figure1", "1", "1").finish(t)
	next := map[uint64]uint64{1: 10, 10: 11, 11: 1}
	bursts := map[uint64][]bpf.Call{}
	for _, c := range s.drained(t) {
		bursts[c.Burst] = append(bursts[c.Burst], c)
	}
	if len(bursts) < 20 {
		t.Fatalf("%d bursts in a second", len(bursts))
	}
	for number, b := range bursts {
		if len(b) > samples || len(b) < samples && number != uint64(len(bursts)) {
			t.Fatalf("burst %d has %d samples", number, len(b))
		}
		if b[0].Made < 1 || b[0].Made > b[0].Stride {
			t.Fatalf("burst %d begins with its call %d", number, b[0].Made)
		}
		for i := 1; i < len(b); i++ {
			want := b[i-1].Callee
			for range b[i].Stride {
				want = next[want]
			}
			if b[i].Callee != want || b[i].Made != b[i-1].Made+b[i].Stride || b[i].Spent+uint64(behind) < b[i-1].Spent {
				t.Fatalf("burst %d: %+v after %+v, want a call of m%d", number, b[i], b[i-1], want)
			}
		}
	}
}

// A program with phases that make calls at different rates: the weights give the true number of
// calls.
func TestLivePhases(t *testing.T) {
	s := newStage(t, nil)
	tune(t, s, 100, 127, 32)
	g := startGuest(t, s.socket, "phased", "1", "2")
	g.finish(t)
	without, with := cct.Overlap(s.plain(t), &g.truth), cct.Overlap(&s.graph, &g.truth)
	t.Logf("overlap %.1f%%, %.1f%% without weights", with, without)
	if with < 95 {
		t.Errorf("overlap %.1f%%", with)
	}
}

// Nothing is sampled while the rate is zero, and sampling resumes after that.
func TestLivePause(t *testing.T) {
	s := newStage(t, nil)
	startGuest(t, s.socket, "skewed", "1", "30")
	tune(t, s, 100, 1, 4)
	wait.For(t, wait.Long, "calls", func() bool { return s.Cost().Hits > 0 })
	tune(t, s, 0, 1, 4)
	before := s.Cost()
	wait.For(t, wait.Long, "the end of bursts under way, and then no more calls for 300 ms", func() bool {
		before = s.Cost()
		time.Sleep(300 * time.Millisecond) // It is the time in which nothing may happen.
		after := s.Cost()
		return after.Hits == before.Hits && after.Arming == before.Arming
	})
	tune(t, s, 100, 1, 4)
	wait.For(t, wait.Long, "calls after the pause", func() bool { return s.Cost().Hits > before.Hits })
}

// An unrelated process that connects and sends garbage is rejected, and harms neither the agent nor
// its processes.
func TestLiveGarbage(t *testing.T) {
	s := newStage(t, nil)
	tune(t, s, 100, 7, 16)
	g := startGuest(t, s.socket, "skewed", "1", "1")
	for _, test := range []struct {
		name   string
		first  []byte
		answer refusal // 0: none
	}{
		{"garbage", []byte("GET / HTTP/1.1\r\n\r\n"), refusedMalformed},
		{"a packet that is too long", make([]byte, 1<<16), refusedMalformed},
		{"a method first", methodPacket(7, 0x1000, 64, 0, 0, 0), refusedMalformed},
		{"another version", packet(n32(1), n32(2), make([]byte, 16)), refusedVersion},
		{"hello of a process without probes", goodHello, refusedNoProbes},
		{"and again at once", goodHello, refusedOften},
		{"nothing", nil, 0},
	} {
		conn, err := net.Dial("unixpacket", s.socket)
		if err != nil {
			t.Fatal(err)
		}
		if test.first == nil {
			conn.Close()
			continue
		}
		if _, err := conn.Write(test.first); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 64)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := conn.Read(answer)
		if err != nil || !bytes.Equal(answer[:n], refusedPacket(test.answer)) {
			t.Errorf("%s: answer % x, %v, want %v", test.name, answer[:n], err, test.answer)
		}
		if _, err := conn.Read(answer); !errors.Is(err, io.EOF) {
			t.Errorf("%s: not hung up: %v", test.name, err)
		}
		conn.Close()
	}
	g.finish(t)
	if n := len(s.drained(t)); n == 0 {
		t.Error("the guest was not sampled")
	}
	st := s.Stats()
	if st.Accepted != 1 || st.Refused["version"] != 1 || st.Refused["no_probes"] != 1 || st.Refused["often"] != 1 {
		t.Errorf("stats %+v", st)
	}
	s.checkNothingLeft(t)
}

// Processes that are not wanted are refused.
func TestLiveUnwanted(t *testing.T) {
	asked := make(chan int, 8)
	s := newStage(t, func(o *Options) {
		o.Wanted = func(pid int) bool { asked <- pid; return false }
	})
	conn, err := net.Dial("unixpacket", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(goodHello); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	if err != nil || !bytes.Equal(answer[:n], refusedPacket(refusedUnwanted)) {
		t.Errorf("answer % x, %v", answer[:n], err)
	}
	if pid := <-asked; pid != os.Getpid() {
		t.Errorf("asked for process %d, not %d", pid, os.Getpid())
	}
}

// A process whose vmprof.h placed 5-byte NOPs in functions that call nothing is refused, with the
// reason, and none of its probes are attached.
func TestLiveLongNops(t *testing.T) {
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s := newStage(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	if !attach.ReplacesNops() {
		t.Skip("needs a kernel that replaces NOPs of five bytes: 6.18")
	}
	header := strings.Replace(headers.Header, `VMPROF_SITE_ON_("nop",`,
		`VMPROF_SITE_ON_(".byte 0x0f, 0x1f, 0x44, 0, 0",`, 1)
	if err := os.WriteFile(filepath.Join(dir, "vmprof.h"), []byte(header), 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "guest")
	if out, err := exec.Command("cc", "-O2", "-I", dir, "-o", bin, "testdata/guest.c",
		"-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), bin, "1", "1", "1")
	cmd.Env = append(os.Environ(), "VMPROF_SOCKET="+s.socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, wait.Long, "an answer", func() bool {
		return s.Stats().Refused["probes"] > 0 || s.Stats().Accepted > 0
	})
	cmd.Process.Kill()
	cmd.Wait()
	said, err := os.ReadFile(log.Name())
	if stats := s.Stats(); stats.Refused["probes"] == 0 || stats.Accepted != 0 ||
		!strings.Contains(string(said), "one-byte nop") {
		t.Errorf("%+v, %v\n%s", stats, err, said)
	}
}

// A process that is killed in the middle of a burst is removed.
func TestLiveKilledGuest(t *testing.T) {
	s := newStage(t, nil)
	tune(t, s, 100, 1, 1<<20)
	g := startGuest(t, s.socket, "skewed", "2", "60")
	wait.For(t, wait.Long, "calls", func() bool { return s.Cost().Hits > 1000 })
	if err := g.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.checkNothingLeft(t)
}
