package elffile

import (
	"debug/elf"
	"errors"
	"testing"
)

func TestTLSModuleSlot(t *testing.T) {
	slot, err := open(t, fixture()).TLSModuleSlot()
	if err != nil || slot != 0x2110 {
		t.Errorf("slot %#x, %v, want 0x2110", slot, err)
	}
	other := fixture()
	other.Machine = elf.EM_AARCH64 // the same numbers mean other relocations
	if slot, err := open(t, other).TLSModuleSlot(); !errors.Is(err, ErrNotFound) {
		t.Errorf("arm64: slot %#x, %v, want %v", slot, err, ErrNotFound)
	}
	other.Machine = elf.EM_RISCV
	if slot, err := open(t, other).TLSModuleSlot(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("riscv: slot %#x, %v, want %v", slot, err, ErrUnsupported)
	}
}

// Many sections that name the same relocations must not cost their product in time.
func TestRelocationsAreBounded(t *testing.T) {
	image := fixture()
	for i := range image.Sections {
		if s := &image.Sections[i]; s.Name == ".rela.dyn" {
			s.Header.Size = (maxRelocations + 1) * 24
		}
	}
	if _, err := open(t, image).TLSModuleSlot(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v, want %v", err, ErrTooLarge)
	}
}
