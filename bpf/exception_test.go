//go:build linux && amd64

package bpf

import "testing"

// An exception has its class, which the handle leads to; a handle of nothing has none.
func TestKernelExceptions(t *testing.T) {
	q, heap := newProber(t, Options{}), newFakeHeap(t)
	q.layout(t, heap.HotspotHeap)
	p := q.attach(t, q.p.ExceptionCreated, 1)
	object, handle := heap.object(heap.klass("com/acme/Missing", 0), 0), heap.allocate(8)
	heap.mem.put64(handle, object)
	const env = 1
	for _, test := range []struct {
		handle, object uint64
		class          string
	}{{handle, object, "com/acme/Missing"}, {0, 0, ""}} {
		p.hit(arguments{env, test.handle})
		o := q.one(t)
		if o.seen.What != ObservedException || o.seen.Object != test.object || o.text != test.class || o.seen.Every != 1 {
			t.Errorf("%+v with %q, want %+v", o.seen, o.text, test)
		}
	}
	q.rate(t, p, 0)
	p.hit(arguments{env, handle})
	q.none(t, "an exception at rate 0")
}
