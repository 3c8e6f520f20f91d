package hotspot

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
)

// What vmruntime lets a Process and a Runtime offer beyond names of code.
var (
	_ vmruntime.AllocationCounter = (*Process)(nil)
	_ vmruntime.Preparer          = (*Process)(nil)
	_ vmruntime.Placer            = (*Process)(nil)
	_ vmruntime.Continuer         = (*Process)(nil)
	_ vmruntime.CallCounter       = (*Process)(nil)
	_ vmruntime.ThreadLister      = (*Process)(nil)
	_ vmruntime.LockLister        = (*Process)(nil)
	_ vmruntime.ThreadNamer       = (*Process)(nil)
	_ vmruntime.ClassReader       = (*Process)(nil)
	_ vmruntime.HeapReader        = (*Process)(nil)
	_ vmruntime.CardReader        = (*Process)(nil)
	_ vmruntime.FlagReader        = (*Process)(nil)
	_ vmruntime.MethodCounter     = (*Process)(nil)
	_ vmruntime.JDK               = (*Process)(nil)
	_ vmruntime.VirtualRunner     = (*Process)(nil)
	_ vmruntime.FlowReader        = (*Process)(nil)
	_ vmruntime.SafepointReader   = (*Process)(nil)
	_ vmruntime.VersionReader     = (*Process)(nil)
	_ vmruntime.VirtualLister     = (*Process)(nil)
	_ vmruntime.ClassNamer        = Runtime{}
)

// ClassName makes the bytes of the Symbol that names a class a name for people.
func (Runtime) ClassName(symbol []byte) string { return methodinfo.ClassName(symbol) }
