package cpython

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A code object is named only if it is what the kernel side met, and if it is that since before the
// sample.
func TestStale(t *testing.T) {
	r := loadRecording(t, "3.11")
	code := r.Truth[0].Addr
	headers, err := r.attach(t, pieces(r.Pieces)).readHeaders([]uint64{code})
	if err != nil {
		t.Fatal(err)
	}
	o := byVersion[11]
	id := o.identityOf(headers[0])
	same := vmruntime.SeenMethod{Body: id.file, Shape: id.shape, Name: id.name, Since: 3}
	for _, test := range []struct {
		name       string
		seen       func(*vmruntime.SeenMethod) bool
		epoch, now uint32
		stale      bool
	}{
		{"the same", func(*vmruntime.SeenMethod) bool { return true }, 3, 3, false},
		{"the same, something else has changed", func(*vmruntime.SeenMethod) bool { return true }, 4, 9, false},
		{"the sample is older", func(*vmruntime.SeenMethod) bool { return true }, 2, 3, true},
		{"another file", func(m *vmruntime.SeenMethod) bool { m.Body++; return true }, 3, 3, true},
		{"another line", func(m *vmruntime.SeenMethod) bool { m.Shape++; return true }, 3, 3, true},
		{"another name", func(m *vmruntime.SeenMethod) bool { m.Name++; return true }, 3, 3, true},
		{"not met", func(*vmruntime.SeenMethod) bool { return false }, 3, 3, false},
		{"not met, something has changed", func(*vmruntime.SeenMethod) bool { return false }, 3, 4, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := r.attach(t, pieces(r.Pieces))
			p.epoch = func() uint32 { return test.now }
			p.seen = func(uint64) (m vmruntime.SeenMethod, ok bool) {
				m = same
				ok = test.seen(&m)
				return m, ok
			}
			site := vmruntime.Site{Kind: vmruntime.Interpreted, Method: code, Epoch: test.epoch}
			p.Prepare([]vmruntime.Site{site, {Kind: vmruntime.Interpreted, Method: r.Truth[1].Addr}})
			if _, err := p.Lookup(site); errors.Is(err, vmruntime.ErrStale) != test.stale {
				t.Errorf("error %v, want stale: %v", err, test.stale)
			}
		})
	}
}

func TestLookupOthers(t *testing.T) {
	r := loadRecording(t, "3.12")
	p := r.attach(t, pieces(r.Pieces))
	frames, err := p.Lookup(vmruntime.Site{Kind: vmruntime.Stub, PC: GILStub})
	if err != nil || len(frames) != 1 || frames[0].Function != GILFunction {
		t.Errorf("a wait for the lock: %v, %v", frames, err)
	}
	if _, err := p.Lookup(vmruntime.Site{Kind: vmruntime.Compiled}); !errors.Is(err, vmruntime.ErrUnknown) {
		t.Errorf("compiled code: %v", err)
	}
	for _, addr := range []uint64{0, 8, 1 << 63, r.Truth[0].Addr + 8} {
		site := vmruntime.Site{Kind: vmruntime.Interpreted, Method: addr}
		if _, err := p.Lookup(site); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("no code object: %v", err)
		}
	}
}

func TestStarting(t *testing.T) {
	for _, v := range recorded {
		r := loadRecording(t, v)
		p := r.attach(t, pieces(r.Pieces))
		memory := overlay{pieces(r.Pieces), p.layout.Interpreters, make([]byte, 8)}
		_, err := r.image().Attach(vmruntime.Target{Memory: memory, Bias: r.Bias})
		if !errors.Is(err, vmruntime.ErrStarting) {
			t.Errorf("%s without an interpreter: %v", v, err)
		}
	}
}

// An overlay is memory of which some bytes are others.
type overlay struct {
	pieces
	at   uint64
	data []byte
}

func (m overlay) Read(addr uint64, p []byte) error {
	if err := m.pieces.Read(addr, p); err != nil {
		return err
	}
	for i, b := range m.data {
		if at := m.at + uint64(i) - addr; at < uint64(len(p)) {
			p[at] = b
		}
	}
	return nil
}

func (m overlay) ReadBatch(ranges []vmruntime.Range) error {
	for i := range ranges {
		ranges[i].OK = m.Read(ranges[i].Addr, ranges[i].Buf) == nil
	}
	return nil
}

func debugOffsets(v version, field map[string]uint64) []byte {
	b := []byte(debugCookie)
	for _, name := range debugFields[v.minor()] {
		b = binary.LittleEndian.AppendUint64(b, field[name])
	}
	return b
}

// The offsets that 3.13 says agree with its headers.
func TestDebugOffsets(t *testing.T) {
	r := loadRecording(t, "3.13")
	o := r.attach(t, pieces(r.Pieces)).layout.Offsets
	want := Offsets{
		InterpretersHead: 632, InterpreterNext: 7264, ThreadsHead: 7344, InterpreterGIL: 16,
		ThreadNext: 8, ThreadInterpreter: 16, ThreadID: 152, ThreadFrame: 72,
		FrameCode: 0, FramePrevious: 8, FrameAt: 56, FrameEntry: 70, Form: EntryShim,
		CodeFirstLine: 68, CodeFile: 112, CodeName: 120, CodeQualifiedName: 128, CodeLines: 136, CodeBegin: 200,
		ObjectHeader: 16, ObjectType: 8, ASCIIHeader: 40, CompactHeader: 56,
	}
	if o != want {
		t.Errorf("got %+v, want %+v", o, want)
	}
}

func TestDebugOffsetsMalformed(t *testing.T) {
	const v = version(0x030e00f0)
	good := map[string]uint64{
		"version": uint64(v), "object.size": 16, "object.type": 8, "frame.previous": 8, "frame.instr_ptr": 56,
		"frame.owner": 78, "code.firstlineno": 68, "code.filename": 112, "code.name": 120, "code.qualname": 128,
		"code.linetable": 136, "code.code_adaptive": 208, "thread.next": 8, "thread.thread_id": 152,
	}
	if _, err := parseDebugOffsets(debugOffsets(v, good), v); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]uint64{
		"version": 0x030d00f0, "object.size": 8, "object.type": 4, "frame.previous": 128, "frame.instr_ptr": 1 << 60,
		"code.filename": 190, "code.name": 1, "code.linetable": 192, "thread.next": 1 << 40,
	} {
		bad := map[string]uint64{}
		for n, v := range good {
			bad[n] = v
		}
		bad[name] = value
		if _, err := parseDebugOffsets(debugOffsets(v, bad), v); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%s is %d: %v", name, value, err)
		}
	}
	b := debugOffsets(v, good)
	for _, cut := range [][]byte{nil, b[:len(b)-1], bytes.Replace(b, []byte("xdebugpy"), []byte("xdebugpx"), 1)} {
		if _, err := parseDebugOffsets(cut, v); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%d bytes: %v", len(cut), err)
		}
	}
}

func FuzzDebugOffsets(f *testing.F) {
	f.Add(debugOffsets(0x030d00f0, map[string]uint64{"version": 0x030d00f0, "object.size": 16, "object.type": 8}), true)
	f.Add(debugOffsets(0x030e00f0, map[string]uint64{"version": 0x030e00f0, "object.size": 32}), false)
	f.Fuzz(func(t *testing.T, b []byte, older bool) {
		v := version(0x030e00f0)
		if older {
			v = 0x030d00f0
		}
		o, err := parseDebugOffsets(b, v)
		if (err == nil) != (o.check() == nil) {
			t.Errorf("%+v, %v", o, err)
		}
	})
}

// FuzzLookup changes the memory of recorded guests. Whatever it is, a look-up ends, and names are of a
// bounded length.
func FuzzLookup(f *testing.F) {
	f.Add(uint8(0), uint16(0), uint16(3), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Add(uint8(3), uint16(2), uint16(16), []byte{0, 0, 0, 0, 0, 0, 1, 0})
	f.Add(uint8(4), uint16(1), uint16(32), []byte{0x84})
	all := make([]*recording, len(recorded))
	for i, v := range recorded {
		all[i] = loadRecording(f, v)
	}
	f.Fuzz(func(t *testing.T, which uint8, at, offset uint16, data []byte) {
		r := all[int(which)%len(all)]
		piece := r.Pieces[int(at)%len(r.Pieces)]
		memory := overlay{pieces(r.Pieces), piece.Addr + uint64(int(offset)%len(piece.Data)), data}
		attached, err := r.image().Attach(vmruntime.Target{Memory: memory, Bias: r.Bias, Epoch: func() uint32 { return 0 }})
		if err != nil {
			return
		}
		p := attached.(*Process)
		p.Prepare(r.sites())
		for _, site := range r.sites() {
			frames, err := p.Lookup(site)
			if err == nil && len(frames[0].Function) > 2*maxCharacters+1 {
				t.Errorf("a name of %d bytes", len(frames[0].Function))
			}
		}
	})
}
