package profile

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func TestByCode(t *testing.T) {
	thread := func(name string, weights map[symbol.Kind]uint64, unknown uint64) *Thread {
		tree := new(cct.Tree[symbol.Symbol])
		tree.Add(nil, unknown)
		for kind, weight := range weights {
			tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "f", Kind: kind})}, weight)
		}
		return &Thread{Name: name, Tree: tree}
	}
	p := &Process{Runtime: "hotspot", Threads: []*Thread{
		thread("main", map[symbol.Kind]uint64{symbol.KindJIT: 1, symbol.KindInterpreted: 2, symbol.KindNative: 4,
			symbol.KindKernel: 8}, 16),
		thread("C2 CompilerThre", map[symbol.Kind]uint64{symbol.KindNative: 32, symbol.KindKernel: 64}, 0),
		thread("G1 Conc#0", map[symbol.Kind]uint64{symbol.KindNative: 128}, 0),
		thread("G1 reader", map[symbol.Kind]uint64{symbol.KindJIT: 512}, 0), // an application's
		thread("VM Thread", map[symbol.Kind]uint64{symbol.KindNative: 256}, 0),
		{Name: "never ran"},
	}}
	if got, want := p.ByCode(1), [CodeKinds]float64{515, 20, 8, 96, 128, 256}; got != want {
		t.Errorf("%v, want %v", got, want)
	}
	// A thread whose samples stand for 3 ns each, and one that has 5 ns without a sample.
	p.Threads[0].SampleTime = 3
	p.Threads[1].Unseen, p.Threads[1].UnseenIn = 5, Waking
	if got, want := p.ByCode(1), [CodeKinds]float64{3*3 + 512, 3 * 20, 3 * 8, 96 + 5, 128, 256}; got != want {
		t.Errorf("with run times %v, want %v", got, want)
	}
	p.Threads[0].SampleTime, p.Threads[1].Unseen = 0, 0
	p.Runtime = ""
	if got, want := p.ByCode(1), [CodeKinds]float64{515, 436, 72}; got != want {
		t.Errorf("without a VM %v, want %v", got, want)
	}
}

func TestInLibrary(t *testing.T) {
	for _, c := range []struct {
		method, file string
		want         bool
	}{
		{"java.util.HashMap.get", "HashMap.java", true}, {"sun.nio.cs.StreamDecoder.readBytes", "", true},
		{"jdk.proxy2.$Proxy7.run", "", true}, {"com.sun.org.apache.xpath.internal.XPath.execute", "XPath.java", true},
		{"org.w3c.dom.Node.getNodeName", "", true}, {"com.acme.Cart.total", "Cart.java", false},
		{"Main.main", "Main.java", false}, {"javaagent.Main.run", "", false},
		{"org.apache.xpath.XPath.execute", "XPath.java", false},
		{"json.decoder.JSONDecoder.decode", "/usr/lib/python3.11/json/decoder.py", true},
		{"json.decoder.JSONDecoder.decode", "/opt/python313.zip/json/decoder.py", true},
		{"flask.app.Flask.run", "/srv/venv/lib/python3.13t/site-packages/flask/app.py", true},
		{"apt.cache.Cache.open", "/usr/lib/python3/dist-packages/apt/cache.py", true},
		{"importlib._bootstrap._find_and_load", "<frozen importlib._bootstrap>", true},
		{"shop.cart.total", "/srv/shop/cart.py", false}, {"shop.total", "/srv/pythonic/shop.py", false},
		{"total", "<string>", false}, {"Cart.total", "site-packages.java", false},
	} {
		if got := InLibrary(c.method, c.file); got != c.want {
			t.Errorf("%s in %s: %v", c.method, c.file, got)
		}
	}
}
