package fold

import (
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// compileIDs returns the ids of the compiled frames in the trees of threads.
func compileIDs(threads map[ThreadKey]*Thread) map[uint32]struct{} {
	ids := map[uint32]struct{}{}
	for _, t := range threads {
		t.Frames(func(r guest.RawFrame) {
			if r.Kind <= guest.RawExact && r.Frame.Kind() == bpf.FrameJIT {
				ids[r.Frame.CompileID()] = struct{}{}
			}
		})
	}
	return ids
}

var versionStates = [...]profile.VersionState{
	vmruntime.CodeUnknown: profile.VersionUnknown,
	vmruntime.CodeInUse:   profile.VersionInUse,
	vmruntime.CodeGivenUp: profile.VersionGivenUp,
	vmruntime.CodeFreed:   profile.VersionFreed,
}

// AddVersions adds the code versions in the samples of these threads to the process's part of a
// window's profile. began is the beginning of the window (CLOCK_MONOTONIC). It needs no State.
func (p *Process) AddVersions(threads map[ThreadKey]*Thread, began time.Duration, out *profile.Process) {
	ids := compileIDs(threads)
	if len(ids) == 0 {
		return
	}
	since := func(at time.Duration) time.Duration {
		if at == 0 {
			return 0
		}
		return at - began
	}
	list, beyond := p.Versions(ids, began)
	for i := range list {
		v := &list[i]
		version := profile.Version{
			ID: v.Version, Level: v.Level, EntryBCI: v.EntryBCI, Size: uint32(v.End - v.Begin),
			Method: v.Function, SystemName: v.Function + v.Signature,
			Since: since(v.Since), Seen: !v.Announced, State: versionStates[v.State], InUse: since(v.InUse),
			Until:   since(v.Until),
			Inlined: v.Inlined, Decompiles: v.Decompiles,
		}
		for _, t := range v.Traps {
			version.Traps = append(version.Traps, profile.Trap{Method: t.Function, Reason: t.Reason, Count: t.Count})
		}
		out.Versions = append(out.Versions, version)
	}
	if beyond > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("process %d: %d further code versions were sampled while %d were "+
			"in use; their samples do "+
			"not say which version they are of", p.PID, beyond, guest.MaxVersions))
	}
}
