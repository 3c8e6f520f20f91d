package growth

import (
	"fmt"
	"math"
	"os"
	"time"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"golang.org/x/sys/unix"
)

const (
	depth  = 24 // frames of a stack, as Xalan has
	varied = 6  // innermost frames of those, which differ from stack to stack
	// codeSize is the size of a compiled method.
	codeSize = 64
)

// A program is this process as a VM with compiled methods, which a map for perf names. It never
// runs any of them.
type program struct {
	methods int
	code    []byte // memory that may be executed
	path    string // path of the map
	id      foldtest.Identity
}

// newProgram makes this process a VM with so many compiled methods. The caller closes it.
func newProgram(methods int) (*program, error) {
	p := &program{methods: methods, path: fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())}
	self, err := proc.DefaultRoot.Identify(os.Getpid())
	if err != nil {
		return nil, err
	}
	p.id = foldtest.Identity{PID: uint32(self.PID), Start: self.Start, Exec: 1}
	if p.code, err = unix.Mmap(-1, 0, methods*codeSize, unix.PROT_READ|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return nil, fmt.Errorf("map memory for code: %w", err)
	}
	var text []byte
	for i := range methods {
		text = fmt.Appendf(text, "%x %x com.example.service.Component%05d.method%d\n", p.at(i), codeSize, i/20, i%20)
	}
	if err := os.WriteFile(p.path, text, 0o600); err != nil {
		unix.Munmap(p.code)
		return nil, fmt.Errorf("write a map of code: %w", err)
	}
	return p, nil
}

func (p *program) close() {
	os.Remove(p.path)
	unix.Munmap(p.code)
}

func (p *program) at(method int) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p.code)))) + uint64(method)*codeSize
}

// frame is a place in a method.
func (p *program) frame(method int) bpf.Frame {
	return bpf.Frame(uint64(bpf.FrameNative)<<60 | p.at(method) + codeSize/2)
}

// leaves are the methods that run; all methods call.
func (p *program) leaves() int { return max(1, p.methods/depth) }

// stacks are distinct stacks of a program, on so many CPUs. Each CPU runs one thread, which has its
// own part of the stacks.
type stacks struct {
	program    *program
	count      int
	cpus       int
	base       int // stacks are numbers of varied digits to this base: a digit is a callee
	stride     int // step from one sample's stack to the next one's, among those of a CPU
	record     bpf.ProfileSample
	recordSize int
}

func newStacks(p *program, count, cpus int) *stacks {
	s := &stacks{program: p, count: count, cpus: cpus, base: max(2,
		int(math.Ceil(math.Pow(float64(count), 1.0/varied))))}
	s.stride = 7919 // a prime
	for (count/cpus)%s.stride == 0 {
		s.stride += 2
	}
	s.record = bpf.ProfileSample{Header: p.id.Header(bpf.EventSample), UserFrames: depth, End: uint8(bpf.EndRoot)}
	copy(s.record.Comm[:], "thread")
	s.recordSize = int(unsafe.Offsetof(s.record.Frames)) + 8*depth
	return s
}

// bytes returns the record as the kernel side writes it, of a sample on that CPU now.
func (s *stacks) bytes(cpu int, now time.Duration) []byte {
	s.record.Header.Time, s.record.Header.Tid, s.record.Cpu = uint64(now), s.program.id.PID+1+uint32(cpu), uint16(cpu)
	return unsafe.Slice((*byte)(unsafe.Pointer(&s.record)), s.recordSize)
}

// sample returns the record of the n-th sample. All CPUs tick in turn. The first count samples have
// all stacks once.
func (s *stacks) sample(n int, now time.Duration) []byte {
	cpu, each := n%s.cpus, s.count/s.cpus
	stack := cpu + s.cpus*(n/s.cpus%each*s.stride%each)
	context := 0 // a number for each context, in order to spread callees over all methods
	for level := depth - 1; level >= 0; level-- {
		if level < varied {
			context = context*s.base + 1 + stack/power(s.base, level)%s.base
		}
		methods := s.program.methods
		if level == 0 {
			methods = s.program.leaves()
		}
		s.record.Frames[level] = uint64(s.program.frame((context*2654435761 + level*977) & math.MaxInt32 % methods))
	}
	return s.bytes(cpu, now)
}

// cover returns the n-th of the records that have every method of the program once as a caller, and
// every leaf.
func (s *stacks) cover(n int, now time.Duration) []byte {
	s.record.Frames[0] = uint64(s.program.frame(n % s.program.leaves()))
	for i := 1; i < depth; i++ {
		s.record.Frames[i] = uint64(s.program.frame((n*(depth-1) + i - 1) % s.program.methods))
	}
	return s.bytes(n%s.cpus, now)
}

// covers is how many records cover returns.
func (s *stacks) covers() int { return (s.program.methods + depth - 2) / (depth - 1) }

func power(base, exponent int) int {
	n := 1
	for range exponent {
		n *= base
	}
	return n
}
