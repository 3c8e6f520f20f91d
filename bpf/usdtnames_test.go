//go:build linux && amd64

package bpf

import (
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"
)

// The caller is the nearest user function: behind internal functions and frames without one, but
// not behind too many.
func TestKernelUSDTCaller(t *testing.T) {
	g := newUSDTGuest(t, 1, 1)
	user, eval, internal := &phpFunction{kind: 2}, &phpFunction{kind: 4}, &phpFunction{kind: 1}
	loop := chainPHP(user, internal)
	loop.prev.prev = loop.prev
	const most = 8 // MAX_PHP_INTERNAL
	deep := func(n int) *phpFrame {
		return chainPHP(slices.Concat([]*phpFunction{user}, slices.Repeat([]*phpFunction{internal}, n),
			[]*phpFunction{user})...)
	}
	for _, c := range []struct {
		name  string
		frame *phpFrame
		want  *phpFunction
		line  uint32
	}{
		{"a function", chainPHP(user, user), user, 10},
		{"evaluated code", chainPHP(user, eval, user), eval, 10},
		{"a callback", chainPHP(user, internal, user), user, 20},
		{"a generator", chainPHP(user, nil, internal, user), user, 30},
		{"no caller", chainPHP(user), nil, 0},
		{"only internal functions", chainPHP(user, internal, internal), nil, 0},
		{"many of them", deep(most - 1), user, 10 * most},
		{"too many of them", deep(most), nil, 0},
		{"a chain without end", loop, nil, 0},
		{"no frame", nil, nil, 0},
	} {
		r := g.play(t, g.UsdtPlayCaller, UsdtTestUsdtRequest{Frame: uint64(uintptr(unsafe.Pointer(c.frame)))})
		if r.Func != uint64(uintptr(unsafe.Pointer(c.want))) || r.Line != c.line || (r.Answer != 0) != (c.want != nil) {
			t.Errorf("%s: function %#x, line %d, want %p, %d", c.name, r.Func, r.Line, c.want, c.line)
		}
		runtime.KeepAlive(c.frame)
	}
}

// A call is believed if the probe's arguments point into the strings that PHP's structures lead to.
// It is sent with its names, or counted.
func TestKernelUSDTEnter(t *testing.T) {
	g := newUSDTGuest(t, 1, 1)
	name, file, class := newPHPString("callee"), newPHPString("a.php"), newPHPString("Class")
	callee := &phpFunction{kind: 2, name: name, file: file, opcode: 1}
	script := &phpFunction{kind: 2, file: file, opcode: 2} // has no name
	caller := &phpFunction{kind: 2, name: newPHPString("caller"), file: newPHPString("b.php"),
		scope: &phpClass{name: class}, opcode: 3}
	address := func(s *phpString) UsdtTestOperand {
		o := UsdtTestOperand{Kind: OperandConstant, Size: 8}
		if s != nil {
			o.Displacement = int64(uintptr(unsafe.Pointer(&s.value)))
		}
		return o
	}
	events, err := ringbuf.NewReader(g.Events)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	for _, c := range []struct {
		what                 string
		name, file, class    *phpString // arguments
		filename             uint32     // offset
		frame                *phpFrame
		callee, from, inFile string // names; "" callee: not believed
	}{
		{"a method", name, file, class, 152, chainPHP(callee, caller), "callee", "caller", "b.php"},
		{"a script", newPHPString("main"), file, nil, 152, chainPHP(script, caller), "main", "caller", "b.php"},
		{"no caller", name, file, class, 152, chainPHP(callee), "callee", "", ""},
		{"another name", newPHPString("callee"), file, class, 152, chainPHP(callee, caller), "", "", ""},
		{"another file", name, newPHPString("a.php"), class, 152, chainPHP(callee, caller), "", "", ""},
		{"another version", name, file, class, 144, chainPHP(callee, caller), "", "", ""},
		{"an internal function", name, file, class, 152, chainPHP(&phpFunction{kind: 1, name: name, file: file}), "",
			"", ""},
		{"no function", name, file, class, 152, chainPHP(nil, caller), "", "", ""},
		{"no frame", name, file, class, 152, nil, "", "", ""},
	} {
		probe := UsdtTestUsdtProbe{Name: address(c.name), File: address(c.file), ClassName: address(c.class),
			Filename: c.filename, Opcodes: 88}
		if err := g.UsdtProbes.Put(uint32(0), &probe); err != nil {
			t.Fatal(err)
		}
		r := g.play(t, g.UsdtPlayEnter, UsdtTestUsdtRequest{Frame: uint64(uintptr(unsafe.Pointer(c.frame)))})
		runtime.KeepAlive(c)
		if believed := c.callee != ""; (r.Func != 0) != believed || (events.AvailableBytes() != 0) != believed {
			t.Errorf("%s: function %#x, %d bytes sent", c.what, r.Func, events.AvailableBytes())
		}
		if r.Func == 0 {
			continue
		}
		events.SetDeadline(time.Now()) // nobody is woken for calls
		rec, err := events.Read()
		if err != nil {
			t.Fatal(err)
		}
		n, err := DecodeNamedCall(rec.RawSample)
		if err != nil {
			t.Fatal(err)
		}
		text := func(b []uint8) string { return string(b[:slices.Index(b, 0)]) }
		if text(n.CalleeName[:]) != c.callee || text(n.CallerName[:]) != c.from || text(n.CallerFile[:]) != c.inFile ||
			text(n.CalleeFile[:]) != "a.php" {
			t.Errorf("%s: from %s in %s to %s in %s", c.what, n.CallerName, n.CallerFile, n.CalleeName, n.CalleeFile)
		}
		if c.class != nil && text(n.CalleeClass[:]) != "Class" || c.from != "" &&
			(text(n.CallerClass[:]) != "Class" || n.CallerLine != 10) {
			t.Errorf("%s: class %s, called by class %s at line %d", c.what, n.CalleeClass, n.CallerClass, n.CallerLine)
		}
	}
	var (
		site  UsdtTestUsdtSite
		edge  UsdtTestUsdtEdge
		edges = map[[2]uint64]uint64{}
	)
	for it := g.UsdtEdges.Iterate(); it.Next(&site, &edge); {
		edges[[2]uint64{site.Caller, site.Callee}] += edge.Calls
	}
	if want := map[[2]uint64]uint64{{3, 1}: 1, {3, 2}: 1, {0, 1}: 1}; !maps.Equal(edges, want) {
		t.Errorf("counted %v, want %v", edges, want)
	}
}
