package attach

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// A valueWatch has attached specs.
type valueWatch struct {
	values Values
	ring   *ringbuf.Reader
	every  uint32
	sites  map[uint32]ValueSite
	specs  map[uint32]string // by cookie
}

func newValueWatch(t *testing.T, every uint32, single bool) *valueWatch {
	t.Helper()
	needs.Root(t, "attaching to probes")
	o, err := bpf.Load(bpf.Options{SingleProbes: single})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	w := &valueWatch{every: every, sites: map[uint32]ValueSite{}, specs: map[uint32]string{}}
	w.values.Uprobes = NewUprobes()
	w.values.Uprobes.single = w.values.Uprobes.single || single
	if w.values.Objects, err = o.LoadProbes(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.values.Objects.Close() })
	cookies := uint32(0)
	w.values.Register = func() (uint32, error) {
		cookies++
		return cookies, w.values.Objects.Probes.Put(cookies, bpf.ProbeRate{Every: every})
	}
	if w.ring, err = ringbuf.NewReader(o.Events); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.ring.Close() })
	return w
}

// attach attaches to a file for one process, or all if pid is 0.
func (w *valueWatch) attach(t *testing.T, f *os.File, e *elffile.File, pid int, text string) (sites int) {
	t.Helper()
	spec, err := valueprobe.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	found, err := ValueSites(probesite.New(e, f), spec)
	if errors.Is(err, probesite.ErrNotFound) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	values, links, err := w.values.attach(f, pid, spec, found)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { CloseLinks(links) })
	for _, v := range values {
		w.sites[v.Cookie], w.specs[v.Cookie] = v, text
	}
	return len(values)
}

// attachMapped attaches to all files that a process maps.
func (w *valueWatch) attachMapped(t *testing.T, pid int, specs ...string) {
	t.Helper()
	sites := map[string]int{}
	if _, err := MappedFiles(proc.DefaultRoot, pid, testLimits, func(m *MappedFile) error {
		for _, text := range specs {
			if spec, err := valueprobe.Parse(text); err == nil && spec.MatchesFile(m.Path) {
				sites[text] += w.attach(t, m.File, m.ELF, pid, text)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, text := range specs {
		if sites[text] == 0 {
			t.Errorf("%s: no site", text)
		}
	}
}

// recorded returns how many executions had which values, by spec.
func (w *valueWatch) recorded(t *testing.T) map[string]map[string]int {
	t.Helper()
	recorded := map[string]map[string]int{}
	for {
		w.ring.SetDeadline(time.Now().Add(50 * time.Millisecond))
		raw, err := w.ring.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return recorded
		}
		if err != nil {
			t.Fatal(err)
		}
		var o bpf.Observation
		if err := bpf.DecodeObservation(raw.RawSample, &o); err != nil {
			t.Fatal(err)
		}
		site, ok := w.sites[o.Seen.Probe]
		if !ok || len(o.User) == 0 {
			t.Errorf("probe %d with %d frames", o.Seen.Probe, len(o.User))
		}
		var words []string
		for _, r := range site.Readings(&o) {
			switch {
			case r.Failed:
				words = append(words, "?")
			case r.IsText:
				words = append(words, r.Text)
			case r.Signed:
				words = append(words, strconv.FormatInt(int64(r.Number), 10))
			default:
				words = append(words, strconv.FormatUint(r.Number, 10))
			}
		}
		spec := w.specs[o.Seen.Probe]
		if recorded[spec] == nil {
			recorded[spec] = map[string]int{}
		}
		recorded[spec][strings.Join(words, " ")] += int(o.Seen.Every)
	}
}

// TestLiveValuesHotSpot makes a JVM do full garbage collections, start the threads that serve jcmd,
// and compile.
func TestLiveValuesHotSpot(t *testing.T) {
	const (
		collection = "usdt:hotspot:gc__begin=arg1"
		thread     = "libjvm.so:usdt:hotspot:thread__start=arg1:str:arg2,arg5:u8"
		compiled   = "usdt:hotspot:compiled__method__load=arg1:str:arg2,arg2,arg3:str:arg4,arg5:str:arg6,arg7,arg8,arg3:u8,arg3@0:u8"
	)
	for _, jdk := range needs.JDKs(t) {
		t.Run(fmt.Sprint(jdk.Version), func(t *testing.T) {
			w := newValueWatch(t, 1, false)
			guest, err := guests.Start(t.Context(), jdk, guests.Programs()[0], guests.Flavour{})
			if err != nil {
				t.Fatal(err)
			}
			defer guest.Close()
			w.attachMapped(t, guest.PID(), collection, thread, compiled)
			w.recorded(t) // what was before
			for range 3 {
				jcmd := exec.Command(filepath.Join(jdk.Home, "bin", "jcmd"), strconv.Itoa(guest.PID()), "GC.run")
				if out, err := jcmd.CombinedOutput(); err != nil {
					t.Fatalf("jcmd: %v: %s", err, out)
				}
			}
			recorded := w.recorded(t)
			if n := recorded[collection]["1"]; n != 3 {
				t.Errorf("collections %v, want 3 that are full", recorded[collection])
			}
			if recorded[thread]["Attach Listener 1"] != 1 {
				t.Errorf("threads %v, want one Attach Listener, a daemon", recorded[thread])
			}
			if len(recorded[compiled]) == 0 {
				t.Error("nothing was compiled")
			}
			for text := range recorded[compiled] {
				words := strings.Split(text, " ")
				if len(words) != 8 {
					t.Fatalf("compiled %q", text)
				}
				class, length, method, signature, address, size, first := words[0], words[1], words[2], words[3],
					words[4], words[5], words[7]
				if length != fmt.Sprint(len(class)) || method == "" || !strings.HasPrefix(signature, "(") ||
					first != fmt.Sprint(method[0]) {
					t.Errorf("compiled %q", text)
				}
				if a, err := strconv.ParseUint(address, 10, 64); err != nil || a < 1<<16 || size == "0" {
					t.Errorf("compiled %q: no address or size", text)
				}
			}
		})
	}
}

// TestLiveValuesPHP compares the names that PHP passes with the calls that its program reports.
func TestLiveValuesPHP(t *testing.T) {
	truth, err := php.Truth()
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	for call, n := range truth {
		calls[call.Callee] += n
	}
	const rounds = 97
	for _, run := range []struct {
		every  uint32
		single bool
	}{{1, false}, {1, true}, {97, false}} {
		every := run.every
		t.Run(fmt.Sprintf("%+v", run), func(t *testing.T) {
			w := newValueWatch(t, every, run.single)
			guest, err := php.Start(t.Context(), php.Known, php.Traced)
			if errors.Is(err, php.ErrMissing) {
				needs.Missing(t, err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer guest.Close()
			const entry = "usdt:php:function__entry=arg4:str,arg5:str,arg1:str,arg3"
			w.attachMapped(t, guest.PID(), entry)
			if _, err := guest.Run(rounds); err != nil {
				t.Fatal(err)
			}
			got, total := map[string]int{}, 0
			for text, n := range w.recorded(t)[entry] {
				words := strings.Split(text, " ")
				if len(words) != 4 || strings.HasPrefix(words[3], "-") || words[3] == "0" {
					t.Fatalf("values %q", text)
				}
				got[words[0]+words[1]+words[2]] += n
				total += n
			}
			if every == 1 {
				for name, n := range calls {
					if got[name] != n*rounds {
						t.Errorf("%s: %d calls, want %d", name, got[name], n*rounds)
					}
				}
				return
			}
			want := rounds * 101
			if slack := int(every) * runtime.NumCPU(); total < want-slack || total > want+slack+2*int(every) {
				t.Errorf("%d calls, want %d within %d: %v", total, want, slack, got)
			}
		})
	}
}

// TestLiveValuesFunction reads what PHP writes, from the arguments of a function: its answer to an
// order.
func TestLiveValuesFunction(t *testing.T) {
	w := newValueWatch(t, 1, false)
	guest, err := php.Start(t.Context(), php.Known)
	if errors.Is(err, php.ErrMissing) {
		needs.Missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	const write = "libc.so.6:func:write=arg1:s32,arg2:str:arg3,arg3"
	w.attachMapped(t, guest.PID(), write)
	answer, err := guest.Run(3)
	if err != nil {
		t.Fatal(err)
	}
	written := strings.TrimRight(answer, "\n") + "\n"
	want := fmt.Sprintf("1 %s %d", written, len(written))
	if recorded := w.recorded(t)[write]; recorded[want] != 1 {
		t.Errorf("recorded %v, want %q once", recorded, want)
	}
}

// TestLiveValuesAllocations: buffers for allocation are at least as large as the objects that they
// are for.
func TestLiveValuesAllocations(t *testing.T) {
	const buffers = "libjvm.so:func:AllocTracer::send_allocation_in_new_tlab=arg3,arg4"
	w := newValueWatch(t, 1, false)
	guest, err := guests.Start(t.Context(), needs.JDK(t), guests.Programs()[0], guests.Flavour{})
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	w.attachMapped(t, guest.PID(), buffers)
	jcmd := exec.Command(filepath.Join(needs.JDK(t).Home, "bin", "jcmd"), strconv.Itoa(guest.PID()),
		"GC.class_histogram")
	if out, err := jcmd.CombinedOutput(); err != nil { // whose thread needs a buffer
		t.Fatalf("jcmd: %v: %s", err, out)
	}
	recorded := w.recorded(t)[buffers]
	for text := range recorded {
		var buffer, object uint64
		if _, err := fmt.Sscan(text, &buffer, &object); err != nil || object == 0 || object%8 != 0 || buffer < object ||
			buffer > 1<<30 {
			t.Errorf("buffer and object %q: %v", text, err)
		}
	}
	if len(recorded) == 0 {
		t.Error("no buffers")
	}
}

// TestLiveValuesSemaphore attaches where another tool is attached without the semaphore.
func TestLiveValuesSemaphore(t *testing.T) {
	w := newValueWatch(t, 1, false)
	guest, err := php.Start(t.Context(), php.Known)
	if errors.Is(err, php.ErrMissing) {
		needs.Missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	spec, err := valueprobe.Parse("usdt:php:function__entry=arg1:str")
	if err != nil {
		t.Fatal(err)
	}
	refused := false
	if _, err := MappedFiles(proc.DefaultRoot, guest.PID(), testLimits, func(m *MappedFile) error {
		sites, err := ValueSites(probesite.New(m.ELF, m.File), spec)
		if errors.Is(err, probesite.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		others, err := w.values.Uprobes.Attach(m.File, guest.PID(), w.values.Objects.ValueProbe, []Site{{Offset: sites[0].Offset}})
		if err != nil {
			return err
		}
		defer CloseLinks(others)
		_, links, err := w.values.attach(m.File, guest.PID(), spec, sites)
		defer CloseLinks(links)
		if refused = true; err == nil || !strings.Contains(err.Error(), "end that tool first") {
			t.Errorf("attached beside another, with another semaphore: %v", err)
		}
		return nil
	}); err != nil || !refused {
		t.Fatal(err, refused)
	}
}

// TestLiveValuesGuest reads the slots of the reference guest's threads, when they begin and end;
// slots are reused.
func TestLiveValuesGuest(t *testing.T) {
	vm, err := guests.BuildVM(t.Context(), t.TempDir())
	if errors.Is(err, guests.ErrNoCompiler) {
		needs.Missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := newValueWatch(t, 1, false)
	f, err := os.Open(vm.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, err := elffile.OpenFile(f)
	if err != nil {
		t.Fatal(err)
	}
	const begins, ends = "usdt:vmprof:thread=arg1", "usdt:vmprof:thread_end=arg1,arg1+100:s32"
	if w.attach(t, f, e, 0, begins) == 0 || w.attach(t, f, e, 0, ends) == 0 {
		t.Fatal("no sites")
	}
	const threads = 3
	run, err := vm.Start(t.Context(), guests.VMOptions{Program: "threaded", Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Run(1); err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	recorded := w.recorded(t)
	began := 0
	for slot, n := range recorded[begins] {
		began += n
		i, _ := strconv.Atoi(slot)
		ended := recorded[ends][fmt.Sprintf("%d %d", i, i+100)]
		if i == 0 && (n != 1 || ended != 0) || i > 0 && ended != n || i < 0 || i >= threads { // 0 is the main thread's
			t.Errorf("slot %s was taken %d times, and given back %d times", slot, n, ended)
		}
	}
	if began != threads {
		t.Errorf("threads that began: %v, want %d", recorded[begins], threads)
	}
}

// attach attaches spec to all of its sites in file; pid is as in Uprobes.Attach.
func (v *Values) attach(
	file *os.File, pid int, spec valueprobe.Spec, sites []probesite.Site,
) ([]ValueSite, []link.Link, error) {
	values, places, err := v.Prepare(spec, sites)
	if err != nil {
		return nil, nil, err
	}
	links, err := v.Uprobes.Attach(file, pid, v.Objects.ValueProbe, places)
	if err != nil {
		return nil, nil, fmt.Errorf("attach to %s: %w", spec.Place(), err)
	}
	return values, links, nil
}
