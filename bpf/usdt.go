package bpf

import (
	"fmt"
	"unsafe"
)

// Types of the usdt engine's object. Layouts and units: usdt.bpf.h.
type (
	USDTProbe  = UsdtUsdtProbe
	USDTGuest  = UsdtUsdtGuest
	USDTNotice = UsdtUsdtNotice
	USDTRate   = UsdtUsdtRate
	USDTSite   = UsdtUsdtSite
	USDTEdge   = UsdtUsdtEdge
	USDTAction = UsdtUsdtAction
)

// What the kernel side does with a guest's calls: USDTGuest.Mode.
const (
	USDTBursts = uint32(UsdtUsdtModeUSDT_BURSTS)
	USDTExact  = uint32(UsdtUsdtModeUSDT_EXACT)
)

// How the calls at a site are read: USDTProbe.Dialect.
const (
	USDTArguments = uint32(UsdtUsdtDialectUSDT_ARGUMENTS)
	USDTPHP       = uint32(UsdtUsdtDialectUSDT_PHP)
)

// What the kernel side asks for.
const (
	USDTOpen = UsdtUsdtActionUSDT_OPEN
	USDTFull = UsdtUsdtActionUSDT_FULL
)

// Bounds of the usdt engine's kernel side.
const (
	MaxUSDTGuests = 4096 // processes at once: MAX_USDT_GUESTS
	MaxUSDTProbes = 64   // probe sites of all builds of interpreters: MAX_USDT_PROBES
)

// LoadUSDT loads the usdt engine's object next to o's. The caller closes it, before o.
func (o *Objects) LoadUSDT() (*UsdtObjects, error) {
	spec, err := LoadUsdt()
	if err != nil {
		return nil, fmt.Errorf("read usdt object: %w", err)
	}
	var usdt UsdtObjects
	if err := o.LoadBeside(spec, &usdt); err != nil {
		return nil, fmt.Errorf("load usdt programs: %w", err)
	}
	return &usdt, nil
}

// Named is who called whom. Its header is empty.
func (e *USDTEdge) Named() *NamedCall {
	return (*NamedCall)(unsafe.Pointer(&e.Names)) // the same struct of call.h, generated twice
}
