package javaheap

import "testing"

// TestGenerationOfTag has the tags of G1's regions, of JDK 17 and 25.
func TestGenerationOfTag(t *testing.T) {
	jdk17 := HeapLayout{EdenTag: 2, SurvivorTag: 3, HumongousMask: 4, OldMask: 16}
	jdk25 := HeapLayout{EdenTag: 2, SurvivorTag: 3, HumongousMask: 4, OldMask: 8}
	for _, test := range []struct {
		layout HeapLayout
		tag    uint32
		want   Generation
	}{
		{jdk17, 0, GenerationUnknown}, {jdk17, 2, GenerationEden}, {jdk17, 3, GenerationSurvivor},
		{jdk17, 12, GenerationHumongous}, {jdk17, 13, GenerationHumongous}, {jdk17, 16, GenerationOld},
		{jdk17, 56, GenerationOld}, // archived
		{jdk25, 0, GenerationUnknown}, {jdk25, 2, GenerationEden}, {jdk25, 3, GenerationSurvivor},
		{jdk25, 4, GenerationHumongous}, {jdk25, 5, GenerationHumongous}, {jdk25, 8, GenerationOld},
	} {
		if got := test.layout.GenerationOfTag(test.tag); got != test.want {
			t.Errorf("tag %d is %v, want %v", test.tag, got, test.want)
		}
	}
	if GenerationHumongous.String() != "humongous" || Generation(99).String() != "unknown" ||
		CollectorEpsilon.String() != "Epsilon" || Collector(99).String() != "unknown" {
		t.Error("names of generations or collectors")
	}
}
