package hotspot

import "github.com/vmprof-agent/vmprof-agent/agent/fold"

func init() { fold.FindNested = true }
