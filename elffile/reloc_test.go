package elffile

import (
	"debug/elf"
	"errors"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
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

// Many sections that name the same relocations must not take quadratic time.
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

// Pointers are in the order of their own addresses.
func TestPointers(t *testing.T) {
	image := fixture()
	for i := range image.Sections {
		if s := &image.Sections[i]; s.Name == ".rela.dyn" {
			s.Data = elftest.Append(s.Data, []elf.Rela64{
				{Off: 0x20f8, Info: elf.R_INFO(0, uint32(elf.R_X86_64_RELATIVE)), Addend: 0x1020},
			})
		}
	}
	got, err := open(t, image).Pointers()
	if want := []Pointer{{0x20f8, 0x1020}, {0x2100, 0}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for i := range image.Sections {
		if s := &image.Sections[i]; s.Name == ".rela.dyn" {
			s.Header.Flags = 0 // left over from linking
		}
	}
	if got, err := open(t, image).Pointers(); !errors.Is(err, ErrNotFound) {
		t.Errorf("without any: %+v, %v", got, err)
	}
	image.Machine = elf.EM_AARCH64
	if got, err := open(t, image).Pointers(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("arm64: %+v, %v", got, err)
	}
	image = fixture()
	for i := range image.Sections {
		if s := &image.Sections[i]; s.Name == ".rela.dyn" {
			s.Data = elftest.Append(nil, slices.Repeat([]elf.Rela64{{Info: elf.R_INFO(0,
				uint32(elf.R_X86_64_RELATIVE))}}, maxPointers+1))
		}
	}
	if got, err := open(t, image).Pointers(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d pointers, %v, want %v", len(got), err, ErrTooLarge)
	}
}
