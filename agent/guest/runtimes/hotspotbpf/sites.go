package hotspotbpf

import (
	"errors"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
)

// loadSite says where the arguments of one compiled__method__load site are: class, its length,
// name, its length, signature, its length, code, size (src/hotspot/share/code/nmethod.cpp).
func loadSite(p elffile.Probe) (*bpf.LoadSite, error) {
	var s bpf.LoadSite
	args := []*bpf.Operand{
		&s.ClassName, &s.ClassLen, &s.MethodName, &s.NameLen, &s.Signature, &s.SignatureLen, &s.Code, &s.Size,
	}
	if len(p.Args) < len(args) {
		return nil, attach.ErrOperand
	}
	for i, to := range args {
		o, err := attach.Operand(p.Args[i])
		if err != nil {
			return nil, err
		}
		*to = o
	}
	return &s, nil
}

var errNoProbes = errors.New("this libjvm was built without USDT probes")

// Sites chooses what to attach of the probes of a libjvm.
func (Kernel) Sites(probes []elffile.Probe) (attach.Sites, error) {
	var s attach.Sites
	for _, p := range probes {
		if p.Provider != "hotspot" {
			continue
		}
		site := attach.Site{Offset: p.Offset, RefCtrOffset: p.SemaphoreOffset}
		switch p.Name {
		case javavm.ProbeCodeLoad:
			load, err := loadSite(p)
			if err != nil {
				return s, err
			}
			site.Load = load
			s.Load = append(s.Load, site)
		case javavm.ProbeCodeUnload:
			s.CodeUnload = append(s.CodeUnload, site)
		case javavm.ProbeClassUnload:
			s.ClassUnload = append(s.ClassUnload, site)
		}
	}
	if len(s.Load) == 0 || len(s.CodeUnload) == 0 || len(s.ClassUnload) == 0 {
		return attach.Sites{}, errNoProbes
	}
	return s, nil
}
