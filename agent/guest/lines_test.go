package guest

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// sum is for the compiler to inline.
func sum(a, b int) int { return a + b }

//go:noinline
func total(list []int) (n int) {
	for _, one := range list {
		n = sum(n, one)
	}
	return n
}

// native is the frame of an address.
func native(pc uintptr) bpf.Frame { return bpf.Frame(bpf.FrameNative)<<60 | bpf.Frame(pc) }

// The test is a Go program itself: its functions have lines, what is inlined into them, and the
// lines on which they begin.
func TestLines(t *testing.T) {
	rs := NewResolver(Config{Root: proc.DefaultRoot, Log: slog.New(slog.DiscardHandler),
		Pool: proc.NewPool(proc.PoolOptions{})})
	id, err := rs.root.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p := NewProcess(id)
	p.work.objects = map[uint64]*symbolize.Object{}
	entry := reflect.ValueOf(total).Pointer()
	inlined := false
	for pc := entry; runtime.FuncForPC(pc+1).Entry() == entry; pc++ {
		var frames []symbol.Frame
		for _, s := range rs.nameNative(p, Wanted{RawFrame: RawFrame{Frame: native(pc), Kind: RawExact}}).Symbols {
			frames = append(frames, s.Value())
		}
		if len(frames) == 0 {
			t.Fatalf("%#x has no frame", pc)
		}
		outer := frames[len(frames)-1]
		if outer.File == "" { // padding behind the code
			continue
		}
		if !strings.HasSuffix(outer.Function, "agent/guest.total") || filepath.Base(outer.File) != "lines_test.go" ||
			outer.StartLine != 22 ||
			outer.Line < 22 || outer.Line > 27 || outer.Inlined || outer.Kind != symbol.KindNative ||
			outer.Address != uint64(pc) {
			t.Fatalf("%#x: %+v", pc, outer)
		}
		if len(frames) > 1 {
			inlined = true
			if in := frames[0]; !strings.HasSuffix(in.Function, ".sum") || !in.Inlined || in.StartLine != 19 ||
				in.Line != 19 || in.Mapping != outer.Mapping {
				t.Errorf("%#x: %+v", pc, in)
			}
		}
	}
	if !inlined {
		t.Error("nothing is inlined")
	}

	if rs.sources.Load() != 1 || len(p.work.sources) != 1 {
		t.Errorf("%d files are open, %d of the process", rs.sources.Load(), len(p.work.sources))
	}
	rs.closeSources(p)
	if rs.sources.Load() != 1 {
		t.Error("the file of a running process is closed")
	}
	p.Exited.Store(true)
	rs.closeSources(p)
	if rs.sources.Load() != 0 || len(p.work.sources) != 0 {
		t.Errorf("%d files are open after the end, %d of the process", rs.sources.Load(), len(p.work.sources))
	}
	if n := rs.nameNative(p, Wanted{RawFrame: RawFrame{Frame: native(entry), Kind: RawExact}}); len(n.Symbols) != 1 {
		t.Errorf("without its file: %v", n)
	}
}
