package intern

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A sender is the kernel side, with as many tags as it likes.
type sender struct {
	seed      uint64
	suffixes  map[uint64]bool
	threads   map[uint32]string
	forgotten int
}

func (k *sender) Reseed(seed uint64) error {
	*k = sender{seed: seed, suffixes: map[uint64]bool{}, threads: map[uint32]string{}, forgotten: k.forgotten}
	return nil
}

func (k *sender) ForgetSuffix(tag uint64) error {
	delete(k.suffixes, tag)
	k.forgotten++
	return nil
}

func (k *sender) ForgetThread(tid uint32) error {
	delete(k.threads, tid)
	k.forgotten++
	return nil
}

// A tick is what a record is made of.
type tick struct {
	bpf.Header
	comm              string
	attachment, epoch uint32
	user              []bpf.Frame // innermost first
	kernel            []uint64
	end               bpf.WalkEnd
	flags             uint8
	lost              bool // the record does not go out
}

// tagsOf returns the tags of a stack's suffixes: at i that of 4 i frames, the last one that of all
// but the innermost.
func (k *sender) tagsOf(r tick) []uint64 {
	tag := k.seed
	for _, v := range []uint64{r.Start, uint64(r.Pid), uint64(r.Exec), uint64(r.attachment), uint64(r.epoch)} {
		tag = bpf.SuffixTag(tag, [4]bpf.Frame{bpf.Frame(v)})
	}
	tags := []uint64{tag}
	for at := len(r.user) - 1; at > 0; {
		var own [step]bpf.Frame
		for i := 0; i < len(own) && at > 0; i++ {
			own[i] = r.user[at]
			at--
		}
		tag = bpf.SuffixTag(tag, own)
		tags = append(tags, tag)
	}
	return tags
}

// send returns the record of a tick.
func (k *sender) send(r tick) []byte {
	tags := k.tagsOf(r)
	base := len(tags) - 1
	for base >= 0 && !k.suffixes[tags[base]] {
		base--
	}
	named := k.threads[r.Tid] == r.comm
	own := len(r.user)
	if named && base >= 0 {
		own = min(len(r.user)-step*base, len(r.user))
		if base == len(tags)-1 {
			own = min(len(r.user), 1)
		}
	}
	frames := slices.Clone(r.user[:own])
	for _, pc := range r.kernel {
		frames = append(frames, bpf.Frame(pc))
	}
	if !r.lost {
		k.threads[r.Tid] = r.comm
		for _, tag := range tags {
			k.suffixes[tag] = true
		}
	}
	if named && base >= 0 {
		h := bpf.ShortHeader{
			Header: r.Header, UserFrames: uint16(own), KernelFrames: uint16(len(r.kernel)), End: uint8(r.end),
			Flags: r.flags, Base: tags[base],
		}
		h.Header.Kind = bpf.EventShortSample
		return appendFrames(bytesOf(&h, unsafe.Sizeof(h)), frames)
	}
	s := bpf.ProfileSample{
		Header: r.Header, UserFrames: uint16(own), KernelFrames: uint16(len(r.kernel)), End: uint8(r.end),
		Flags:      r.flags,
		ClassEpoch: r.epoch, Attachment: r.attachment,
	}
	s.Header.Kind = bpf.EventFullSample
	copy(s.Comm[:], []uint8(r.comm))
	raw := appendFrames(bytesOf(&s, unsafe.Offsetof(s.Frames)), frames)
	return binary.NativeEndian.AppendUint64(raw, tags[0])
}

func bytesOf[T any](v *T, size uintptr) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(v)), size)...)
}

func appendFrames(raw []byte, frames []bpf.Frame) []byte {
	for _, f := range frames {
		raw = binary.NativeEndian.AppendUint64(raw, uint64(f))
	}
	return raw
}

// receive decodes a record.
func receive(s *Stacks, raw []byte) (sample bpf.Sample, err error) {
	if bpf.Kind(raw) == bpf.EventShortSample {
		err = s.Short(raw, &sample)
	} else {
		err = s.Full(raw, &sample)
	}
	return sample, err
}

func newStacks(t testing.TB) (*Stacks, *sender) {
	k := &sender{}
	s, err := New(k, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s, k
}

// check reports whether a sample is that of a tick.
func check(t *testing.T, got bpf.Sample, want tick) {
	t.Helper()
	comm := make([]byte, 16)
	copy(comm, want.comm)
	h := *got.Header
	h.Kind = 0
	if h != want.Header || !slices.Equal(got.User, want.user) || !slices.Equal(got.Kernel, want.kernel) ||
		string(got.Comm) != string(comm) ||
		got.End != want.end || got.Flags != want.flags || got.ClassEpoch != want.epoch ||
		got.Attachment != want.attachment {
		t.Fatalf("got %+v %+v, want %+v", *got.Header, got, want)
	}
}

func stackOf(frames ...bpf.Frame) []bpf.Frame {
	slices.Reverse(frames)
	return frames
}

func usual() tick {
	return tick{
		Header: bpf.Header{Time: 1, Start: 7, Pid: 100, Tid: 101, Exec: 1}, comm: "thread", attachment: 3, epoch: 4,
		end:  bpf.EndRoot,
		user: stackOf(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
	}
}

// What a sample has in common with earlier ones comes from those.
func TestStacks(t *testing.T) {
	s, k := newStacks(t)
	for _, c := range []struct {
		name   string
		change func(*tick)
		bytes  int
	}{
		{"new", func(*tick) {}, 64 + 80 + 8},
		{"again", func(*tick) {}, 48 + 8},
		{"another leaf", func(r *tick) { r.user = stackOf(1, 2, 3, 4, 5, 6, 7, 8, 9, 11) }, 48 + 8},
		{"in the kernel", func(r *tick) { r.kernel, r.flags = []uint64{1, 2}, bpf.SampleKernel }, 48 + 24},
		{"ended otherwise", func(r *tick) { r.end = bpf.EndPointer }, 48 + 8},
		{"at a safepoint", func(r *tick) { r.Stopped = 1 }, 48 + 8},
		{"deeper", func(r *tick) { r.user = stackOf(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) }, 48 + 32},
		{"less deep", func(r *tick) { r.user = stackOf(1, 2, 3, 4, 5) }, 48 + 8},
		{"a part of the last four", func(r *tick) { r.user = stackOf(1, 2, 3, 4, 5, 6) }, 48 + 16},
		{"one frame", func(r *tick) { r.user = stackOf(20) }, 48 + 8},
		{"none", func(r *tick) { r.user, r.kernel = nil, []uint64{5} }, 48 + 8},
		{"another thread", func(r *tick) { r.Tid = 102 }, 64 + 80 + 8},
		{"another name", func(r *tick) { r.Tid, r.comm = 102, "renamed" }, 64 + 80 + 8},
		{"another process", func(r *tick) { r.Pid, r.Tid = 300, 300 }, 64 + 80 + 8},
		{"another epoch", func(r *tick) { r.epoch++ }, 64 + 80 + 8},
		{"another VM", func(r *tick) { r.attachment++ }, 64 + 80 + 8},
		{"lost", func(r *tick) { r.user, r.lost = stackOf(30, 31), true }, 48 + 16},
		{"not lost", func(r *tick) { r.user = stackOf(30, 31) }, 48 + 16},
	} {
		r := usual()
		c.change(&r)
		raw := k.send(r)
		if len(raw) != c.bytes {
			t.Errorf("%s: %d bytes, want %d", c.name, len(raw), c.bytes)
		}
		if r.lost {
			continue
		}
		got, err := receive(s, raw)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		check(t, got, r)
	}
	if k.forgotten != 0 {
		t.Errorf("%d times something was asked for again", k.forgotten)
	}
}

// What is not known is asked for again, and nothing else takes its place.
func TestUnknown(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*Stacks, *tick)
	}{
		{"stack", func(s *Stacks, _ *tick) { clear(s.current.tags) }},
		{"thread", func(s *Stacks, _ *tick) { clear(s.current.threads) }},
		{"stack of another process", func(s *Stacks, _ *tick) { s.current.contexts[0].pid = 1 }},
		{"thread of another process", func(s *Stacks,
			_ *tick) {
			s.current.threads[101] = thread{owner: owner{pid: 1}}
		}},
	} {
		s, k := newStacks(t)
		r := usual()
		if _, err := receive(s, k.send(r)); err != nil {
			t.Fatal(err)
		}
		c.spoil(s, &r)
		if _, err := receive(s, k.send(r)); !errors.Is(err, ErrUnknown) || k.forgotten != 1 {
			t.Errorf("%s: error %v, %d times asked again", c.name, err, k.forgotten)
		}
	}
}

// Records that are not what they say are refused.
func TestMalformed(t *testing.T) {
	s, k := newStacks(t)
	r := usual()
	full := k.send(r)
	if _, err := receive(s, full); err != nil {
		t.Fatal(err)
	}
	short := k.send(r)
	for _, raw := range [][]byte{full[:len(full)-8], full[:60], short[:len(short)-8], short[:40],
		short[:len(short)-1]} {
		if _, err := receive(s, raw); !errors.Is(err, bpf.ErrMalformed) {
			t.Errorf("%d bytes: %v", len(raw), err)
		}
	}
	own := slices.Concat(short, short[len(short)-8:]) // two frames before nine
	own[unsafe.Offsetof(bpf.ShortHeader{}.UserFrames)]++
	if _, err := receive(s, own); !errors.Is(err, bpf.ErrMalformed) {
		t.Errorf("frames between those that are known: %v", err)
	}
}

// When too much is known there is a new seed. What was written before it changed is still
// understood, and then forgotten.
func TestSeeds(t *testing.T) {
	s, k := newStacks(t)
	s.limit = 8
	now := time.Duration(0)
	s.now = func() time.Duration { return now }
	first, random := k.seed, rand.New(rand.NewPCG(1, 2))
	var seeds int
	for range 20_000 {
		now += time.Millisecond
		before := *k
		r := usual()
		r.Time = uint64(now)
		r.user = r.user[random.IntN(3):]
		for range random.IntN(6) {
			r.user = slices.Insert(r.user, 0, bpf.Frame(random.Uint64N(4)+1))
		}
		got, err := receive(s, k.send(r))
		if err != nil {
			t.Fatal(err)
		}
		check(t, got, r)
		if k.seed == before.seed {
			continue
		}
		seeds++
		got, err = receive(s, before.send(r)) // by a program that had the seed already
		if err != nil {
			t.Fatal(err)
		}
		check(t, got, r)
		if s.current.suffixes.n > s.limit+8 || s.last.suffixes.n > 200 {
			t.Fatalf("%d suffixes are known, and %d from before", s.current.suffixes.n, s.last.suffixes.n)
		}
	}
	if k.seed == first || seeds < 10 || k.forgotten != 0 {
		t.Errorf("%d seeds, %d times something was asked for again", seeds, k.forgotten)
	}
}

// A process may send whatever records it can have the kernel side write.
func FuzzShort(f *testing.F) {
	k := &sender{}
	_ = k.Reseed(3)
	r := usual()
	f.Add(k.send(r), k.send(r))
	r.user = slices.Insert(r.user, 0, 5, 6)
	f.Add(k.send(r), k.send(r))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s, _ := newStacks(t)
		for _, raw := range [][]byte{first, second, second} {
			sample, err := receive(s, raw)
			if err == nil && (sample.Header == nil || len(sample.User) > bpf.MaxUserFrames || len(sample.Comm) != 16) {
				t.Errorf("%+v", sample)
			}
		}
	})
}

// BenchmarkShort completes samples of 24 frames, nearly all of which are known.
func BenchmarkShort(b *testing.B) {
	s, k := newStacks(b)
	r := usual()
	r.user = make([]bpf.Frame, 24)
	for i := range r.user {
		r.user[i] = bpf.Frame(i + 1)
	}
	if _, err := receive(s, k.send(r)); err != nil {
		b.Fatal(err)
	}
	raw := k.send(r)
	var sample bpf.Sample
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Short(raw, &sample); err != nil {
			b.Fatal(err)
		}
	}
}
