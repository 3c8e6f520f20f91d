package sink

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// codeVersions collect the code versions of all windows, each once.
type codeVersions struct {
	list    []stored.Version
	index   map[versionKey]int // index in list
	methods []string
	places  map[string]int // index in methods
	leftOut int
}

type versionKey struct {
	pid int
	id  uint32
}

// add adds the versions of a process in a window, which began so long after the profile did. What a
// later window says replaces what is known, except for the beginning.
func (c *codeVersions) add(proc *profile.Process, began time.Duration) {
	if c.index == nil {
		c.index = make(map[versionKey]int)
	}
	for i := range proc.Versions {
		v := &proc.Versions[i]
		key := versionKey{proc.PID, v.ID}
		at, known := c.index[key]
		if !known && len(c.list) >= stored.MaxVersions {
			c.leftOut++
			continue
		}
		version := stored.NewVersion(proc.PID, v, began, c.place)
		if known {
			old := &c.list[at]
			version.Since, version.Seen = old.Since, old.Seen
			if len(version.Traps) == 0 {
				version.Traps = old.Traps
			}
			c.list[at] = version
			continue
		}
		c.index[key] = len(c.list)
		c.list = append(c.list, version)
	}
}

// place is where a name is in methods.
func (c *codeVersions) place(name string) int {
	name = stored.Printable(name)
	if c.places == nil {
		c.places = make(map[string]int)
	}
	at, known := c.places[name]
	if !known {
		at = len(c.methods)
		c.places[name], c.methods = at, append(c.methods, name)
	}
	return at
}
