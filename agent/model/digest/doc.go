// Package digest makes one window of several, smaller than they are. It adds up what differs by
// nothing that a reader sees. Beyond bounds, the rarest stacks become a frame profile.Rare below
// their nearest caller that is kept. So sums stay.
//
//	m := digest.NewMerger(digest.NewNames(nil), nil)
//	m.AddProfile(window)      // any number of them; they are not changed
//	p := m.Profile(10_000)    // contexts of each kind
//
// While windows are added up, they refer to strings and frames by numbers, IDs in Names: so trees
// compare and hash small numbers, and the garbage collector has no pointers to follow. A Window
// keeps that form, which the history reads and writes: merging what is stored makes no profiles.
package digest
