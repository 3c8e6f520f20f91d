package probes

import (
	"fmt"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Functions of libjvm of JDK 21 and later: virtual threads give up their carriers and get one again
// (src/hotspot/share/runtime/continuationFreezeThaw.cpp). The last three are of JDK 24 and later.
const (
	functionThaw      = "Continuation::prepare_thaw"
	functionPreempted = "ObjectMonitor::vthread_monitor_enter"
	functionEntered   = "ThawBase::handle_preempted_continuation"

	// Instances of templates, one for each collector: freeze<Config<…>> and
	// Config<…>::freeze_preempt.
	linkedFreeze  = "6freezeI6Config" // after _Z or, as it is static, _ZL
	linkedPreempt = "E14freeze_preemptEP10JavaThreadPl"
)

// VirtualWaits are what virtualPlans observe.
const VirtualWaits = "waits of virtual threads"

// virtualPlans observe virtual threads that park, in libraries that have any. Those that wait for a
// monitor are observed with the others that do (withVirtual).
func virtualPlans(o *bpf.ProbeObjects, f *probesite.Finder) (plans []eventPlan) {
	if !f.Has(functionThaw) {
		return nil
	}
	plans = append(plans, eventPlan{kind: profile.Locks, of: VirtualWaits, probes: []plannedProbe{
		{name: functionThaw, program: o.VirtualThaw, find: entriesWith(functionThaw, 2)},
		{name: "freeze", program: o.VirtualFreeze, find: instances("freeze", func(name string) bool {
			return strings.HasPrefix(name, "_Z"+linkedFreeze) || strings.HasPrefix(name, "_ZL"+linkedFreeze)
		})},
	}})
	if _, err := virtualMonitorProbes(o, f); err != nil && f.Has(functionBlock) {
		failed := func(*probesite.Finder) ([]probesite.Site, error) { return nil, err }
		plans = append(plans, eventPlan{kind: profile.Locks, of: VirtualWaits + " for monitors",
			probes: []plannedProbe{{find: failed}}})
	}
	return plans
}

// withVirtual adds the probes of virtual threads that wait for monitors without their carriers to
// those of monitors, so that all are attached at the same time, if the library has them.
func withVirtual(o *bpf.ProbeObjects, f *probesite.Finder, monitors []plannedProbe) []plannedProbe {
	probes, err := virtualMonitorProbes(o, f)
	if err != nil {
		return monitors // virtualPlans says so
	}
	return append(probes, monitors...)
}

func virtualMonitorProbes(o *bpf.ProbeObjects, f *probesite.Finder) ([]plannedProbe, error) {
	probes := []plannedProbe{
		{name: functionEntered, program: o.VirtualEntered, find: entriesWith(functionEntered, 1)},
		{name: functionPreempted, program: o.VirtualPreempted, find: entriesWith(functionPreempted, 2)},
		{name: "freeze_preempt", program: o.VirtualPreempt, find: instances("freeze_preempt",
			func(name string) bool { return strings.HasSuffix(name, linkedPreempt) })},
	}
	for i := range probes {
		p := &probes[i]
		sites, err := p.find(f)
		if err != nil {
			return nil, err
		}
		p.rare, p.find = true, func(*probesite.Finder) ([]probesite.Site, error) { return sites, nil }
	}
	return probes, nil
}

// instances finds the entries of all instances of a template, with their first argument.
func instances(function string, match func(string) bool) findSites {
	return func(f *probesite.Finder) (sites []probesite.Site, err error) {
		names, err := f.Linked(match)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			found, err := f.EntriesWith(name, 1)
			if err != nil {
				return nil, err
			}
			sites = append(sites, found...)
		}
		if len(sites) == 0 {
			return nil, fmt.Errorf("no instance of %s: %w", function, probesite.ErrNotFound)
		}
		return sites, nil
	}
}
