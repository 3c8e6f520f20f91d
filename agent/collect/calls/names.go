package calls

// Auto lets the agent choose engines.
const Auto = "auto"

// Names of the engines: --engine selects them by these names, and profiles label their calls with
// them. The engine Hotspot is not the runtime of that name: other engines sample calls of JVMs,
// too.
const (
	Page     = "page"
	Hotspot  = "hotspot"
	Listener = "listener"
	USDT     = "usdt"
	Branch   = "branch"
)
