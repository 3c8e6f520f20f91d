package main

import (
	"math"
	"testing"
)

// As compare writes it.
const compared = `Precision by samples: how well each of 3 windows predicts the next
recording, 3000 samples, 990 to 1010 in a window

         methods              edges             PCCT
windows    corr.  overlap    corr.  overlap    corr.  overlap
1, 2      0.9990    97.10   0.9000    90.00   0.8000    80.00
mean      0.9985    97.25        -    89.50   0.8125    81.50
1 more pair, in the means, too
corr.: correlation, of 1; overlap: of 100; mean: geometric
`

func TestLikeness(t *testing.T) {
	got, err := parseLikeness(compared)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got["methods"] != (likeness{0.9985, 97.25}) || got["PCCT"] != (likeness{0.8125, 81.5}) {
		t.Errorf("got %v", got)
	}
	if edges := got["edges"]; !math.IsNaN(edges.correlation) || edges.overlap != 89.5 {
		t.Errorf("got edges %v", edges)
	}
	r := contextRecording{alike: got}
	if r.likenessOf("methods").overlap != 97.25 || !math.IsNaN(r.likenessOf("contexts").correlation) {
		t.Error("what was not compared has a value, or what was has none")
	}
	for what, text := range map[string]string{
		"nothing":     "",
		"no means":    "     methods\nwindows corr. overlap\n1, 2 0.9 90\n",
		"half a mean": "     methods\nwindows corr. overlap\nmean 0.9\n",
		"no number":   "     methods\nwindows corr. overlap\nmean 0.9 many\n",
	} {
		if got, err := parseLikeness(text); err == nil {
			t.Errorf("%s: got %v", what, got)
		}
	}
}
