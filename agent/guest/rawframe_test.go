package guest

import (
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

const (
	compiledFrame    = bpf.Frame(uint64(bpf.FrameJIT)<<60 | 7<<32 | 0x100)
	interpretedFrame = bpf.Frame(uint64(bpf.FrameInterpreted)<<60 | 0x1234<<16 | 3)
	someFrame        = bpf.Frame(uint64(bpf.FrameNative)<<60 | 0x7f0000001000)
)

func TestRawStack(t *testing.T) {
	outermost := slices.Repeat([]bpf.Frame{someFrame}, bpf.RootFrames)
	rawOutermost := slices.Repeat([]RawFrame{{Frame: someFrame}}, bpf.RootFrames)
	for _, c := range []struct {
		name       string
		sample     bpf.Sample
		attachment uint32
		want       []RawFrame
	}{
		{
			"the first user frame is exact, interpreted frames carry the epoch",
			bpf.Sample{User: []bpf.Frame{compiledFrame, interpretedFrame}, End: bpf.EndRoot, Attachment: 1,
				ClassEpoch: 9}, 1,
			[]RawFrame{{Frame: compiledFrame, Kind: RawExact}, {Frame: interpretedFrame, Epoch: 9}},
		},
		{
			"kernel frames come first",
			bpf.Sample{User: []bpf.Frame{someFrame}, Kernel: []uint64{0xffffffff81000000}, End: bpf.EndRoot}, 0,
			[]RawFrame{{Frame: 0xffffffff81000000, Kind: RawKernel}, {Frame: someFrame, Kind: RawExact}},
		},
		{
			"frames of a VM that the process no longer runs are stale, native ones are not",
			bpf.Sample{User: []bpf.Frame{someFrame, compiledFrame}, End: bpf.EndRoot, Attachment: 1}, 2,
			[]RawFrame{{Frame: someFrame, Kind: RawExact}, {Kind: RawStale}},
		},
		{
			"the outermost frame says why the walk ended",
			bpf.Sample{User: []bpf.Frame{someFrame, someFrame}, End: bpf.EndPointer}, 0,
			[]RawFrame{{Frame: someFrame, Kind: RawExact}, {Frame: someFrame, End: bpf.EndPointer}},
		},
		{
			"a stack without frames still says so",
			bpf.Sample{End: bpf.EndCompat}, 0,
			[]RawFrame{{Kind: RawNothing, End: bpf.EndCompat}},
		},
		{
			"frames that are left out are marked, inside of the outermost ones",
			bpf.Sample{User: append([]bpf.Frame{compiledFrame, compiledFrame}, outermost...), LeftOut: 300,
				End: bpf.EndRoot, Attachment: 1}, 1,
			slices.Concat([]RawFrame{{Frame: compiledFrame, Kind: RawExact}, {Frame: compiledFrame},
				{Frame: 8, Kind: RawLeftOut}}, rawOutermost),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := AppendStack(nil, &c.sample, c.attachment); !slices.Equal(got, c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
		})
	}
}

// The marker gives the number of left-out frames as a range of powers of two, so that a slightly
// deeper recursion is the same context.
func TestLeftOutText(t *testing.T) {
	for n, want := range map[int]string{
		1: "[1 frame left out]", 2: "[2 to 3 frames left out]", 3: "[2 to 3 frames left out]",
		476: "[256 to 511 frames left out]", 4096: "[4096 to 8191 frames left out]",
	} {
		if got := leftOut(n).leftOutText(); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
