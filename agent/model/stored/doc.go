// Package stored is what profile files of the agent hold beyond pprof's own fields: the keys of
// labels, the names of sample types and pseudo-mappings, and one comment with typed [Metadata].
// Package sink writes all of it and package report reads it.
//
//	err := metadata.Store(p)             // before p is written
//	metadata, err := stored.MetadataOf(p) // after p was read; p is untrusted
package stored
