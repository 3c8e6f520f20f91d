// SPDX-License-Identifier: Apache-2.0
//
// Before optimization: which loops are chosen, and their markers. Also the plug-in's entry.

#include "markers.h"

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Demangle/Demangle.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"
#include "llvm/Transforms/Utils/EscapeEnumerator.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

#include <cstdlib>

using namespace llvm;
using namespace vmprof;

constexpr char Environment[] = "VMPROF_MARKERS";

// chooseFrom reads lines of the form FUNCTION or FUNCTION:LOOP. Empty lines and those that begin with # are ignored.
static void chooseFrom(StringRef path, Options &o) {
	o.all = false;
	ErrorOr<std::unique_ptr<MemoryBuffer>> file = MemoryBuffer::getFile(path, true);
	if (!file)
		report_fatal_error(Twine(Environment) + ": read " + path + ": " + file.getError().message(), false);
	for (StringRef rest = (*file)->getBuffer(), line; !rest.empty();) {
		std::tie(line, rest) = rest.split('\n');
		line = line.trim();
		if (line.empty() || line.starts_with("#"))
			continue;
		// Names of C++ contain colons: only a number after the last one is a loop.
		auto [function, number] = line.rsplit(':');
		uint32_t loop = 0;
		if (number.empty() || number.getAsInteger(10, loop)) {
			function = line;
			loop = 0;
		}
		o.chosen[function].insert(loop);
	}
}

Options Options::fromEnvironment() {
	Options o;
	const char *value = getenv(Environment);
	if (!value)
		return o;
	SmallVector<StringRef, 8> words;
	StringRef(value).split(words, ',', -1, false);
	for (StringRef word : words) {
		auto [name, argument] = word.split('=');
		if (name == "off")
			o.mode = Mode::Off;
		else if (name == "time")
			o.mode = Mode::Time;
		else if (name == "remove")
			o.mode = Mode::Remove;
		else if (name == "count")
			o.mode = Mode::Count;
		else if (name == "naive")
			o.mode = Mode::Naive;
		else if (name == "blocks")
			o.blocks = true;
		else if (name == "header")
			o.header = true;
		else if (name == "timers")
			o.timers = true;
		else if (name == "noinline")
			o.noinlined = true;
		else if (name == "select")
			chooseFrom(argument, o);
		else if (name == "stats")
			o.stats = argument.empty() ? "-" : argument.str();
		else if (name != "version" || argument.getAsInteger(10, o.version))
			report_fatal_error(Twine(Environment) + ": no option " + word, false);
	}
	return o;
}

bool Options::chooses(const Function &f, const SmallSet<uint32_t, 4> *&loops) const {
	loops = nullptr;
	if (f.isDeclaration() || f.hasFnAttribute(Attribute::Naked) || f.getName().starts_with(ReaderPrefix))
		return false;
	if (all)
		return true;
	auto it = chosen.find(f.getName());
	if (it == chosen.end()) {
		std::string name = demangle(f.getName());
		it = chosen.find(StringRef(name).split('(').first);
	}
	if (it == chosen.end())
		return false;
	if (!it->second.contains(0))
		loops = &it->second;
	return true;
}

// methodID is the same in compilations with other options. That of a static function depends on its file, as another file
// may have one of that name.
static uint32_t methodID(const Function &f) {
	uint32_t hash = 2166136261u; // FNV-1a
	auto add = [&](StringRef s) {
		for (unsigned char c : s)
			hash = (hash ^ c) * 16777619u;
	};
	if (f.hasLocalLinkage()) {
		add(f.getParent()->getSourceFileName());
		add(":");
	}
	add(f.getName());
	return hash;
}

// A Place is where a marker goes: the number of its loop, or block, in the function, and before which instructions.
struct Place {
	uint32_t loop;
	unsigned line; // of the loop; 0: unknown
	SmallVector<Instruction *, 2> before;
};

static unsigned lineOf(const DebugLoc &at) { return at ? at.getLine() : 0; }

// loopsOf returns the places of a function's loops, numbered from 1 in the order of their headers.
//
// By default a marker is at the latches, from where control goes back to the header: it counts iterations that were
// completed. At the header, it counts how often the loop's condition was evaluated. The latch is the lighter place: when
// LLVM rotates a loop it copies the header.
static SmallVector<Place, 0> loopsOf(Function &f, LoopInfo &loops, bool header) {
	SmallVector<Place, 0> places;
	uint32_t number = 0;
	for (BasicBlock &b : f) {
		if (!loops.isLoopHeader(&b))
			continue;
		Loop *loop = loops.getLoopFor(&b);
		Place place{++number, lineOf(loop->getStartLoc()), {}};
		if (header) {
			place.before.push_back(&*b.getFirstInsertionPt());
		} else {
			SmallVector<BasicBlock *, 4> latches;
			loop->getLoopLatches(latches);
			for (BasicBlock *latch : latches)
				place.before.push_back(latch->getTerminator());
		}
		places.push_back(std::move(place));
	}
	return places;
}

// firstIn returns the first instruction of a block before which others may be inserted, or null. Variables on the stack
// stay together at the entry.
static Instruction *firstIn(BasicBlock &b) {
	auto at = b.getFirstInsertionPt();
	while (at != b.end() && isa<AllocaInst>(*at))
		++at;
	return at == b.end() ? nullptr : &*at;
}

static SmallVector<Place, 0> blocksOf(Function &f) {
	SmallVector<Place, 0> places;
	uint32_t number = 0;
	for (BasicBlock &b : f) {
		++number;
		if (Instruction *first = firstIn(b))
			places.push_back({number, lineOf(first->getDebugLoc()), {first}});
	}
	return places;
}

void vmprof::locate(IRBuilder<> &builder, Function &f, const DebugLoc &like) {
	if (like)
		builder.SetCurrentDebugLocation(like);
	else if (DISubprogram *sub = f.getSubprogram())
		builder.SetCurrentDebugLocation(DILocation::get(f.getContext(), 0, 0, sub));
}

// ---- calls of the run time ----

static FunctionCallee runtimeFunction(Module &m, StringRef name, ArrayRef<Type *> arguments) {
	auto *type = FunctionType::get(Type::getVoidTy(m.getContext()), arguments, false);
	FunctionCallee callee = m.getOrInsertFunction(name, type);
	if (auto *f = dyn_cast<Function>(callee.getCallee()))
		f->setDoesNotThrow();
	return callee;
}

void vmprof::callRuntime(IRBuilder<> &builder, FunctionCallee callee, ArrayRef<Value *> arguments) {
	builder.CreateCall(callee, arguments)->setTailCallKind(CallInst::TCK_NoTail);
}

FunctionCallee vmprof::loopFunction(Module &m) {
	Type *id = Type::getInt32Ty(m.getContext());
	return runtimeFunction(m, "vmprof_loop", {id, id, Type::getInt64Ty(m.getContext())});
}

void vmprof::forgetPurity(Function &f) {
	for (Attribute::AttrKind kind : {Attribute::Memory, Attribute::NoSync, Attribute::NoCallback, Attribute::NoRecurse})
		f.removeFnAttr(kind);
}

void vmprof::addTimers(Function &f, uint32_t version) {
	Module &m = *f.getParent();
	Type *id = Type::getInt32Ty(m.getContext());
	FunctionCallee start = runtimeFunction(m, "vmprof_timer_start", {id, id});
	FunctionCallee stop = runtimeFunction(m, "vmprof_timer_stop", {id, id});
	IRBuilder<> entry(firstIn(f.getEntryBlock()));
	locate(entry, f, {});
	Value *arguments[] = {entry.getInt32(methodID(f)), entry.getInt32(version)};
	callRuntime(entry, start, arguments);
	EscapeEnumerator exits(f, "vmprof_exit"); // turns calls that may throw into invokes
	while (IRBuilder<> *exit = exits.Next()) {
		locate(*exit, f, {});
		callRuntime(*exit, stop, arguments);
	}
	forgetPurity(f);
}

// ---- markers ----

// describe returns a row of the table: method, loop, function, file and line.
static std::string describe(const Function &f, const Place &place) {
	DISubprogram *sub = f.getSubprogram();
	std::string row;
	raw_string_ostream(row) << format("%08x\t%u\t", methodID(f), place.loop) << demangle(f.getName()) << '\t'
				<< (sub ? sub->getFilename() : f.getParent()->getSourceFileName()) << ':' << place.line << '\n';
	return row;
}

static MDNode *metadata(Function &f, const Place &place) {
	LLVMContext &c = f.getContext();
	auto number = [&](uint32_t n) { return ConstantAsMetadata::get(ConstantInt::get(Type::getInt32Ty(c), n)); };
	return MDNode::get(c, {number(methodID(f)), number(place.loop), MDString::get(c, describe(f, place))});
}

// insertMarker returns the new marker's variable. It is internal, and its address is used for nothing but loads and stores:
// so the optimizer knows that no pointer of the program points to it.
static GlobalVariable *insertMarker(Function &f, const Place &place) {
	Type *type = Type::getInt64Ty(f.getContext());
	auto *g = new GlobalVariable(*f.getParent(), type, false, GlobalValue::InternalLinkage, ConstantInt::get(type, 0),
				     Twine(MarkerPrefix) + f.getName() + "." + Twine(place.loop));
	g->setMetadata(MarkerMetadata, metadata(f, place));
	for (Instruction *before : place.before) {
		IRBuilder<> builder(before);
		locate(builder, f, before->getDebugLoc());
		builder.CreateStore(builder.CreateAdd(builder.CreateLoad(type, g), builder.getInt64(1)), g);
	}
	return g;
}

static void insertCall(Function &f, const Place &place) {
	Module &m = *f.getParent();
	MDNode *row = metadata(f, place);
	for (Instruction *before : place.before) {
		IRBuilder<> builder(before);
		locate(builder, f, before->getDebugLoc());
		callRuntime(builder, loopFunction(m), {builder.getInt32(methodID(f)), builder.getInt32(place.loop), builder.getInt64(1)});
	}
	forgetPurity(f);
	m.getOrInsertNamedMetadata(MarkerMetadata)->addOperand(row);
}

// addReader adds a function that others might call to read the markers, until Replace deletes it. Without it, LLVM would see
// that nothing depends on them: it would delete markers, and turn those of main into local variables.
static void addReader(Module &m, ArrayRef<GlobalVariable *> markers) {
	Type *type = Type::getInt64Ty(m.getContext());
	auto *reader = Function::Create(FunctionType::get(type, false), GlobalValue::ExternalLinkage,
					Twine(ReaderPrefix) + Twine::utohexstr(xxh3_64bits(m.getModuleIdentifier())), m);
	reader->setVisibility(GlobalValue::HiddenVisibility);
	reader->addFnAttr(Attribute::OptimizeNone); // it may be long, and goes away
	reader->addFnAttr(Attribute::NoInline);
	IRBuilder<> builder(BasicBlock::Create(m.getContext(), "", reader));
	Value *sum = builder.getInt64(0);
	for (GlobalVariable *g : markers)
		sum = builder.CreateAdd(sum, builder.CreateLoad(type, g));
	builder.CreateRet(sum);
	appendToCompilerUsed(m, {reader});
}

PreservedAnalyses Insert::run(Module &m, ModuleAnalysisManager &analyses) {
	if (options.mode == Mode::Off)
		return PreservedAnalyses::all();
	auto &functions = analyses.getResult<FunctionAnalysisManagerModuleProxy>(m).getManager();
	SmallVector<Function *, 0> chosen;
	SmallVector<GlobalVariable *, 0> markers;
	for (Function &f : m) {
		const SmallSet<uint32_t, 4> *loops;
		if (!options.chooses(f, loops))
			continue;
		chosen.push_back(&f);
		for (const Place &place :
		     options.blocks ? blocksOf(f) : loopsOf(f, functions.getResult<LoopAnalysis>(f), options.header)) {
			if (loops && !loops->contains(place.loop))
				continue;
			if (options.mode == Mode::Naive)
				insertCall(f, place);
			else
				markers.push_back(insertMarker(f, place));
		}
	}
	for (Function *f : chosen) {
		if (options.noinlined && !f->hasFnAttribute(Attribute::AlwaysInline))
			f->addFnAttr(Attribute::NoInline);
		if (options.timers && options.mode == Mode::Naive)
			addTimers(*f, options.version);
	}
	if (!markers.empty())
		addReader(m, markers);
	return PreservedAnalyses::none();
}

// ---- plug-in ----

static void registerPasses(PassBuilder &builder) {
	static const Options options = Options::fromEnvironment();
	builder.registerPipelineStartEPCallback([](ModulePassManager &passes, OptimizationLevel) { passes.addPass(Insert(options)); });
	builder.registerOptimizerLastEPCallback([](ModulePassManager &passes, OptimizationLevel) { passes.addPass(Replace(options)); });
}

extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT PassPluginLibraryInfo llvmGetPassPluginInfo() {
	return {LLVM_PLUGIN_API_VERSION, "vmprof-markers", "1", registerPasses};
}
