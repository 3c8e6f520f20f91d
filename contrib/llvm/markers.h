// SPDX-License-Identifier: Apache-2.0
//
// A plug-in for clang 19 that follows loops through the optimizer. README.md is the guide.
//
// The technique is that of Lau, Arnold, Hind and Calder, "A Loop Correlation Technique to Improve Performance Auditing"
// (PACT 2007), section 4: before optimization a lightweight marker, the increment of a global variable, is put into each
// loop (insert.cpp). The optimizer may move, copy and merge markers, but must keep what they add up to. After the last
// pass each marker is replaced by a timing point with its increment, or removed (replace.cpp).
//
// LLVM differs from the paper's compiler in one respect: it keeps the variable of a loop without calls in a register and
// stores it after the loop. So what remains of a marker is not always "X += n". Here a marker's site is any store to its
// variable, and its increment is the stored value less the value that the variable had before (see Site).
#ifndef VMPROF_MARKERS_H
#define VMPROF_MARKERS_H

#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"

namespace vmprof {

constexpr char MarkerPrefix[] = "__vmprof_marker.";
constexpr char ReaderPrefix[] = "__vmprof_markers_read.";
// Metadata of a marker's variable, and the name of a list of those of calls: method, loop, row of the table.
constexpr char MarkerMetadata[] = "vmprof.marker";

enum class Mode {
	Off,	// no markers
	Time,	// each marker becomes a call of vmprof_loop
	Remove, // markers are removed, as if they had never been there
	Count,	// markers stay: their variables count at run time
	Naive,	// calls of vmprof_loop instead of markers, before optimization
};

// Options are the words of the environment variable VMPROF_MARKERS.
struct Options {
	Mode mode = Mode::Off;
	bool blocks = false;	// a marker in each basic block instead of each loop
	bool header = false;	// at the header of a loop instead of its latches
	bool timers = false;	// vmprof_timer_start and _stop in the chosen functions
	bool noinlined = false; // chosen functions are not inlined, so that their timers remain
	uint32_t version = 0;	// passed to the timers
	std::string stats;	// file to append the account to; "-" is standard error
	bool all = true;	// every function is chosen
	llvm::StringMap<llvm::SmallSet<uint32_t, 4>> chosen; // function: loops of it, or 0 for all

	static Options fromEnvironment();
	// chooses reports whether a function is chosen. loops are those of it that are, or null for all.
	bool chooses(const llvm::Function &f, const llvm::SmallSet<uint32_t, 4> *&loops) const;
};

// Insert puts markers into a module that is not optimized yet.
class Insert : public llvm::PassInfoMixin<Insert> {
	const Options &options;

    public:
	explicit Insert(const Options &o) : options(o) {}
	static bool isRequired() { return true; } // also with optnone, as everything is at -O0
	llvm::PreservedAnalyses run(llvm::Module &m, llvm::ModuleAnalysisManager &analyses);
};

// Replace replaces the markers of a module that is optimized.
class Replace : public llvm::PassInfoMixin<Replace> {
	const Options &options;

    public:
	explicit Replace(const Options &o) : options(o) {}
	static bool isRequired() { return true; }
	llvm::PreservedAnalyses run(llvm::Module &m, llvm::ModuleAnalysisManager &analyses);
};

// addTimers adds a timer from a function's entry to all its exits, those by exceptions included.
void addTimers(llvm::Function &f, uint32_t version);
llvm::FunctionCallee loopFunction(llvm::Module &m);
// callRuntime adds a call that never becomes a tail call: the run time knows timers by the stack pointer.
void callRuntime(llvm::IRBuilder<> &builder, llvm::FunctionCallee callee, llvm::ArrayRef<llvm::Value *> arguments);

// forgetPurity removes what was known of a function's effects: a timing point writes memory.
void forgetPurity(llvm::Function &f);

// locate gives instructions that a builder inserts a place in the source. LLVM demands one of calls in functions with
// debug information.
void locate(llvm::IRBuilder<> &builder, llvm::Function &f, const llvm::DebugLoc &like);

} // namespace vmprof

#endif
