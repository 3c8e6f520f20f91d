// Package history keeps the windows of serve on disk, and answers what happened at a time in the
// past.
//
//	s, err := history.Open(dir, &history.Options{Keep: 24 * time.Hour, MaxSize: 200e6}) // one writer for a directory
//	err = s.Add(window)                                                                 // each closed window
//
//	r := history.Read(dir)                                                               // any number of readers
//	p, err := r.Query(ctx, history.Selection{From: from, To: to, Service: "shop", Content: sink.Time})
//	err = r.Split(ctx, selection, 60, func(p *profile.Profile) error { … })             // window by window
//	slices, err := r.Timeline(ctx, from, to, "")
//
// # What is kept
//
// A stored window has the processes of a window with their labels, calling context trees, events
// and call graphs, and the accounts of what was lost. Threads of a process whose names differ only
// in the number at their end are one thread. Frames have lines and those on which their functions
// begin, but no addresses and no code versions. Beyond a bound, the rarest stacks become a frame
// [rare stacks] below their nearest common caller, so that sums stay. Merging adds windows up:
// counts stay exact.
//
// # Files
//
// The directory holds segments, NUMBER.LEVEL. A segment of level 0 has the windows as they came, at
// most an hour of them. When it is older than Options.Fine it is rewritten as level 1, with windows
// of a minute; after Options.Medium as level 2, with windows of ten minutes. Its age is the length
// of all windows after it: the clock may be wrong. A number never has two meanings: if a crash
// leaves two levels of it, the higher one holds, as it was renamed into place when it was complete.
//
// A segment is a magic number and records. A record is a window: lengths and checksums, a header
// with the window's time and its sums by service and kind of code, and a compressed body with the
// names that are new in the segment, then the window. So each name is stored once in a segment. The
// writer only appends, with one write for a record. What a crash leaves of the last record is cut
// off when the directory is opened again.
//
// The checksum of a header includes its lengths and the magic number. So a record is known wherever
// it is found, and after a damaged part readers go on with the next one (scanner). A body says how
// many names there were before it: those that were in a damaged part are lostName, and no name is
// taken for another one. A header needs nothing of other records. What is damaged is left as it is,
// as are files of others, and readers say from when to when something is missing (Gap). The magic
// number is that of the encoding: whoever changes the one changes the other.
//
// Plain files are simpler here than an embedded key-value store: windows come in the order of time,
// are never changed, and are removed oldest first, as whole files, which keeps the bound of the
// size exact. A store of pages would need room for free pages and transactions, and would not share
// names between values.
//
// # In memory
//
// A closed window becomes a digest.Window, which is bounded, and is written with the places that
// its names have in the segment (tables). Merging reads windows into the same form, and never makes
// profiles of them.
//
// What is read back is untrusted: every count and length is bounded.
package history
