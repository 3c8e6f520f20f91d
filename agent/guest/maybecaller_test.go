package guest

import (
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// What is on top of the stack is a caller where a function has no frame, and nothing where it has
// one.
func TestMaybeCaller(t *testing.T) {
	rs := NewResolver(Config{Root: proc.DefaultRoot, Log: slog.New(slog.DiscardHandler),
		Pool: proc.NewPool(proc.PoolOptions{})})
	id, err := rs.root.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p := NewProcess(id)
	p.work.objects = map[uint64]*symbolize.Object{}
	caller := reflect.ValueOf(TestMaybeCaller).Pointer() + 64
	framed := reflect.ValueOf(TestMaybeCaller).Pointer()
	for name, test := range map[string]struct {
		sampled uintptr
		want    string
	}{
		"without a frame": {reflect.ValueOf(total).Pointer() + 3, "agent/guest.TestMaybeCaller"},
		"not built yet":   {framed, "agent/guest.TestMaybeCaller"},
		"with a frame":    {framed + 64, ""},
		"not Go":          {1 << 20, ""},
	} {
		n := rs.nameFrame(p, Wanted{RawFrame: RawFrame{Frame: bpf.MaybeCallerFrame(uint64(test.sampled),
			uint64(caller))}})
		if (len(n.Symbols) > 0) != (test.want != "") || test.want != "" &&
			!strings.HasSuffix(n.Symbols[0].Function(), test.want) {
			t.Errorf("%s: %v, want %q", name, n, test.want)
		}
	}
}
