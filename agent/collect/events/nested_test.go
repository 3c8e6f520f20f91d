package events

import "github.com/vmprof-agent/vmprof-agent/agent/collect/fold"

func init() { fold.FindNested = true }
