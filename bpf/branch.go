package bpf

// Types of the branch engine's object. Layouts and units: branch.bpf.h.
type (
	BranchCost = BranchBranchCost
	BranchRate = BranchBranchRate
)

// MaxBranches is how many calls a CPU's branch records hold at most: MAX_BRANCHES.
const MaxBranches = 32
