package hotspot

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A vm is one VM that is being attached, or is attached.
type vm struct {
	memory  vmstructs.Reader
	build   *build
	bias    uint64        // what addresses of the build's file are below those in the process
	epoch   func() uint32 // how many times classes were unloaded; nil if unknown
	version version
	layout  Layout

	method methodSchema
	thread threadSchema
	flags  vmstructs.FlagSchema

	release versionSchema
}

// newVM is the VM of a process that runs that build.
func newVM(of *build, guest vmruntime.Target) *vm {
	return &vm{
		memory: vmstructs.Reader{Mem: &vmstructs.Weave{Memory: guest.Memory}},
		build:  of, bias: guest.Bias, epoch: guest.Epoch,
	}
}

// resolve looks up the fields that the VM's methods, threads and flags have.
func (p *vm) resolve(r *vmstructs.Resolver) {
	p.method, p.thread, p.flags = newMethodSchema(r), newThreadSchema(r), vmstructs.NewFlagSchema(r)
	p.release = newVersionSchema(r)
}

// readVersion reads the VM's version. It is an error if the release is not supported, and
// ErrStarting if the VM has not set it yet.
func (p *vm) readVersion() (err error) {
	p.version, err = readVersion(p.memory, &p.release)
	p.layout.JDK = p.version.jdk
	return err
}

// methodReader reads the VM's methods.
func (p *vm) methodReader() methodReader {
	return methodReader{Reader: p.memory, schema: &p.method, bias: p.version.unsigned5Bias()}
}

// missing notes in the layout what the VM hides.
func (p *vm) missing(sentence string) { p.layout.Missing = append(p.layout.Missing, sentence) }

// symbol returns the address of a symbol of libjvm in this process.
func (p *vm) symbol(name string) (uint64, bool) {
	value, ok := p.build.symbols[name]
	return value + p.bias, ok
}

// currentEpoch is how many times classes were unloaded; always 0 if that is not known.
func (p *vm) currentEpoch() uint32 {
	if p.epoch == nil {
		return 0
	}
	return p.epoch()
}

// Describe names the VM and its version: "OpenJDK 64-Bit Server VM 17.0.15+6".
func (p *vm) Describe() string { return p.version.String() }

// FeatureRelease is that of the JDK: 8, 17, 25.
func (p *vm) FeatureRelease() int { return p.version.jdk }

// Flag reads a command line flag of type bool.
func (p *vm) Flag(name string) (bool, error) { return vmstructs.ReadBool(p.memory, &p.flags, name) }

// Number reads a command line flag of type intx.
func (p *vm) Number(name string) (int64, error) {
	return vmstructs.ReadNumber(p.memory, &p.flags, name)
}
