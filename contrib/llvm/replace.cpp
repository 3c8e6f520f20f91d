// SPDX-License-Identifier: Apache-2.0
//
// After optimization: what became of the markers, and what replaces them.

#include "markers.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/InstructionSimplify.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/ValueHandle.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Local.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"
#include "llvm/Transforms/Utils/SSAUpdater.h"

#include <optional>

using namespace llvm;
using namespace vmprof;

namespace {

// Sections of the program: the table has the rows of describe, the other one entries of method and loop (32 bits each) and
// the address of a marker's variable.
constexpr char TableSection[] = "vmprof_table";
constexpr char CountsSection[] = "vmprof_counts";

// An Account says what became of markers: inserted = kept + merged + removed + lost.
struct Account {
	unsigned inserted = 0;
	unsigned kept = 0;	// each site adds one
	unsigned merged = 0;	// a site adds more, or a variable number
	unsigned removed = 0;	// no site is left: the code is never executed, or was executed at compile time
	unsigned lost = 0;	// the optimizer uses the variable in a way that is not understood
	unsigned sites = 0;	// where markers are in the end
	unsigned ones = 0;	// of these, add one
	unsigned constants = 0; // of these, add another constant
	unsigned variables = 0; // of these, add a variable number
	unsigned memory = 0;	// of the variable ones, need the variable in memory
};

// A Site is a store to a marker's variable. Its increment is the stored value less the variable's value before, which is
// that of the last load or store on whichever path led here. Calls in between do not matter: had the optimizer
// thought that they might change the variable, it would have left a load after them.
//
// The increment does not depend on what is loaded. So in the end every load may give 0, and the variable can go.
struct Site {
	StoreInst *store;
	WeakTrackingVH increment;
};

Value *valueOf(Instruction *access) {
	auto *store = dyn_cast<StoreInst>(access);
	return store ? store->getValueOperand() : access;
}

// understood reports whether a marker's variable is only loaded and stored.
bool understood(const GlobalVariable &g) {
	Type *type = g.getValueType();
	return g.hasInitializer() && all_of(g.users(), [&](const User *user) {
		if (auto *load = dyn_cast<LoadInst>(user))
			return load->getType() == type && load->isSimple();
		auto *store = dyn_cast<StoreInst>(user);
		return store && store->getPointerOperand() == &g && store->getValueOperand()->getType() == type && store->isSimple();
	});
}

// Accesses are a marker's loads and stores in a function.
using Accesses = MapVector<GlobalVariable *, SmallVector<Instruction *, 4>>;

// A Follower finds the sites of a function.
class Follower {
	Function &f;
	DominatorTree &dominators;
	ScalarEvolution &evolution;
	SimplifyQuery query;
	SmallPtrSet<GlobalVariable *, 4> staying; // variables that stay in memory
	SetVector<Instruction *> touched;	  // instructions that may be dead without the markers

    public:
	SmallVector<Site, 0> sites;

	Follower(Function &f, FunctionAnalysisManager &functions)
		: f(f), dominators(functions.getResult<DominatorTreeAnalysis>(f)),
		  evolution(functions.getResult<ScalarEvolutionAnalysis>(f)),
		  query(f.getParent()->getDataLayout(), &functions.getResult<TargetLibraryAnalysis>(f), &dominators) {}

	bool staysInMemory(GlobalVariable *g) const { return staying.contains(g); }

	// find finds all sites of a marker and their increments. It adds instructions that compute these, and nothing else.
	void find(GlobalVariable *g, ArrayRef<Instruction *> accesses) {
		MapVector<BasicBlock *, SmallVector<Instruction *, 4>> blocks;
		for (Instruction *access : accesses)
			if (dominators.isReachableFromEntry(access->getParent()))
				blocks[access->getParent()].push_back(access);
		SmallVector<PHINode *, 8> phis;
		SSAUpdater before(&phis);
		before.Initialize(g->getValueType(), "vmprof.before");
		for (auto &[block, inBlock] : blocks) {
			sort(inBlock, [](Instruction *a, Instruction *b) { return a->comesBefore(b); });
			before.AddAvailableValue(block, valueOf(inBlock.back()));
		}
		SmallVector<std::pair<StoreInst *, Value *>, 4> stores;
		for (auto &[block, inBlock] : blocks)
			for (size_t i = 0; i < inBlock.size(); ++i)
				if (auto *store = dyn_cast<StoreInst>(inBlock[i]))
					stores.push_back({store, i ? valueOf(inBlock[i - 1]) : before.GetValueInMiddleOfBlock(block)});
		touched.insert(phis.begin(), phis.end());
		if (any_of(stores, [](auto &s) { return isa<UndefValue>(s.second); }) || any_of(phis, [&](PHINode *p) { return hasHole(*p); }))
			staying.insert(g);
		for (auto [store, value] : stores)
			sites.push_back({store, incrementOf(store, value, staying.contains(g))});
	}

	// replace deletes the markers. If time is set, each becomes a timing point.
	void replace(const Accesses &accesses, bool time) {
		for (auto &[g, ofMarker] : accesses)
			if (!staying.contains(g))
				forgetLoads(ofMarker);
		simplify();
		if (time)
			for (Site &site : sites)
				addTimingPoint(site);
		for (auto &[g, ofMarker] : accesses)
			for (Instruction *access : ofMarker)
				if (!staying.contains(g))
					erase(access);
		sweep();
	}

	// sweep deletes what only the markers needed: whatever had to do with them, and has no use but in others of these.
	void sweep() {
		SetVector<Instruction *> candidates;
		SmallVector<Instruction *, 32> work(touched.begin(), touched.end());
		touched.clear();
		while (!work.empty()) {
			Instruction *i = work.pop_back_val();
			if (!wouldInstructionBeTriviallyDead(i) || !candidates.insert(i))
				continue;
			for (Value *operand : i->operands())
				if (auto *o = dyn_cast<Instruction>(operand))
					work.push_back(o);
		}
		SmallPtrSet<Instruction *, 32> live;
		for (Instruction *i : candidates)
			if (any_of(i->users(), [&](User *u) { return !candidates.contains(cast<Instruction>(u)); }))
				work.push_back(i);
		while (!work.empty()) {
			Instruction *i = work.pop_back_val();
			if (!candidates.contains(i) || !live.insert(i).second)
				continue;
			for (Value *operand : i->operands())
				if (auto *o = dyn_cast<Instruction>(operand))
					work.push_back(o);
		}
		SmallVector<Instruction *, 32> dead;
		for (Instruction *i : candidates)
			if (!live.contains(i))
				dead.push_back(i);
		for (Instruction *i : dead) {
			salvageDebugInfo(*i);
			i->replaceAllUsesWith(PoisonValue::get(i->getType()));
		}
		for (Instruction *i : dead)
			i->eraseFromParent();
	}

    private:
	// hasHole reports whether a path leads to a phi on which the variable was never read nor written.
	bool hasHole(PHINode &phi) const {
		for (unsigned i = 0; i < phi.getNumIncomingValues(); ++i)
			if (isa<UndefValue>(phi.getIncomingValue(i)) && dominators.isReachableFromEntry(phi.getIncomingBlock(i)))
				return true;
		return false;
	}

	Value *incrementOf(StoreInst *store, Value *before, bool fromMemory) {
		Value *after = store->getValueOperand();
		IRBuilder<> builder(store);
		locate(builder, f, store->getDebugLoc());
		if (fromMemory) {
			before = builder.CreateLoad(after->getType(), store->getPointerOperand(), "vmprof.before");
		} else if (Value *known = simplifySubInst(after, before, false, false, query); known && isa<ConstantInt>(known)) {
			return known;
		} else if (auto *constant = dyn_cast<SCEVConstant>(evolution.getMinusSCEV(evolution.getSCEV(after), evolution.getSCEV(before)))) {
			return constant->getValue();
		}
		Value *increment = builder.CreateSub(after, before, "vmprof.increment");
		if (auto *i = dyn_cast<Instruction>(increment))
			touched.insert(i);
		return increment;
	}

	void forgetLoads(ArrayRef<Instruction *> accesses) {
		for (Instruction *access : accesses) {
			if (auto *stored = dyn_cast<Instruction>(valueOf(access)); stored && stored != access)
				touched.insert(stored);
			if (!isa<LoadInst>(access))
				continue;
			for (User *user : access->users())
				touched.insert(cast<Instruction>(user));
			access->replaceAllUsesWith(ConstantInt::get(access->getType(), 0));
		}
	}

	// simplify computes with the zeros as far as they go.
	void simplify() {
		SmallVector<Instruction *, 32> work(touched.begin(), touched.end());
		while (!work.empty()) {
			Instruction *i = work.pop_back_val();
			if (i->use_empty() || !dominators.isReachableFromEntry(i->getParent()))
				continue;
			Value *simple = simplifyInstruction(i, query);
			if (!simple || simple == i)
				continue;
			for (User *user : i->users()) {
				work.push_back(cast<Instruction>(user));
				touched.insert(cast<Instruction>(user));
			}
			i->replaceAllUsesWith(simple);
		}
	}

	void addTimingPoint(Site &site) {
		Value *n = site.increment;
		StoreInst *store = site.store;
		Instruction *at = store;
		auto *constant = dyn_cast<ConstantInt>(n);
		if (constant && constant->isZero())
			return;
		IRBuilder<> builder(store);
		locate(builder, f, store->getDebugLoc());
		if (!constant) {
			// A loop that was not entered, or an increment by condition that became one of 0 or 1.
			Value *some = builder.CreateICmpNE(n, builder.getInt64(0));
			at = SplitBlockAndInsertIfThen(some, store, false);
		}
		builder.SetInsertPoint(at);
		locate(builder, f, store->getDebugLoc());
		MDNode *ids = cast<GlobalVariable>(store->getPointerOperand())->getMetadata(MarkerMetadata);
		auto id = [&](unsigned i) { return cast<ConstantAsMetadata>(ids->getOperand(i))->getValue(); };
		callRuntime(builder, loopFunction(*f.getParent()), {id(0), id(1), n});
		forgetPurity(f);
	}

	void erase(Instruction *access) {
		if (auto *stored = dyn_cast<Instruction>(valueOf(access)); stored && stored != access)
			touched.insert(stored);
		touched.remove(access);
		access->eraseFromParent();
	}
};

void dropReaders(Module &m) {
	removeFromUsedLists(m, [](Constant *c) { return c->getName().starts_with(ReaderPrefix); });
	for (Function &f : make_early_inc_range(m))
		if (f.getName().starts_with(ReaderPrefix))
			f.eraseFromParent();
}

void follow(FunctionAnalysisManager &functions, ArrayRef<GlobalVariable *> markers, Mode mode, Account &account) {
	MapVector<Function *, Accesses> accesses;
	SmallPtrSet<GlobalVariable *, 4> lost, found, merged;
	for (GlobalVariable *g : markers) {
		if (!understood(*g)) {
			lost.insert(g);
			continue;
		}
		for (User *user : g->users()) {
			auto *i = cast<Instruction>(user);
			accesses[i->getFunction()][g].push_back(i);
		}
	}
	for (auto &[f, inFunction] : accesses) {
		functions.invalidate(*f, PreservedAnalyses::none());
		Follower follower(*f, functions);
		for (auto &[g, ofMarker] : inFunction)
			follower.find(g, ofMarker);
		for (Site &site : follower.sites) {
			auto *g = cast<GlobalVariable>(site.store->getPointerOperand());
			auto *constant = dyn_cast<ConstantInt>(site.increment);
			if (constant && constant->isZero())
				continue;
			found.insert(g);
			++account.sites;
			if (constant && constant->isOne()) {
				++account.ones;
				continue;
			}
			merged.insert(g);
			++(constant ? account.constants : account.variables);
			account.memory += follower.staysInMemory(g);
		}
		if (mode == Mode::Count)
			follower.sweep();
		else
			follower.replace(inFunction, mode == Mode::Time);
		functions.invalidate(*f, PreservedAnalyses::none());
	}
	for (GlobalVariable *g : markers)
		++(lost.contains(g) ? account.lost : !found.contains(g) ? account.removed : merged.contains(g) ? account.merged : account.kept);
}

void addSection(Module &m, const char *section, Constant *content, Align alignment) {
	auto *g = new GlobalVariable(m, content->getType(), true, GlobalValue::PrivateLinkage, content, Twine("__") + section);
	g->setSection(section);
	g->setAlignment(alignment);
	appendToUsed(m, {g});
}

void addCounts(Module &m, ArrayRef<GlobalVariable *> markers) {
	SmallVector<Constant *, 0> entries;
	for (GlobalVariable *g : markers) {
		MDNode *ids = g->getMetadata(MarkerMetadata);
		auto id = [&](unsigned i) { return cast<ConstantAsMetadata>(ids->getOperand(i))->getValue(); };
		entries.push_back(ConstantStruct::getAnon({cast<Constant>(id(0)), cast<Constant>(id(1)), g}));
	}
	if (!entries.empty())
		addSection(m, CountsSection, ConstantArray::get(ArrayType::get(entries[0]->getType(), entries.size()), entries), Align(8));
}

void print(const Account &a, StringRef source, StringRef path) {
	std::string line;
	raw_string_ostream(line) << "vmprof-markers: " << source << ": inserted " << a.inserted << " = kept " << a.kept << " + merged "
				 << a.merged << " + removed " << a.removed << " + lost " << a.lost << "; sites " << a.sites
				 << ": by one " << a.ones << ", by a constant " << a.constants << ", variable " << a.variables
				 << ", in memory " << a.memory << "\n";
	if (path == "-") {
		errs() << line;
		return;
	}
	// One write, so that compilers that run at the same time do not mix their lines.
	std::error_code failed;
	raw_fd_ostream out(path, failed, sys::fs::OF_Append);
	if (failed)
		report_fatal_error(Twine("vmprof-markers: append to ") + path + ": " + failed.message(), false);
	out << line;
}

} // namespace

PreservedAnalyses Replace::run(Module &m, ModuleAnalysisManager &analyses) {
	if (options.mode == Mode::Off)
		return PreservedAnalyses::all();
	dropReaders(m);
	Account account;
	std::string table;
	if (NamedMDNode *rows = m.getNamedMetadata(MarkerMetadata)) {
		for (MDNode *row : rows->operands())
			table += cast<MDString>(row->getOperand(2))->getString();
		account.inserted = account.kept = rows->getNumOperands();
		account.sites = account.ones = loopFunction(m).getCallee()->getNumUses();
	}
	SmallVector<GlobalVariable *, 0> markers;
	for (GlobalVariable &g : m.globals()) {
		if (MDNode *row = g.getMetadata(MarkerMetadata)) {
			markers.push_back(&g);
			table += cast<MDString>(row->getOperand(2))->getString();
		}
	}
	account.inserted += markers.size();
	follow(analyses.getResult<FunctionAnalysisManagerModuleProxy>(m).getManager(), markers, options.mode, account);
	if (options.mode == Mode::Count)
		addCounts(m, markers);
	else
		for (GlobalVariable *g : markers)
			if (g->use_empty())
				g->eraseFromParent();
	if (options.timers && options.mode == Mode::Time) {
		for (Function &f : m) {
			const SmallSet<uint32_t, 4> *loops;
			if (options.chooses(f, loops) && !f.hasAvailableExternallyLinkage())
				addTimers(f, options.version);
		}
	}
	if (options.mode != Mode::Remove && !table.empty())
		addSection(m, TableSection, ConstantDataArray::getString(m.getContext(), table, false), Align(1));
	if (!options.stats.empty() && account.inserted)
		print(account, m.getSourceFileName(), options.stats);
	return PreservedAnalyses::none();
}
