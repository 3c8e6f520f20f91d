package calldata

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// loopCode is for (int i = 0; i < n; i++) if (i % 4 == 0) s += i; return s;
var loopCode = []byte{
	3, 60, // 0: iconst_0, istore_1
	3, 61, // 2: iconst_0, istore_2
	28, 26, 162, 0, 21, // 4: iload_2, iload_0, if_icmpge 27
	28, 7, 112, 154, 0, 7, // 9: iload_2, iconst_4, irem, ifne 19
	27, 28, 96, 60, // 15: iload_1, iload_2, iadd, istore_1
	132, 2, 1, // 19: iinc 2 by 1
	167, 255, 238, // 22: goto 4
	0, 0, // 25: nop, nop: never reached
	27, 172, // 27: iload_1, ireturn
}

func TestFlow(t *testing.T) {
	blocks, err := Flow(loopCode)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, b := range blocks {
		got += fmt.Sprintf("%d-%d%v ", b.Begin, b.End, b.Successors)
	}
	if want := "0-4[1] 4-9[6 2] 9-15[4 3] 15-19[4] 19-25[1] 25-27[6] 27-29[] "; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	counts := []BranchCount{{BCI: 6, Taken: 10, NotTaken: 400}, {BCI: 12, Taken: 300, NotTaken: 100},
		{BCI: 22, Taken: 400}}
	CountFlow(blocks, 10, counts)
	got = ""
	for _, b := range blocks {
		got += fmt.Sprintf("%d ", b.Count)
	}
	if want := "10 410 400 100 400 0 10 "; got != want {
		t.Errorf("counts %s, want %s", got, want)
	}
}

func TestWrites(t *testing.T) {
	got := fmt.Sprint(Writes(loopCode))
	if want := "[{1 1 0} {3 2 0} {18 1 0} {19 2 1}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	code := []byte{
		132, 5, 0xfd, // 0: iinc 5 by -3
		196, 132, 1, 2, 0xff, 0xfe, // 3: wide iinc 258 by -2
		196, 54, 1, 0, // 9: wide istore 256
		55, 7, // 13: lstore 7
		78, 75, 66, // 15: astore_3, astore_0, lstore_3
		196, 21, 1, 0, // 18: wide iload 256
		132, 1, // cut off
	}
	got = fmt.Sprint(Writes(code))
	if want := "[{0 5 -3} {3 258 -2} {9 256 0} {13 7 0} {15 3 0} {16 0 0} {17 3 0}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestFlowSwitch(t *testing.T) {
	code := []byte{
		26, 170, 0, 0, // 0: iload_0, tableswitch, padding
		0, 0, 0, 23, 0, 0, 0, 1, 0, 0, 0, 2, // default 24, 1 to 2
		0, 0, 0, 19, 0, 0, 0, 21, // 20, 22
		3, 172, 4, 172, 5, 172, // 24 - 4: iconst_0, ireturn, …
	}
	code[11-4] = 27 // default: 28
	code[19], code[23] = 23, 25
	blocks, err := Flow(code)
	if err != nil {
		t.Fatal(err)
	}
	CountFlow(blocks, 100, []BranchCount{{BCI: 1, Taken: 20, Cases: []uint64{50, 30}}})
	got := ""
	for _, b := range blocks {
		got += fmt.Sprintf("%d%v%d ", b.Begin, b.Successors, b.Count)
	}
	if want := "0[3 1 2]100 24[]50 26[]30 28[]20 "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestFlowMalformed(t *testing.T) {
	for name, code := range map[string][]byte{
		"cut off": {167, 0}, "no instruction": {255}, "behind the end": {167, 0, 9},
		"before the begin": {0, 167, 255, 0}, "into the middle": {167, 0, 4, 16, 0, 177},
	} {
		if blocks, err := Flow(code); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%s: %v, %v", name, blocks, err)
		}
	}
}

func TestBranches(t *testing.T) {
	d := Decoder{tags: testTags(), rows: 2, retRows: 2}
	data := join(dataEntry(3, 3, 10, 8), dataEntry(7, 5, 10, 8, 4), dataEntry(8, 9, 6, 1, 0, 2, 0, 3, 0),
		dataEntry(2, 12, 77))
	counts, err := d.Branches(data)
	if got, want := fmt.Sprint(counts, err), "[{3 10 0 []} {5 10 4 []} {9 1 0 [2 3]}] <nil>"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := d.Branches(data[:len(data)-1]); err == nil {
		t.Error("data that is cut off is decoded")
	}
}

// Whatever the bytecode and the counts are: blocks follow each other without gaps, and successors
// exist.
func FuzzFlow(f *testing.F) {
	f.Add(loopCode, []byte{})
	f.Add([]byte{26, 170, 0, 0, 0, 0, 0, 27}, dataEntry(7, 5, 10, 8, 4))
	f.Fuzz(func(t *testing.T, code, data []byte) {
		d := Decoder{tags: testTags(), rows: 2, retRows: 2}
		counts, _ := d.Branches(data)
		blocks, err := Flow(code)
		if err != nil {
			return
		}
		CountFlow(blocks, 1, counts)
		at := -1
		for _, w := range Writes(code) {
			if w.BCI <= at || w.BCI >= len(code) || w.Local < 0 || w.Local > 0xffff {
				t.Fatalf("write %+v behind %d", w, at)
			}
			at = w.BCI
		}
		at = 0
		for _, b := range blocks {
			if b.Begin != at || b.End <= b.Last || b.Last < b.Begin || b.Cost <= 0 {
				t.Fatalf("block %+v at %d", b, at)
			}
			at = b.End
			for _, s := range b.Successors {
				if s < 0 || s >= len(blocks) {
					t.Fatalf("block %+v of %d", b, len(blocks))
				}
			}
		}
		if at != len(code) {
			t.Fatalf("the last block ends at %d of %d", at, len(code))
		}
	})
}
