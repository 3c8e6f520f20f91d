package hotspot

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A profile says that a release is not tested if and only if the tables of tested releases do not
// have it.
func TestTestedJDKs(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/jdks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| feature | 8")
	head, _, _ := strings.Cut("8"+table, "\n")
	var releases []int
	for _, m := range regexp.MustCompile(`(?:^|\| )(\d+)`).FindAllStringSubmatch(head, -1) {
		n, _ := strconv.Atoi(m[1])
		releases = append(releases, n)
	}
	if !slices.Equal(releases, testedJDKs) {
		t.Errorf("the tables have %v, the profiles know of %v", releases, testedJDKs)
	}
}
