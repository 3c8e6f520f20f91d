// Package wire is the text that the guest's init and the rig on the host exchange over a serial
// line: marker lines around the unchanged output of each step. A step loads one BPF object or runs
// one test binary. Both sides build from this one definition.
//
//	== up 6.1.0-56-cloud-amd64 2.31
//	== run bpf_profile.o
//	tick: 24226 instructions verified
//	== exit bpf_profile.o 0
//	== run bpf
//	--- PASS: TestKernelLoad (0.52s)
//	== exit bpf 0
//	== done
package wire

import (
	"fmt"
	"strings"
)

// Layout of the machine's root: the initramfs, or the disk where there is one.
const (
	ObjectDir = "/objects"   // BPF objects; a file's name is the name of the step that loads it
	TestDir   = "/tests"     // one directory for each package under test, named as its step
	TestBin   = "test"       // its test binary; the package's testdata lies beside it
	Arguments = "/arguments" // arguments of the test binaries, one a line
	BuiltDir  = "/built"     // programs that tests start: see package binary
)

// Of machines with a disk.
const (
	DiskDir    = "/disk"        // in the initramfs: where the disk is mounted before it becomes the root
	DiskDevice = "/dev/nvme0n1" // an ext4 file system; Debian's cloud kernels have both drivers built in
	Home       = "/root"        // the home directory of tests
)

// Kind is the meaning of a marker line.
type Kind uint8

const (
	None Kind = iota // not a marker: output of a step
	Up               // the guest runs; Subject is the kernel release, Detail the seconds since its boot
	Run              // output of the step Subject follows
	Exit             // step Subject ended; Detail is its exit code, or why it could not be run
	Done             // every step ended; only this makes a boot complete
)

var words = map[Kind]string{Up: "up", Run: "run", Exit: "exit", Done: "done"}

// A Mark is one marker line.
type Mark struct {
	Kind            Kind
	Subject, Detail string
}

// String formats m as one line without its end.
func (m Mark) String() string {
	return strings.TrimRight(fmt.Sprintf("== %s %s %s", words[m.Kind], m.Subject, m.Detail), " ")
}

// Parse reads one line; the zero Mark means that it is no marker.
func Parse(line string) Mark {
	text, ok := strings.CutPrefix(line, "== ")
	if !ok {
		return Mark{}
	}
	word, rest, _ := strings.Cut(text, " ")
	for kind, w := range words {
		if w == word {
			subject, detail, _ := strings.Cut(rest, " ")
			return Mark{kind, subject, detail}
		}
	}
	return Mark{}
}
