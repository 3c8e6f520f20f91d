package probesite

// Limits on what is read and how far is looked. Each is well above what real libraries need.
const (
	// maxInstruction is the longest that an x86-64 instruction may be, in bytes (Intel SDM vol. 2, section 2.3.11).
	maxInstruction = 15
	// maxFunction is how many bytes of one function are read; the longest of libjvm has 200 kB.
	maxFunction = 1 << 20
	// maxCode is how many bytes of a file's code are scanned; libjvm has 15 to 20 MB.
	maxCode = 256 << 20
	// scanChunk is how many bytes of code are in memory during a scan.
	scanChunk = 1 << 20
	// maxCandidates is how many byte sequences that look like a call are followed. A file that is made of them is
	// crafted: libjvm's most frequent callee has some 20,000.
	maxCandidates = 64 << 10
	// maxMatches is how many functions one name may mean, overloads and clones included.
	maxMatches = 64
	// maxAhead is how many instructions behind a function's first one, or behind a call, are looked at. Compilers put an
	// endbr64 and a few moves before the first push, and a move and a comparison between a call and the jump on its result.
	maxAhead = 8
)
