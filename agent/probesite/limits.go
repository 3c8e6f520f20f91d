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

	// maxLandmark is how long a function may be that is searched for in a file without symbols, in bytes: Unsafe_Park of JDK 25
	// has 1,756.
	maxLandmark = 16 << 10
	// maxTexts is how many native methods are compared with one that is searched for: libjvm has some 500.
	maxTexts = 64 << 10
	// maxTables is how many tables may look like that of JNI: libjvm has two.
	maxTables = 16
	// maxCallees is how many callees or callers of one function are looked at: MonitorEnter has a dozen.
	maxCallees = 64
	// maxInflaters is how many callers inflate_and_enter may have: it has three. For each all code is read.
	maxInflaters = 8
	// maxLookups is how many functions without symbols are looked up in a file: for both kinds of waits, some 150.
	maxLookups = 2048
	// maxTails is how many functions in a row may end with a jump to the next: ObjectSynchronizer::fast_enter of JDK 11 to
	// ObjectMonitor::enter.
	maxTails = 3
)
