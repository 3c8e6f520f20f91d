// Package unwind makes unwind tables from the call frame information (.eh_frame) of ELF files, for
// code that keeps no frame pointer.
//
//	f, err := elffile.OpenFile(file)
//	table, err := unwind.Build(ctx, f)
//	rule := table.Find(pc - bias)
//
// A table has rows of an address and a rule. A rule says where the canonical frame address (CFA) of
// a frame is, and where the frame keeps its caller's rbp. The return address is the word below the
// CFA. That is all that a walk needs which follows pc, rsp and rbp, so a rule fits in 32 bits, and
// no table of rules is needed next to the rows.
//
// Files are hostile. Sizes are bounded before memory is allocated, instructions are counted over
// the whole file, since many frame descriptions can share one long prologue, and the context ends a
// build. The formats are in the LSB core specification ("Exception Frames") and in DWARF 5, section
// 6.4.
//
// Only x86-64 has tables.
package unwind
