package bpf

import (
	"fmt"
	"unsafe"
)

// Types of the semaphore engine's object. Layouts and units: php.bpf.h.
type (
	PHPProbe  = PhpPhpProbe
	PHPGuest  = PhpPhpGuest
	PHPNotice = PhpPhpNotice
	PHPRate   = PhpPhpRate
	PHPSite   = PhpPhpSite
	PHPEdge   = PhpPhpEdge
	PHPAction = PhpPhpAction
)

// What the kernel side does with a guest's calls: PHPGuest.Mode.
const (
	PHPBursts = uint32(PhpPhpModePHP_BURSTS)
	PHPExact  = uint32(PhpPhpModePHP_EXACT)
)

// What the kernel side asks of whoever may write to guests.
const (
	PHPArm   = PhpPhpActionPHP_ARM
	PHPClear = PhpPhpActionPHP_CLEAR
	PHPStray = PhpPhpActionPHP_STRAY
)

// Bounds of the semaphore engine's kernel side.
const (
	MaxPHPGuests = 4096 // processes at once: MAX_PHP_GUESTS
	MaxPHPProbes = 32   // probe sites of all builds of PHP: MAX_PHP_PROBES
)

// LoadPHP loads the semaphore engine's object beside o's. The caller closes it, before o.
func (o *Objects) LoadPHP() (*PhpObjects, error) {
	spec, err := LoadPhp()
	if err != nil {
		return nil, fmt.Errorf("read semaphore object: %w", err)
	}
	var php PhpObjects
	if err := o.LoadBeside(spec, &php); err != nil {
		return nil, fmt.Errorf("load semaphore programs: %w", err)
	}
	return &php, nil
}

// Named is who called whom. Its header is empty.
func (e *PHPEdge) Named() *NamedCall {
	return (*NamedCall)(unsafe.Pointer(&e.Names)) // the same struct of event.h, generated twice
}
