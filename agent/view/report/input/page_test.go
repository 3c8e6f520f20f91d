package input_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// The profile in a page is read from there. Of several, one has to be saved.
func TestReadPage(t *testing.T) {
	cpu, alloc := sinktest.MustPprof(t, sinktest.Shop()), sinktest.MustPprof(t, sinktest.Only(profile.Allocations))
	var one, two bytes.Buffer
	page := sink.Page{Title: "shop"}
	page.Add("cpu.pb.gz", cpu)
	if err := page.Write(&one); err != nil {
		t.Fatal(err)
	}
	page.Add("alloc.pb.gz", alloc)
	if err := page.Write(&two); err != nil {
		t.Fatal(err)
	}
	got, err := input.Read(bytes.NewReader(one.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if want := sinktest.Reparse(t, cpu); got.String() != want.String() {
		t.Errorf("the profile in the page is\n%s\nwant\n%s", got, want)
	}
	at := strings.Index(one.String(), `id="file0">`)
	for name, test := range map[string]struct{ page, want string }{
		"several": {two.String(), "this page has 2 profiles inside (cpu.pb.gz, alloc.pb.gz): open it in a browser " +
			"and save one of them"},
		"none":    {"<!doctype html><p>hello", "this page has no profile inside: name a .pb.gz file"},
		"cut off": {one.String()[:at+100], "this page is cut off"},
		"damaged": {one.String()[:at+100] + "!</script>", "decode the profile in the page: "},
	} {
		if _, err := input.Read(strings.NewReader(test.page)); err == nil ||
			!strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}
