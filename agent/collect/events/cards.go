package events

import (
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// handleCard leaves the card of a write barrier to the worker, which also finds out for how many
// cards it stands: one if the thread had no queue, otherwise as many as a queue has.
func (e *Source) handleCard(s *fold.State, p *fold.Process, o *bpf.Observation, event *fold.Event) (wanted bool) {
	event.Kind = profile.Barriers
	cards := float64(defaultQueue)
	if o.Seen.Values[1] != 0 {
		cards = 1
	}
	event.Sums = fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{cards * float64(o.Seen.Every)}}
	return e.lookUpLater(s, p, o, event)
}

// defaultQueue is how many cards a thread makes dirty until it calls the VM: the default of
// G1UpdateBufferSize.
const defaultQueue = 256

// barrierBasis is what readers must know of write barriers.
const barrierBasis = "each recorded write barrier represents a full card queue of its thread (G1UpdateBufferSize); a " +
	"thread's first one after a collection represents itself only: up to one queue of cards per thread is " +
	"missing before each collection"

// locateCard labels a write barrier with the object that was stored into, and how old it is. The
// object is only named if no collection can have moved it since.
func locateCard(resolver *guest.Resolver, g *guest.VM, f *fault) {
	reader, err := guest.As[vmruntime.CardReader](g)
	if err != nil {
		return
	}
	heap, err := guest.As[vmruntime.HeapReader](g)
	if err != nil {
		return
	}
	cards, err := reader.Cards()
	if err != nil {
		return // the process has a note
	}
	sum := &f.event.Sums.Values[0]
	if every := float64(f.event.Every); *sum > every {
		*sum = every * float64(cards.Queue)
	}
	low, high := cards.Range(f.address)
	if from, to, moving, known := heap.HeapBounds(); !known || moving || low < from || high > to || high < low {
		return
	}
	age, err := reader.Age(low)
	resolver.CountRead(err)
	f.event.Labels.Place = age
	bases := f.bases
	if age == humongous {
		bases = append(cards.Starts(low, maxRegions), bases...)
	}
	class, err := storedInto(heap, low, high, cards.Within(f.address, f.bases), bases)
	resolver.CountRead(err)
	if err != nil || resolver.SafepointPauses(g) != f.stops {
		return
	}
	f.event.Labels.Class = class
}

// maxRegions bounds the regions in which the start of a humongous object is looked for.
const maxRegions = 16

var humongous = placeName(bpf.PlaceHumongous)

// maxAddresses bounds the addresses in a card that are looked up: compiled code has one or two.
const maxAddresses = 8

// storedInto returns the class of the object in a card [low, high) that was stored into, given
// addresses in the card that the thread had in its registers and on its stack. The object is one
// that begins at such an address: compiled code marks the card in which an object begins. Otherwise
// it is one that such an address is in: of arrays the card of the element is marked. Without any it
// is the object that has the whole card, if one has. Bases are where objects may begin.
func storedInto(heap vmruntime.HeapReader, low, high uint64, addresses, bases []uint64) (class string, err error) {
	inside := ""
	for _, addr := range addresses[:min(len(addresses), maxAddresses)] {
		place, placeErr := heap.PlaceAt(addr, append([]uint64{addr}, bases...)...)
		switch {
		case placeErr != nil:
			err = placeErr
		case place.Offset == 0:
			return place.Class, nil
		case inside == "":
			inside = place.Class
		}
	}
	if inside != "" || len(addresses) > 0 {
		return inside, err
	}
	const word = 8
	first, err := heap.PlaceAt(low, bases...)
	if err != nil {
		return "", err
	}
	last, err := heap.PlaceAt(high-word, bases...)
	if err != nil || last.Class != first.Class || last.Offset-first.Offset != high-word-low {
		return "", err
	}
	return first.Class, nil
}
