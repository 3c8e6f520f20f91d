package bpf

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// contextMaps are those of the object of modes other than ModeWalk (context.bpf.c): nil in that one.
type contextMaps struct {
	ChainRates    *ebpf.Map `ebpf:"chain_rates"` // by HotspotProcess.Slot, MaxAttached for processes without a VM
	ContextStates *ebpf.Map `ebpf:"context_states"`
	KeptStacks    *ebpf.Map `ebpf:"kept_stacks"`
	KnownLinks    *ebpf.Map `ebpf:"known_links"`
}

// Close frees the maps.
func (m *contextMaps) Close() error {
	return errors.Join(m.ChainRates.Close(), m.ContextStates.Close(), m.KeptStacks.Close(), m.KnownLinks.Close())
}

// loadContexts puts the program of the mode in place of Tick.
func (o *Objects) loadContexts() error {
	spec, err := o.contextSpec()
	if err != nil {
		return err
	}
	if o.opts.NoTick {
		leaveOut(spec, ContextProgTick)
	}
	var mode struct {
		contextMaps
		Tick *ebpf.Program `ebpf:"tick"`
	}
	if err := o.loadBeside(spec, &mode, o.sampling()); err != nil {
		return fmt.Errorf("load program of contexts: %w", err)
	}
	o.contextMaps = mode.contextMaps
	err = o.Tick.Close()
	o.Tick = mode.Tick
	return err
}

// contextSpec is the object of the mode, with its constants.
func (o *Objects) contextSpec() (*ebpf.CollectionSpec, error) {
	spec, err := LoadContext()
	if err != nil {
		return nil, fmt.Errorf("read context object: %w", err)
	}
	spec.Maps["context_states"].MaxEntries = o.Scratches.MaxEntries()
	return spec, o.opts.setContexts(spec)
}

// setContexts sets the mode. Maps that it does not use take no room.
func (o *Options) setContexts(spec *ebpf.CollectionSpec) error {
	if o.Contexts != ModePartial {
		spec.Maps["kept_stacks"].MaxEntries = 1
	}
	if o.Contexts != ModeChain {
		spec.Maps["known_links"].MaxEntries = 1
	}
	err := errors.Join(
		spec.Variables["contexts"].Set(uint8(o.Contexts)),
		spec.Variables["confirm_levels"].Set(cmp.Or(o.ConfirmLevels, DefaultConfirmLevels)),
		spec.Variables["walk_unknown"].Set(!o.LeaveUnknown),
		spec.Variables["check_contexts"].Set(o.CheckContexts),
		o.setWakeup(spec),
	)
	if err != nil {
		return fmt.Errorf("set constants: %w", err)
	}
	return nil
}

// SetSteady says of a link, by the tag that a sample had, whether it suffices from now on
// (ModeChain): if not, its samples are walked, each of them.
func (m *contextMaps) SetSteady(tag uint64, steady bool) error {
	tag &^= LinkSteady
	if steady {
		tag |= LinkSteady
	}
	slot := uint32(tag>>ContextLinkTagsLINK_SLOT_SHIFT) % m.KnownLinks.MaxEntries()
	if err := m.KnownLinks.Put(slot, tag); err != nil {
		return fmt.Errorf("set whether a link is steady: %w", err)
	}
	return nil
}
