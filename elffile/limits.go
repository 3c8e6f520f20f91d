package elffile

// Limits on what is read from one file. Each is well above the values in real programs and
// libraries. They are low enough that a crafted file costs the agent only some tens of megabytes
// for a moment.
const (
	maxSegments     = 256     // libjvm.so has 9
	maxSections     = 4096    // libc.so.6 of Debian has 64
	maxSectionNames = 1 << 20 // bytes
	maxNotes        = 4 << 20 // bytes of one note section; libjvm.so of JDK 25 has 55 kB of probes
	maxNoteAreas    = 16      // places to look for a build id; libc.so.6 has 3
	maxProbes       = 8 << 10 // libjvm.so has about 600
	maxBuildID      = 64      // bytes; a SHA-1 has 20

	maxSymbols     = 1 << 20  // symbols of one table, before objects and imports are sorted out; libjvm.so has 70,000
	maxNameBytes   = 32 << 20 // bytes of one string table; libjvm.so has 3.3 MB
	maxName        = 2048     // bytes of one name; longer ones are cut
	maxDynamic     = 4096     // entries; libjvm.so has 40
	maxRelocations = 4 << 20  // libjvm.so has 125,000. They are streamed, so this bounds time
	maxPointers    = 1 << 20  // pointers of 16 bytes, for a moment; libjvm.so has 80,000 to 125,000

	maxUnwind = 1 << 19 // entries of .eh_frame_hdr; libjvm.so has 60,000

	maxDebugData       = 8 << 20  // bytes of .gnu_debugdata, compressed
	maxDebugDataPlain  = 16 << 20 // bytes of the ELF file inside
	maxDebugDataBlocks = 1024

	chunkSize = 64 << 10 // tables are streamed through a buffer of about this many bytes
)
