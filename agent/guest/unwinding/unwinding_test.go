package unwinding

import (
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile/unwind"
)

func testTables(t *testing.T) (*Tables, *fakeKernel) {
	t.Helper()
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip(err)
	}
	k := newFakeKernel()
	pool := proc.NewPool(proc.PoolOptions{})
	return newTables(Config{Root: proc.DefaultRoot, Pool: pool, Log: slog.New(slog.DiscardHandler)}, k), k
}

// sleeper starts a process whose code is that of sleep and libc.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(10 * time.Second); ; { // until it is sleep, and not this test before its exec
		if _, ok := codeOf(t, cmd.Process.Pid, "libc"); ok {
			return cmd
		}
		if time.Now().After(deadline) {
			t.Fatal("no libc in sleep")
		}
		time.Sleep(time.Millisecond)
	}
}

// codeOf finds the code of a file that a process maps, by the beginning of its name.
func codeOf(t *testing.T, pid int, name string) (proc.Mapping, bool) {
	t.Helper()
	maps, err := proc.DefaultRoot.Maps(pid, proc.Executable)
	if err != nil {
		return proc.Mapping{}, false
	}
	for _, m := range maps {
		if strings.HasPrefix(filepath.Base(m.Path), name) {
			return m, true
		}
	}
	return proc.Mapping{}, false
}

// ask has a process leave a request.
func (k *fakeKernel) ask(pid int, sampled, untabled uint64) {
	k.wants[uint32(pid)] = bpf.UnwindWant{Sampled: sampled, Untabled: untabled}
}

// mappingOf is what a record has of an address.
func mappingOf(r bpf.UnwoundProcess, pc uint64) (bpf.UnwindMapping, bool) {
	for _, m := range r.Mappings {
		if m.Begin <= pc && pc < m.End {
			return m, true
		}
	}
	return bpf.UnwindMapping{}, false
}

func TestAnswer(t *testing.T) {
	tables, k := testTables(t)
	first := sleeper(t).Process.Pid
	libc, _ := codeOf(t, first, "libc")
	k.ask(first, libc.Start+64, libc.Start+64)
	tables.answerAll(t.Context())
	record := k.processes[uint32(first)]
	layout, err := proc.DefaultRoot.Layout(first)
	if err != nil {
		t.Fatal(err)
	}
	if record.Stack != layout.Stack || record.CodePages != layout.CodePages || record.Serial == 0 {
		t.Errorf("record {%#x %d %d} of a process with %+v", record.Stack, record.CodePages, record.Serial, layout)
	}
	m, ok := mappingOf(record, libc.Start+64)
	last, _ := mappingOf(record, libc.Limit-1)
	if !ok || m.Begin != libc.Start || last.End != libc.Limit || last.Table != m.Table || m.Table == bpf.NoUnwindTable ||
		k.tables[m.Table] != m.Generation || m.Base > m.Begin || m.Begin-m.Base > 1<<32 {
		t.Errorf("libc: %+v, of tables %v", m, k.tables)
	}
	if len(k.wants) != 0 {
		t.Errorf("requests are left: %v", k.wants)
	}

	// What another process needs is there: its file is not read.
	second := sleeper(t).Process.Pid
	libc2, _ := codeOf(t, second, "libc")
	k.ask(second, libc2.Start+64, libc2.Start+64)
	tables.answerAll(t.Context())
	if k.set != 1 || tables.Stats().Tables != 1 {
		t.Errorf("%d tables were set, %+v", k.set, tables.Stats())
	}
	if got, _ := mappingOf(k.processes[uint32(second)], libc2.Start+64); got.Table != m.Table {
		t.Errorf("table %d of libc there, %d here", got.Table, m.Table)
	}

	// A request for what is there already is left, so that the kernel side makes no other one.
	serial := k.processes[uint32(first)].Serial
	k.ask(first, libc.Start+64, libc.Start+64)
	tables.answerAll(t.Context())
	if len(k.wants) != 1 || k.processes[uint32(first)].Serial != serial {
		t.Error("a request for nothing new was answered")
	}
	found := func() bool {
		tables.Look()
		select {
		case <-tables.asked:
			return true
		default:
			return false
		}
	}
	if found() {
		t.Error("Look has a request answered that is left")
	}
	k.wants[1] = bpf.UnwindWant{}
	if !found() {
		t.Error("Look overlooks a request next to one that is left")
	}
	delete(k.wants, 1)
	tables.left.Store(&leftAlone{tables.left.Load().processes, time.Now().Add(-time.Second)})
	if !found() {
		t.Error("Look overlooks a request that is due again")
	}
	pause := tables.processes[uint32(first)].pause
	tables.processes[uint32(first)].until = time.Now().Add(-time.Second)
	tables.answerAll(t.Context())
	if len(k.wants) != 0 {
		t.Error("it is left for ever")
	}
	k.ask(first, libc.Start+64, libc.Start+64)
	tables.answerAll(t.Context())
	if p := tables.processes[uint32(first)]; p.pause != 2*pause {
		t.Errorf("left for %v, and then for %v", pause, p.pause)
	}
}

func TestAnswerVDSO(t *testing.T) {
	tables, k := testTables(t)
	pid := sleeper(t).Process.Pid
	vdso, ok := codeOf(t, pid, proc.VDSO)
	if !ok || tables.vdso == nil {
		t.Skip("no vDSO")
	}
	k.ask(pid, vdso.Start+0x600, vdso.Start+0x600)
	tables.answerAll(t.Context())
	if m, _ := mappingOf(k.processes[uint32(pid)], vdso.Start+0x600); k.set != 1 || m.Table == bpf.NoUnwindTable {
		t.Errorf("%d tables, %+v", k.set, m)
	}
}

// Code without unwind information is noted once, and known to have none.
func TestAnswerNone(t *testing.T) {
	tables, k := testTables(t)
	self := os.Getpid() // programs of Go have no .eh_frame
	program, ok := codeOf(t, self, filepath.Base(os.Args[0]))
	if !ok {
		t.Fatal("this test is not mapped")
	}
	k.ask(self, program.Start+64, program.Start+64)
	tables.answerAll(t.Context())
	if m, ok := mappingOf(k.processes[uint32(self)], program.Start+64); !ok || m.Table != bpf.NoUnwindTable {
		t.Errorf("%+v", m)
	}
	s := tables.Stats()
	if s.Losses[string(LossNone)] != 1 || s.Tables != 0 || len(tables.Notes()) != 1 {
		t.Errorf("%+v, notes %q", s, tables.Notes())
	}
}

// Code whose calls are made with a frame pointer is apart, if there is room for that.
func TestMarkFramed(t *testing.T) {
	tables, _ := testTables(t)
	one := tables.store.mustGet(t, fakeContent{id: 1, rows: 1})
	one.framed = []unwind.Range{{From: 0x1000, To: 0x3000}, {From: 0x5000, To: 0x9000}}
	const base = 1 << 20
	of := func(begin, end uint64, framed uint16) bpf.UnwindMapping {
		return bpf.UnwindMapping{
			Begin: begin, End: end, Base: base, Table: one.slot, Framed: framed, Generation: one.generation,
		}
	}
	none := bpf.UnwindMapping{Begin: base + 0x20000, End: base + 0x21000, Table: bpf.NoUnwindTable}
	for _, c := range []struct{ whole, want []bpf.UnwindMapping }{
		{[]bpf.UnwindMapping{of(base, base+0x10000, 0), none}, []bpf.UnwindMapping{
			of(base, base+0x1000, 0), of(base+0x1000, base+0x3000, 1), of(base+0x3000, base+0x5000, 0),
			of(base+0x5000, base+0x9000, 1), of(base+0x9000, base+0x10000, 0), none,
		}},
		{[]bpf.UnwindMapping{of(base+0x2000, base+0x6000, 0)}, []bpf.UnwindMapping{
			of(base+0x2000, base+0x3000, 1), of(base+0x3000, base+0x5000, 0), of(base+0x5000, base+0x6000, 1),
		}},
		{[]bpf.UnwindMapping{of(base+0x9000, base+0xa000, 0)}, []bpf.UnwindMapping{of(base+0x9000, base+0xa000, 0)}},
		{[]bpf.UnwindMapping{none}, []bpf.UnwindMapping{none}},
	} {
		if got := tables.markFramed(c.whole); !slices.Equal(got, c.want) {
			t.Errorf("%+v becomes %+v, want %+v", c.whole, got, c.want)
		}
	}
	gone := of(base, base+0x10000, 0)
	gone.Generation++
	if got := tables.markFramed([]bpf.UnwindMapping{gone}); len(got) != 1 {
		t.Errorf("by a table that was dropped: %+v", got)
	}
}

// Each loss is counted under its cause.
func TestLosses(t *testing.T) {
	t.Run("the process is gone", func(t *testing.T) {
		tables, k := testTables(t)
		k.ask(math.MaxInt32, 1, 1)
		tables.answerAll(t.Context())
		if tables.Stats().Losses[string(LossProcess)] != 1 || len(k.processes) != 0 {
			t.Errorf("%v", tables.Stats().Losses)
		}
		tables.sweep()
		if len(k.wants) != 0 || len(tables.processes) != 0 {
			t.Error("it is remembered")
		}
	})
	t.Run("the process ended later", func(t *testing.T) {
		tables, k := testTables(t)
		cmd := sleeper(t)
		pid := cmd.Process.Pid
		libc, _ := codeOf(t, pid, "libc")
		k.ask(pid, libc.Start, libc.Start)
		tables.answerAll(t.Context())
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		tables.sweep()
		if len(k.processes) != 0 || len(k.tables) != 1 {
			t.Errorf("%d records, %d tables", len(k.processes), len(k.tables))
		}
		for _, one := range tables.store.bySum {
			one.used = time.Now().Add(-2 * idleTable)
		}
		tables.sweep()
		if s := tables.Stats(); len(k.tables) != 0 || s.Tables != 0 || s.Bytes != 0 {
			t.Errorf("%d tables are left, %+v", len(k.tables), s)
		}
	})
	t.Run("the kernel has no memory", func(t *testing.T) {
		tables, k := testTables(t)
		pid := sleeper(t).Process.Pid
		libc, _ := codeOf(t, pid, "libc")
		k.full = unix.ENOMEM
		k.ask(pid, libc.Start, libc.Start)
		tables.answerAll(t.Context())
		if n := tables.Stats().Losses[string(LossKernel)]; n == 0 || len(k.processes) != 0 {
			t.Errorf("%v", tables.Stats().Losses)
		}
	})
	t.Run("too many mappings", func(t *testing.T) {
		tables, k := testTables(t)
		one := tables.store.mustGet(t, fakeContent{id: 1, rows: 1})
		var img image
		for i := range uint64(2 * bpf.MaxUnwindMappings) {
			img.maps = append(img.maps, proc.Mapping{Start: i << 20, Limit: i<<20 + 0x1000, Path: "/lib"})
			img.keys = append(img.keys, fileKey{inode: i + 1})
			if i%4 == 0 {
				tables.store.setFile(img.keys[i], one)
			}
		}
		mappings, more := tables.mappings(t.Context(), 1, &process{}, img, bpf.UnwindWant{})
		if !more || len(mappings) != bpf.MaxUnwindMappings/2 || tables.Stats().Losses[string(LossMappings)] != 0 {
			t.Errorf("%d mappings of files that have a table, %v", len(mappings), tables.Stats().Losses)
		}
		for _, key := range img.keys {
			tables.store.setFile(key, one)
		}
		mappings, _ = tables.mappings(t.Context(), 1, &process{}, img, bpf.UnwindWant{})
		if len(mappings) != bpf.MaxUnwindMappings || tables.Stats().Losses[string(LossMappings)] != 1 {
			t.Errorf("%d mappings, %v", len(mappings), tables.Stats().Losses)
		}
		_ = k
	})
	t.Run("too much time", func(t *testing.T) {
		tables, k := testTables(t)
		pid := sleeper(t).Process.Pid
		libc, _ := codeOf(t, pid, "libc")
		k.ask(pid, libc.Start, libc.Start)
		tables.credit = -time.Second
		tables.answerAll(t.Context())
		if len(k.processes) != 0 || tables.Stats().Losses[string(LossLate)] != 1 {
			t.Errorf("it was answered: %v", tables.Stats().Losses)
		}
		tables.credited = tables.credited.Add(-2 * buildShare * time.Second)
		tables.answerAll(t.Context())
		if len(k.processes) != 1 {
			t.Error("it is never answered")
		}
	})
}
